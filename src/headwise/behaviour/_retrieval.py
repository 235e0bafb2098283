"""Retrieval heads: copying a needle while it is generated (Wu et al. 2024), and attention from a query to its
document (QRHead 2025)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headwise._base.progress import track
from headwise.behaviour._inputs import Reader
from headwise.behaviour._settings import Roles
from headwise.behaviour._sources import rows_of
from headwise.errors import HeadwiseError
from headwise.heads import Heads

HAY = 16  # random tokens before the needle, and behind it
NEEDLE = 6  # random tokens of the needle
BEGINNING = 2  # tokens of the needle with which the prompt ends
DOCUMENTS, DOCUMENT, QUERY = 4, 6, 3  # random documents, tokens of each, and those that make the query
EMPTY = "N/A"  # the paper's query that asks nothing
Measured = tuple[NDArray[np.float64], NDArray[np.float64]]  # (layers, heads), chance (layers,)


@dataclass(frozen=True)
class NeedlePrompt:
    """A prompt that the needle completes.

    Attributes:
        row: its tokens.
        columns: where the tokens to be generated stand in it.
    """

    row: list[int]
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Query:
    """A query after documents.

    Attributes:
        row: tokens of documents and query.
        length: how many tokens at the end are the query.
    """

    row: list[int]
    length: int


@dataclass(frozen=True)
class DocumentPrompt:
    """A query after documents, and an empty one after the same documents.

    Attributes:
        query, empty: the two.
        columns: where the document that answers the query stands.
    """

    query: Query
    empty: Query
    columns: tuple[int, ...]


def needle_prompts(reader: Reader, settings: Roles) -> list[NeedlePrompt]:
    """The user's prompts; or random tokens, with a needle among them whose beginning comes again at the
    end."""
    if settings.needles is not None:
        return [_needle_prompt(reader, *map(str, row)) for row in rows_of(settings.needles, "needles")]
    prompts = []
    start = len(reader.before) + HAY
    for tokens in _random_rows(reader, settings, 2 * HAY + NEEDLE):
        row = [*reader.before, *tokens, *tokens[HAY : HAY + BEGINNING]]
        prompts.append(NeedlePrompt(row, tuple(range(start + BEGINNING, start + NEEDLE))))
    return prompts


def _needle_prompt(reader: Reader, context: str, needle: str, question: str) -> NeedlePrompt:
    begin = context.find(needle)
    if begin < 0 or not needle:
        raise HeadwiseError(f"the needle {needle!r} is not a part of its context")
    row, spans = _encoded(reader, f"{context}\n{question}")
    return NeedlePrompt(row, _overlapping(spans, begin, begin + len(needle)))


def document_prompts(reader: Reader, settings: Roles) -> list[DocumentPrompt]:
    """The user's prompts; or documents of random tokens, and some tokens of one of them as the query."""
    if settings.documents is not None:
        rows = rows_of(settings.documents, "documents")
        return [_document_prompt(reader, list(texts), str(query), int(gold)) for texts, query, gold in rows]
    empty = reader.tokenizer(EMPTY, add_special_tokens=False)["input_ids"]
    prompts = []
    for number, tokens in enumerate(_random_rows(reader, settings, DOCUMENTS * DOCUMENT + 1)):
        start = len(reader.before) + number % DOCUMENTS * DOCUMENT
        documents = [*reader.before, *tokens[:-1]]
        query = documents[start : start + QUERY]
        nothing = empty or [tokens[-1]]
        prompts.append(
            DocumentPrompt(
                Query([*documents, *query], len(query)),
                Query([*documents, *nothing], len(nothing)),
                tuple(range(start, start + DOCUMENT)),
            )
        )
    return prompts


def _document_prompt(reader: Reader, texts: Sequence[str], query: str, gold: int) -> DocumentPrompt:
    if not 0 <= gold < len(texts):
        raise HeadwiseError(f"gold is {gold}, and there are {len(texts)} documents, counted from 0")
    context = "".join(f"{text}\n\n" for text in texts)
    begin = sum(len(text) + 2 for text in texts[:gold])
    queries = []
    for question in (query, EMPTY):
        row, spans = _encoded(reader, f"{context}{question}")
        queries.append(Query(row, sum(end > len(context) for _, end in spans.values())))
    columns = _overlapping(spans, begin, begin + len(texts[gold]))  # alike in both rows
    # the first token may begin with the character before the document, not earlier
    inside = tuple(column for column in columns if spans[column][0] >= begin - 1)
    return DocumentPrompt(queries[0], queries[1], inside)


def _overlapping(spans: Mapping[int, tuple[int, int]], begin: int, end: int) -> tuple[int, ...]:
    """Columns of the tokens that have characters of begin:end."""
    return tuple(column for column, (first, last) in spans.items() if first < min(last, end) and last > begin)


