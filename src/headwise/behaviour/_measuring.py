"""Roles of one model, family by family."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headwise._base.progress import track
from headwise.behaviour._attention import attention_roles
from headwise.behaviour._head_roles import HeadRoles
from headwise.behaviour._inputs import Reader
from headwise.behaviour._logits import direct_logits
from headwise.behaviour._retrieval import query_retrieval, retrieval, why_no_prompts
from headwise.behaviour._settings import ROLES, SINK, Roles
from headwise.behaviour._sources import texts_of
from headwise.behaviour._vectors import function_vectors
from headwise.behaviour._weights import COMPOSITIONS, circuit_scores, circuits, composition_scores
from headwise.errors import HeadwiseError
from headwise.heads import Heads, UnsupportedModel, check_maps, twinned
from headwise.models import open_with_tokenizer

Array = NDArray[np.float64]
Measured = tuple[
    Array, Array, dict[str, str]
]  # (roles, layers, heads), chance (roles, layers), notes by role
ATTRIBUTES = ("window", "exclude_first", "exclude_current", "seed")


def measure(model: Any, tokenizer: Any, settings: Roles) -> HeadRoles:
    """The roles of a model's heads, in eval mode."""
    model, tokenizer = open_with_tokenizer(model, settings, tokenizer)
    with twinned(model, settings.heads or Heads(model)) as (twin, heads):
        return _role_scores(heads, Reader(twin, tokenizer), settings)


def _role_scores(heads: Heads, reader: Reader, settings: Roles) -> HeadRoles:
    names = settings.names
    layers, widest = heads.shape
    values, chances = np.full((len(names), layers, widest), np.nan), np.full((len(names), layers), np.nan)
    notes: dict[str, str] = {}
    read: dict[str, Any] = {}
    groups = defaultdict(list)  # roles that one measurement gives
    for name in names:
        groups[ROLES[name].family, ROLES[name].read].append(name)
    for group in groups.values():
        rows = [names.index(name) for name in group]
        try:
            values[rows], chances[rows], group_notes = _measured(group, heads, reader, settings, read)
            notes |= group_notes
        except UnsupportedModel as error:
            notes |= dict.fromkeys(group, str(error))
    attributes = {
        "model": reader.root.config.name_or_path or type(reader.root).__name__,
        "definitions": {name: ROLES[name].definition for name in names},
        "notes": notes,
        "sense": "magnitude",  # the higher, the stronger in its role
        **read,
        **{name: getattr(settings, name) for name in ATTRIBUTES},
    }
    if "sink" in names:
        sinks = values[names.index("sink")]
        sinks = sinks[~np.isnan(sinks)]
        attributes["sinks"] = float((sinks > SINK).mean()) if sinks.size else None
    coordinates = {
        "role": names,
        "layer": np.arange(layers),
        "head": np.arange(widest),
        "chance": (("role", "layer"), chances),
        "kind": ("layer", [site.kind for site in heads.sites]),
    }
    return HeadRoles(values, coordinates, ("role", "layer", "head"), "role score", attributes)


def _measured(
    names: Sequence[str], heads: Heads, reader: Reader, settings: Roles, read: dict[str, Any]
) -> Measured:
    """Roles of one family that read the same; what they read is noted in `read`."""
    family = ROLES[names[0]].family
    if family == "attention":
        return _attention(names, heads, reader, settings, read)
    if family == "weights":
        return _weights(names, heads, settings)
    if family == "logits":
        return _logits(heads, reader, settings)
    return _prompted(names[0], heads, reader, settings)


def _attention(
    names: Sequence[str], heads: Heads, reader: Reader, settings: Roles, read: dict[str, Any]
) -> Measured:
    try:
        check_maps(heads.sites)
    except HeadwiseError as error:
        raise UnsupportedModel(str(error)) from None
    if ROLES[names[0]].read == "random":
        rows = reader.repeated_rows(settings.sequences, settings.repeated, settings.seed)
        read["random"] = {"sequences": len(rows), "tokens": settings.repeated}
    else:
        texts = texts_of(settings.texts, settings.examples, settings.seed)
        reader.check(texts, "the texts")
        rows = reader.text_rows(texts, settings.max_length)
        if not rows:
            raise HeadwiseError("no text has two tokens or more: there is nothing to attend to")
        read["texts"] = {
            "texts": len(rows),
            "tokens": sum(map(len, rows)),
            "synthetic": settings.texts is None,
        }
    return attention_roles(heads, reader, rows, names, settings)


def _weights(names: Sequence[str], heads: Heads, settings: Roles) -> Measured:
    sites = circuits(heads)
    scores, notes = circuit_scores(heads, sites)
    chances = {name: np.zeros(heads.shape[0]) for name in scores}
    if any(name in COMPOSITIONS for name in names):
        strongest, levels = composition_scores(heads, sites, settings.seed)
        scores |= dict(zip(COMPOSITIONS, strongest, strict=True))
        chances |= dict(zip(COMPOSITIONS, levels, strict=True))
    return (
        np.stack([scores[name] for name in names]),
        np.stack([chances[name] for name in names]),
        {name: note for name, note in notes.items() if name in names},
    )


def _logits(heads: Heads, reader: Reader, settings: Roles) -> Measured:
    """Contributions to the logit of the right token where a sequence of random tokens comes a second time."""
    rows = reader.repeated_rows(settings.sequences, settings.repeated, settings.seed)
    first = len(reader.before) + settings.repeated  # where the second half begins
    last = first + settings.repeated - 1
    ahead = int(reader.encoder_decoder)  # a decoder of its own begins with a token more
    total, count = torch.zeros(heads.shape, dtype=torch.float64), 0
    starts = range(0, len(rows), settings.batch_size)
    for start in track(starts, "taking logits apart", quiet=settings.quiet):
        batch = rows[start : start + settings.batch_size]
        columns = torch.arange(first, last).expand(len(batch), -1)
        answers = torch.tensor([row[first + 1 : last + 1] for row in batch])
        contributions = direct_logits(heads, reader.batch(batch).inputs, columns + ahead, answers)
        total += contributions.heads.sum((0, 1))
        count += columns.numel()
    values = np.where(heads.valid.numpy(), (total / count).numpy(), np.nan)
    return values[None], np.where(np.isnan(values).all(1), np.nan, 0.0)[None], {}


def _prompted(name: str, heads: Heads, reader: Reader, settings: Roles) -> Measured:
    """Roles of heads that read a prompt and answer it."""
    reason = why_no_prompts(reader, heads)
    if not reason and name == "function-vector" and settings.pairs is None:
        reason = "there are no pairs of inputs and answers: give pairs= (--pairs FILE)"
    if reason:
        raise UnsupportedModel(reason)
    if name == "function-vector":
        return function_vectors(heads, reader, settings)[None], np.zeros((1, heads.shape[0])), {}
    scores = retrieval if name == "retrieval" else query_retrieval
    values, chances = scores(heads, reader, settings)
    return values[None], chances[None], {}
