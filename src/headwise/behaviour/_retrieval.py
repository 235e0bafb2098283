"""Retrieval heads: copying a needle while it is generated (Wu et al. 2024), and attention from a query to its document (QRHead 2025)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headwise._base.progress import track
from headwise.behaviour._given import TABLES, given_rows
from headwise.behaviour._inputs import Reader
from headwise.behaviour._settings import Roles
from headwise.errors import HeadwiseError
from headwise.heads import Heads

HAY, NEEDLE, KNOWN = (
    16,
    6,
    2,
)  # random tokens before and behind the needle, of it, and those that the prompt ends with
DOCUMENTS, LENGTH, ASKED = 4, 6, 3  # random documents, their tokens, and those that make the query
EMPTY = "N/A"  # the paper's query that asks nothing
Found = tuple[NDArray[np.float64], NDArray[np.float64]]  # (layers, heads), chance (layers,)


@dataclass(frozen=True)
class Needle:
    """One prompt.

    Attributes:
        row: its tokens.
        places: where the tokens to be generated stand in it.
    """

    row: list[int]
    places: tuple[int, ...]


@dataclass(frozen=True)
class Asked:
    """One query after documents: the same documents with an empty query beside it.

    Attributes:
        row, empty: their tokens.
        query, nothing: how many tokens at their ends are the query.
        places: where the document that answers it stands.
    """

    row: list[int]
    empty: list[int]
    query: int
    nothing: int
    places: tuple[int, ...]


def needles(reader: Reader, settings: Roles) -> list[Needle]:
    """The prompts a user gives; or random tokens, with a needle among them whose beginning comes again at the end."""
    if settings.needles is not None:
        return [
            _needle(reader, *map(str, row))
            for row in given_rows(settings.needles, TABLES["needles"], "needles")
        ]
    found = []
    for drawn in _random(reader, settings, 2 * HAY + NEEDLE):
        start = len(reader.before) + HAY
        row = [*reader.before, *drawn, *drawn[HAY : HAY + KNOWN]]
        found.append(Needle(row, tuple(range(start + KNOWN, start + NEEDLE))))
    return found


def _needle(reader: Reader, context: str, needle: str, question: str) -> Needle:
    begin = context.find(needle)
    if begin < 0 or not needle:
        raise HeadwiseError(f"the needle {needle!r} is not a part of its context")
    row, spans = _encoded(reader, f"{context}\n{question}")
    places = [
        at
        for at, (start, end) in enumerate(spans)
        if start < begin + len(needle) and end > begin and end > start
    ]
    return Needle(row, tuple(place + len(reader.before) for place in places))


def documents(reader: Reader, settings: Roles) -> list[Asked]:
    """The prompts a user gives; or documents of random tokens, and some tokens of one of them as the query."""
    nothing = reader.tokenizer(EMPTY, add_special_tokens=False)["input_ids"]
    if settings.documents is not None:
        rows = given_rows(settings.documents, TABLES["documents"], "documents")
        return [_asked(reader, list(texts), str(query), int(gold)) for texts, query, gold in rows]
    found = []
    for number, drawn in enumerate(_random(reader, settings, DOCUMENTS * LENGTH + 1)):
        gold, start = number % DOCUMENTS, len(reader.before)
        places = range(start + gold * LENGTH, start + (gold + 1) * LENGTH)
        text = [*reader.before, *drawn[:-1]]
        query = text[places.start : places.start + ASKED]
        empty = nothing or [drawn[-1]]
        found.append(Asked([*text, *query], [*text, *empty], len(query), len(empty), tuple(places)))
    return found


def _asked(reader: Reader, texts: Sequence[str], query: str, gold: int) -> Asked:
    if not 0 <= gold < len(texts):
        raise HeadwiseError(f"gold is {gold}, and there are {len(texts)} documents, counted from 0")
    context = "".join(f"{text}\n\n" for text in texts)
    begin = sum(len(text) + 2 for text in texts[:gold])
    places: tuple[int, ...] = ()
    rows, counts = [], []
    for asked in (query, EMPTY):
        row, spans = _encoded(reader, f"{context}{asked}")
        places = tuple(
            at + len(reader.before)
            for at, (start, end) in enumerate(spans)
            if end > start >= begin - 1 and start < begin + len(texts[gold]) and end > begin
        )
        rows.append(row)
        counts.append(sum(end > len(context) for _, end in spans))
    return Asked(rows[0], rows[1], counts[0], counts[1], places)


def _encoded(reader: Reader, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """Tokens of a text, after the tokenizer's first ones, and the characters each stands for."""
    if not reader.tokenizer.is_fast:
        raise HeadwiseError("finding a needle or a document among tokens needs a fast tokenizer")
    reader.check([text], "the prompts")
    out = reader.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    row = [*reader.before, *out["input_ids"]]
    if reader.limit is not None and len(row) > reader.limit:
        raise HeadwiseError(
            f"a prompt has {len(row)} tokens, and the model reads at most {reader.limit}: give shorter ones"
        )
    return row, [tuple(span) for span in out["offset_mapping"]]


