"""Function vectors: heads that carry what a prompt's examples have in common (Todd et al. 2024)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise._base.progress import track
from headwise.behaviour._given import TABLES, given_rows
from headwise.behaviour._inputs import Reader
from headwise.behaviour._settings import Roles
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet, Pass, Tape

ROWS = 256  # patched rows of one pass, at most
TOKENS = 1 << 15  # and their tokens


def prompts(
    pairs: Sequence[tuple[Any, ...]], shots: int, count: int, seed: int
) -> list[tuple[str, str, str]]:
    """Prompts of `shots` pairs and a question: with right answers, with the same answers shuffled among the pairs; and the answer.

    The form is the paper's: "Q: input\\nA: answer\\n\\n".
    """
    if len(pairs) < shots + 1:
        raise HeadwiseError(f"shots={shots} needs {shots + 1} pairs or more, and there are {len(pairs)}")
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        drawn = [pairs[i] for i in rng.permutation(len(pairs))[: shots + 1]]
        *shown, (question, answer) = [(str(a), str(b)) for a, b in drawn]
        mixed = rng.permutation(len(shown))
        right = "".join(f"Q: {a}\nA: {b}\n\n" for a, b in shown)
        wrong = "".join(
            f"Q: {a}\nA: {shown[other][1]}\n\n" for (a, _), other in zip(shown, mixed, strict=True)
        )
        found.append((f"{right}Q: {question}\nA:", f"{wrong}Q: {question}\nA:", answer))
    return found


def function_vectors(heads: Heads, reader: Reader, settings: Roles) -> NDArray[np.float64]:
    """Change of p(answer), (layers, heads): a head's output at the last token of a shuffled prompt becomes its mean over right ones.

    The answer is its first token. Every head of every prompt is a row of a batch of its own patch.
    """
    pairs = given_rows(settings.pairs, TABLES["pairs"], "pairs")
    reader.check([str(side) for pair in pairs for side in pair], "the pairs")
    asked = prompts(pairs, settings.shots, settings.prompts, settings.seed)
    right, wrong = (_tokens(reader, [one[side] for one in asked]) for side in (0, 1))
    answers = [_first_token(reader, answer) for *_, answer in asked]
    mean = _means(heads, reader, right, settings.batch_size)
    source = _tape(heads, mean)
    every = list(heads.all())
    changes = np.full((len(asked), *heads.shape), np.nan)
    for number in track(range(len(asked)), "patching heads", quiet=settings.quiet):
        row, answer = wrong[number], answers[number]
        with torch.no_grad():
            intact = _probability(
                heads.model(**reader.batch([row]).inputs).logits, torch.tensor([len(row) - 1]), answer
            )
        size = max(1, min(ROWS, TOKENS // len(row)))
        for start in range(0, len(every), size):
            chosen = every[start : start + size]
            inputs = reader.batch([row] * len(chosen)).inputs
            with (
                torch.no_grad(),
                heads.patched([HeadSet([head]) for head in chosen], source, "last", rows=[0] * len(chosen)),
            ):
                logits = heads.model(**inputs).logits
            patched = _probability(logits, torch.full((len(chosen),), len(row) - 1), answer)
            for head, value in zip(chosen, (patched - intact).tolist(), strict=True):
                changes[(number, *head)] = value
    return changes.mean(0)


def _tokens(reader: Reader, texts: Sequence[str]) -> list[list[int]]:
    rows = reader.texts(texts, 1 << 30)
    whole = [len(row) for row in reader.tokenizer(list(texts), add_special_tokens=False)["input_ids"]]
    around = len(reader.before) + len(reader.after)
    if any(len(row) != length + around for row, length in zip(rows, whole, strict=True)):
        raise HeadwiseError(
            f"a prompt is longer than the {reader.limit} tokens that the model reads: give fewer shots"
        )
    return [
        row[: len(row) - len(reader.after)] for row in rows
    ]  # the answer follows, so nothing closes the text


def _first_token(reader: Reader, answer: str) -> int:
    """The token an answer begins with, after a space as in the prompt."""
    found = reader.tokenizer(f" {answer}", add_special_tokens=False)["input_ids"]
    if not found:
        raise HeadwiseError(f"the answer {answer!r} has no token")
    return int(found[0])


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


def _probability(logits: Tensor, at: Tensor, token: int) -> Tensor:
    """p of one token after the column `at` of each row, (batch,)."""
    rows = logits[torch.arange(len(logits), device=logits.device), at.to(logits.device)]
    return rows.double().softmax(-1)[:, token].cpu()
