"""Function vectors: heads that carry what a prompt's examples have in common (Todd et al. 2024)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise._base.progress import track
from headwise.behaviour._inputs import Reader
from headwise.behaviour._settings import Roles
from headwise.behaviour._sources import rows_of
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet, Pass, Tape

ROWS = 256  # patched rows of one pass, at most
TOKENS = 1 << 15  # and their tokens


@dataclass(frozen=True)
class Prompt:
    """Pairs and a question: with right answers, with the same answers shuffled among the pairs; and the
    answer."""

    right: str
    wrong: str
    answer: str


def prompts(pairs: Sequence[tuple[Any, ...]], shots: int, count: int, seed: int) -> list[Prompt]:
    """Prompts of `shots` pairs and a question, in the paper's form: "Q: input\\nA: answer\\n\\n"."""
    if len(pairs) < shots + 1:
        raise HeadwiseError(f"shots={shots} needs {shots + 1} pairs or more, and there are {len(pairs)}")
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(count):
        *numbers, last = rng.permutation(len(pairs))[: shots + 1]
        inputs, answers = (
            [str(pairs[number][0]) for number in numbers],
            [str(pairs[number][1]) for number in numbers],
        )
        shuffled = [answers[number] for number in rng.permutation(shots)]
        question, answer = map(str, pairs[last])
        drawn.append(Prompt(_prompt(inputs, answers, question), _prompt(inputs, shuffled, question), answer))
    return drawn


def _prompt(inputs: Sequence[str], answers: Sequence[str], question: str) -> str:
    shown = [f"Q: {text}\nA: {answer}\n\n" for text, answer in zip(inputs, answers, strict=True)]
    return f"{''.join(shown)}Q: {question}\nA:"


def function_vectors(heads: Heads, reader: Reader, settings: Roles) -> NDArray[np.float64]:
    """Change of p(answer), (layers, heads), when a head's output at the last token of a shuffled prompt
    becomes its mean over right ones.

    The answer is its first token. Every head of every prompt is a row of a batch of its own patch.
    """
    pairs = rows_of(settings.pairs, "pairs")
    reader.check([*map(str, chain.from_iterable(pairs))], "the pairs")
    drawn = prompts(pairs, settings.shots, settings.prompts, settings.seed)
    right = _rows(reader, [prompt.right for prompt in drawn])
    wrong = _rows(reader, [prompt.wrong for prompt in drawn])
    answers = [_first_token(reader, prompt.answer) for prompt in drawn]
    source = _tape(heads, _means(heads, reader, right, settings.batch_size))
    every_head = list(heads.all())
    changes = np.full((len(drawn), *heads.shape), np.nan)
    for number in track(range(len(drawn)), "patching heads", quiet=settings.quiet):
        row, answer = wrong[number], answers[number]
        with torch.no_grad():
            intact = _probabilities(heads.model(**reader.batch([row]).inputs).logits, len(row) - 1, answer)
        size = max(1, min(ROWS, TOKENS // len(row)))
        for start in range(0, len(every_head), size):
            batch = every_head[start : start + size]
            inputs = reader.batch([row] * len(batch)).inputs
            patches = [HeadSet([head]) for head in batch]
            with torch.no_grad(), heads.patched(patches, source, "last", rows=[0] * len(batch)):
                logits = heads.model(**inputs).logits
            patched = _probabilities(logits, len(row) - 1, answer)
            for head, change in zip(batch, (patched - intact).tolist(), strict=True):
                changes[(number, *head)] = change
    return changes.mean(0)


def _rows(reader: Reader, texts: Sequence[str]) -> list[list[int]]:
    """Texts as tokens, none of them cut, without the tokens that close a text: the answer follows."""
    rows = reader.text_rows(texts, 1 << 30)
    around = len(reader.before) + len(reader.after)
    uncut = reader.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    if any(len(row) != len(ids) + around for row, ids in zip(rows, uncut, strict=True)):
        raise HeadwiseError(
            f"a prompt is longer than the {reader.limit} tokens that the model reads: give fewer shots"
        )
    return [row[: len(row) - len(reader.after)] for row in rows]


def _first_token(reader: Reader, answer: str) -> int:
    """The token an answer begins with, after a space as in the prompt."""
    tokens = reader.tokenizer(f" {answer}", add_special_tokens=False)["input_ids"]
    if not tokens:
        raise HeadwiseError(f"the answer {answer!r} has no token")
    return int(tokens[0])


def _means(heads: Heads, reader: Reader, rows: Sequence[list[int]], size: int) -> Tensor:
    """Mean output of every head at the last token, (layers, heads, head_dim)."""
    total: Any = 0
    for start in range(0, len(rows), size):
        with torch.no_grad(), heads.recorded("last") as tape:
            heads.model(**reader.batch(list(rows[start : start + size])).inputs)
        total = total + tape.outputs.double().sum(0)
    mean: Tensor = total / len(rows)
    return mean


def _tape(heads: Heads, mean: Tensor) -> Tape:
    """Outputs as a recording of one token, from which `patched` takes them."""
    tape = Tape(heads.sites, "all")
    for site in heads.sites:
        tape._heads[site.index].append(mean[None, None, site.index, : site.n_heads, : site.head_dim].float())
        tape._passes[site.index].append(Pass(batch=1))
    return tape


def _probabilities(logits: Tensor, column: int, token: int) -> Tensor:
    """p of one token after a column, (batch,)."""
    return logits[:, column].double().softmax(-1)[:, token].cpu()
