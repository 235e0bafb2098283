"""Roles of one model, family by family."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from headwise._base.progress import track
from headwise.behaviour._attention import attention_roles
from headwise.behaviour._given import given_texts
from headwise.behaviour._inputs import Reader
from headwise.behaviour._logits import direct_logits
from headwise.behaviour._retrieval import check_causal, query_retrieval, retrieval
from headwise.behaviour._settings import ROLES, SINK, Roles
from headwise.behaviour._vectors import function_vectors
from headwise.behaviour._weights import COMPOSITIONS, circuit_scores, circuits, composition_scores
from headwise.errors import HeadwiseError
from headwise.heads import Heads, UnsupportedModel, check_maps, root_of

Found = tuple[
    NDArray[np.float64], NDArray[np.float64], dict[str, str]
]  # (roles, layers, heads), chance (roles, layers), notes


def measured(model: Any, tokenizer: Any, heads: Heads, settings: Roles) -> xr.DataArray:
    """The roles of a live model's heads, in eval mode."""
    asked = settings.asked
    layers, widest = heads.shape
    values, chances = np.full((len(asked), layers, widest), np.nan), np.full((len(asked), layers), np.nan)
    notes: dict[str, str] = {}

    def take(names: Sequence[str], measure: Callable[[], Found]) -> None:
        """Puts the roles `names` into their places, or notes why the model has none of them."""
        if not names:
            return
        try:
            scores, levels, said = measure()
        except UnsupportedModel as error:
            notes.update(dict.fromkeys(names, str(error)))
            return
        notes.update(said)
        for number, name in enumerate(names):
            values[asked.index(name)], chances[asked.index(name)] = scores[number], levels[number]

    reader = Reader(model, tokenizer)
    read: dict[str, Any] = {}
    for source in ("random", "text"):
        names = [name for name in asked if ROLES[name].family == "attention" and ROLES[name].read == source]
        take(
            names,
            lambda names=names, source=source: _attention(heads, reader, names, source, settings, read),  # type: ignore[misc]
        )
    names = [name for name in asked if ROLES[name].family == "weights"]
    take(names, lambda: _weights(heads, names, settings))
    take([name for name in asked if name == "direct-logit"], lambda: _logits(heads, reader, settings))
    for name in (name for name in asked if ROLES[name].family in ("answers", "retrieval")):
        take([name], lambda name=name: _prompted(name, heads, reader, settings))  # type: ignore[misc]
    attrs = {
        "model": root_of(model).config.name_or_path or type(root_of(model)).__name__,  # type: ignore[union-attr]
        "definitions": {name: ROLES[name].said for name in asked},
        "notes": notes,
        "sense": "magnitude",  # the higher, the stronger in its role
        **read,
        **{name: getattr(settings, name) for name in ("window", "exclude_first", "exclude_current", "seed")},
    }
    if "sink" in asked:
        sinks = values[asked.index("sink")]
        known = ~np.isnan(sinks)
        attrs["sinks"] = float((sinks[known] > SINK).mean()) if known.any() else None
    coords = {"role": asked, "layer": np.arange(layers), "head": np.arange(widest)}
    found = xr.DataArray(
        values, coords=coords, dims=("role", "layer", "head"), name="role score", attrs=attrs
    )
    kinds = [site.kind for site in heads.sites]
    return found.assign_coords(chance=(("role", "layer"), chances), kind=("layer", kinds))


def _attention(
    heads: Heads, reader: Reader, names: Sequence[str], source: str, settings: Roles, read: dict[str, Any]
) -> Found:
    try:
        check_maps(heads.sites)
    except HeadwiseError as error:
        raise UnsupportedModel(str(error)) from None
    if source == "random":
        rows = reader.random(settings.sequences, settings.repeated, settings.seed)
        read["random"] = {"sequences": len(rows), "tokens": settings.repeated}
    else:
        texts = given_texts(settings.texts, settings.examples, settings.seed)
        reader.check(texts, "the texts")
        rows = reader.texts(texts, settings.max_length)
        if not rows:
            raise HeadwiseError("no text has two tokens or more: there is nothing to attend to")
        read["texts"] = {
            "texts": len(rows),
            "tokens": sum(map(len, rows)),
            "synthetic": settings.texts is None,
        }
    return attention_roles(heads, reader, rows, names, settings)


def _weights(heads: Heads, names: Sequence[str], settings: Roles) -> Found:
    found = circuits(heads)
    scores, notes = circuit_scores(heads, found)
    levels = {name: np.zeros(heads.shape[0]) for name in scores}
    if any(name in COMPOSITIONS for name in names):
        values, chances = composition_scores(heads, found, settings.seed)
        for number, name in enumerate(COMPOSITIONS):
            scores[name], levels[name] = values[number], chances[number]
    return (
        np.stack([scores[name] for name in names]),
        np.stack([levels[name] for name in names]),
        {name: note for name, note in notes.items() if name in names},
    )


def _logits(heads: Heads, reader: Reader, settings: Roles) -> Found:
    """Contributions to the logit of the right token where a sequence of random tokens comes a second time."""
    rows = reader.random(settings.sequences, settings.repeated, settings.seed)
    first = len(reader.before) + settings.repeated  # where the second half begins
    last = first + settings.repeated - 1
    ahead = 1 if reader.paired else 0  # a decoder of its own begins with a token more
    summed, count = torch.zeros(heads.shape, dtype=torch.float64), 0
    starts = range(0, len(rows), settings.batch_size)
    for start in track(starts, "taking logits apart", quiet=settings.quiet):
        chosen = rows[start : start + settings.batch_size]
        columns = torch.arange(first, last).expand(len(chosen), -1)
        answers = torch.tensor([row[first + 1 : last + 1] for row in chosen])
        found = direct_logits(heads, reader.batch(list(chosen)).inputs, columns + ahead, answers)
        summed, count = summed + found.heads.sum((0, 1)), count + columns.numel()
    valid = heads.valid.numpy()
    values = np.where(valid, (summed / count).numpy(), np.nan)
    return values[None], np.where(np.isnan(values).all(1), np.nan, 0.0)[None], {}


def _prompted(name: str, heads: Heads, reader: Reader, settings: Roles) -> Found:
    """Roles of heads that read a prompt and answer it."""
    why = check_causal(reader, heads)
    if not why and name == "function-vector" and settings.pairs is None:
        why = "there are no pairs of inputs and answers: give pairs= (--pairs FILE)"
    if why:
        raise UnsupportedModel(why)
    if name == "function-vector":
        return function_vectors(heads, reader, settings)[None], np.zeros((1, heads.shape[0])), {}
    values, chances = (retrieval if name == "retrieval" else query_retrieval)(heads, reader, settings)
    return values[None], chances[None], {}