def _random(reader: Reader, settings: Roles, size: int) -> list[list[int]]:
    """`sequences` rows of `size` different random tokens."""
    if reader.limit is not None and size + len(reader.before) + NEEDLE > reader.limit:
        raise HeadwiseError(
            f"the model reads at most {reader.limit} tokens, too few for random needles and documents: give your own"
        )
    return reader.drawn(settings.sequences, size, settings.seed)


def retrieval(heads: Heads, reader: Reader, settings: Roles) -> Found:
    """|g ∩ k| ÷ |k| of every head: k are the needle's tokens, g those generated while its largest attention sat on them.

    The prompt is continued greedily by as many tokens as the needle has. Chance: the largest attention sits anywhere alike.
    """
    total, even = np.zeros(heads.shape), 0.0
    asked = needles(reader, settings)
    for one in track(asked, "looking for needles", quiet=settings.quiet):
        new = len(one.places)
        options = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False, "num_beams": 1}
        inputs = {
            name: value
            for name, value in reader.batch([one.row]).inputs.items()
            if name in ("input_ids", "attention_mask")
        }
        with torch.no_grad(), heads.recorded("last", attention="last") as tape:
            generate: Any = heads.model.generate
            made = generate(**inputs, **options, pad_token_id=reader.pad)[0, len(one.row) :].tolist()
        copied: dict[tuple[int, int], set[int]] = {}
        chances: dict[int, float] = {}
        for step, token in enumerate(made):
            where = {place for place in one.places if one.row[place] == token}
            if where:
                chances[token] = max(chances.get(token, 0.0), len(where) / (len(one.row) + step))
            for site in heads.sites if where else ():
                maps = tape.steps(site.index)[step][0, :, 0]  # (heads, keys)
                hidden = len(one.row) + step - maps.shape[-1]  # keys that a sliding window has let go
                for head, key in enumerate(maps.argmax(-1).tolist()):
                    if key + hidden in where:
                        copied.setdefault((site.index, head), set()).add(token)
        wanted = {one.row[place] for place in one.places}
        for place, tokens in copied.items():
            total[place] += len(tokens) / len(wanted)
        even += sum(chances.values()) / len(wanted)
    values = np.where(heads.valid.numpy(), total / len(asked), np.nan)
    return values, np.full(heads.shape[0], even / len(asked))


def query_retrieval(heads: Heads, reader: Reader, settings: Roles) -> Found:
    """Attention from the query's tokens to the document that answers it, mean over them, minus that of an empty query's tokens."""
    total, even = np.zeros(heads.shape), 0.0
    asked = documents(reader, settings)
    for one in track(asked, "asking for documents", quiet=settings.quiet):
        for sign, row, count in ((1, one.row, one.query), (-1, one.empty, one.nothing)):
            queries = list(range(len(row) - count, len(row)))
            with torch.no_grad(), heads.recorded("last", attention=queries) as tape:
                heads.model(**reader.batch([row]).inputs)
            for site in heads.sites:
                maps = tape.attention[site.index][0][..., list(one.places)]  # (heads, queries, places)
                total[site.index, : site.n_heads] += sign * maps.double().sum(-1).mean(-1).cpu().numpy()
            even += sign * float(np.mean([len(one.places) / (query + 1) for query in queries]))
    values = np.where(heads.valid.numpy(), total / len(asked), np.nan)
    return values, np.full(heads.shape[0], even / len(asked))


def check_causal(reader: Reader, heads: Heads) -> Any:
    """In words why a model does not generate from a prompt, or nothing."""
    if reader.paired or any(site.kind != "self" for site in heads.sites):
        return "its prompt is read by an encoder; the role is one of heads that read prompt and answer alike"
    if not reader.root.can_generate():
        return f"{type(reader.root).__name__} does not generate: open it with its language-model head"
    return ""