def _encoded(reader: Reader, text: str) -> tuple[list[int], dict[int, tuple[int, int]]]:
    """Tokens of a text, after the tokenizer's first ones, and by column the characters each stands for."""
    if not reader.tokenizer.is_fast:
        raise HeadwiseError("finding a needle or a document among tokens needs a fast tokenizer")
    reader.check([text], "the prompts")
    encoded = reader.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    row = [*reader.before, *encoded["input_ids"]]
    if reader.limit is not None and len(row) > reader.limit:
        raise HeadwiseError(
            f"a prompt has {len(row)} tokens, and the model reads at most {reader.limit}: give shorter ones"
        )
    return row, dict(enumerate(encoded["offset_mapping"], len(reader.before)))


def _random_rows(reader: Reader, settings: Roles, size: int) -> list[list[int]]:
    """`sequences` rows of `size` different random tokens."""
    if reader.limit is not None and size + len(reader.before) + NEEDLE > reader.limit:
        raise HeadwiseError(
            f"the model reads at most {reader.limit} tokens, too few for random needles and documents: give "
            "your own"
        )
    return reader.random_rows(settings.sequences, size, settings.seed)


def retrieval(heads: Heads, reader: Reader, settings: Roles) -> Measured:
    """|g ∩ k| ÷ |k| of every head: k are the needle's tokens, g those generated while its largest attention
    sat on them.

    The prompt is continued greedily by as many tokens as the needle has. Chance: the largest attention sits
    anywhere alike.
    """
    total, chance = np.zeros(heads.shape), 0.0
    prompts = needle_prompts(reader, settings)
    for prompt in track(prompts, "looking for needles", quiet=settings.quiet):
        copied, even = _copied_shares(heads, reader, prompt)
        total += copied
        chance += even
    values = np.where(heads.valid.numpy(), total / len(prompts), np.nan)
    return values, np.full(heads.shape[0], chance / len(prompts))


def _copied_shares(heads: Heads, reader: Reader, prompt: NeedlePrompt) -> tuple[NDArray[np.float64], float]:
    """The share of the needle that each head copies, (layers, heads), and that of attention anywhere
    alike."""
    length = len(prompt.row)
    needle = {prompt.row[column] for column in prompt.columns}
    count = len(prompt.columns)
    inputs = reader.batch([prompt.row]).inputs
    generate: Any = heads.model.generate
    with torch.no_grad(), heads.recorded("last", attention="last") as tape:
        rows = generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            max_new_tokens=count,
            min_new_tokens=count,
            do_sample=False,
            num_beams=1,
            pad_token_id=reader.pad,
        )
    copied: dict[tuple[int, int], set[int]] = defaultdict(set)
    chances: dict[int, float] = defaultdict(float)
    for step, token in enumerate(rows[0, length:].tolist()):
        matches = {column for column in prompt.columns if prompt.row[column] == token}
        if not matches:
            continue
        chances[token] = max(chances[token], len(matches) / (length + step))
        for site in heads.sites:
            maps = tape.steps(site.index)[step][0, :, 0]  # (heads, keys)
            hidden = length + step - maps.shape[-1]  # keys that a sliding window has let go
            for head, key in enumerate(maps.argmax(-1).tolist()):
                if key + hidden in matches:
                    copied[site.index, head].add(token)
    shares = np.zeros(heads.shape)
    for layer_and_head, tokens in copied.items():
        shares[layer_and_head] = len(tokens) / len(needle)
    return shares, sum(chances.values()) / len(needle)


def query_retrieval(heads: Heads, reader: Reader, settings: Roles) -> Measured:
    """Attention from the query's tokens to the document that answers it, mean over them, minus that of an
    empty query's tokens."""
    total, chance = np.zeros(heads.shape), 0.0
    prompts = document_prompts(reader, settings)
    for prompt in track(prompts, "asking for documents", quiet=settings.quiet):
        for sign, query in ((1, prompt.query), (-1, prompt.empty)):
            rows = list(range(len(query.row) - query.length, len(query.row)))
            with torch.no_grad(), heads.recorded("last", attention=rows) as tape:
                heads.model(**reader.batch([query.row]).inputs)
            for site in heads.sites:
                maps = tape.attention[site.index][0][..., list(prompt.columns)]  # (heads, queries, document)
                total[site.index, : site.n_heads] += sign * maps.double().sum(-1).mean(-1).cpu().numpy()
            chance += sign * float(np.mean([len(prompt.columns) / (row + 1) for row in rows]))
    values = np.where(heads.valid.numpy(), total / len(prompts), np.nan)
    return values, np.full(heads.shape[0], chance / len(prompts))


def why_no_prompts(reader: Reader, heads: Heads) -> str:
    """Why a model does not generate from a prompt, or nothing."""
    if reader.encoder_decoder or any(site.kind != "self" for site in heads.sites):
        return "its prompt is read by an encoder; the role is one of heads that read prompt and answer alike"
    if not reader.root.can_generate():
        return f"{type(reader.root).__name__} does not generate: open it with its language-model head"
    return ""
