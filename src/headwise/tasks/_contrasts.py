"""Contrasts as tokens: a clean and a corrupted prompt, and the tokens that tell two answers apart."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise._base.names import shown
from headwise.errors import HeadwiseError
from headwise.tasks._examples import Examples


def contrast_rows(examples: Examples, tokenizer: Any, limit: int | None) -> dict[str, NDArray[Any]]:
    """Two rows per example, clean and corrupted, and the first token of each answer as it follows the clean prompt.

    Special tokens that the tokenizer puts behind a text are left out: the answer follows.

    Raises:
        HeadwiseError: a prompt is too long, or both answers begin with the same token.
    """
    rows, answers = [], np.empty((len(examples), 2), dtype=np.int64)
    for number, (clean, corrupted, *both) in enumerate(examples.texts):
        for prompt in (clean, corrupted):
            row = _opened(tokenizer, prompt)
            if limit is not None and len(row) > limit:
                raise HeadwiseError(
                    f"the prompt {shown(prompt)} has {len(row)} tokens, more than max_length={limit}: nothing may be cut"
                )
            rows.append(row)
        for place, answer in enumerate(both):
            answers[number, place] = _first(tokenizer, clean, answer)
        if answers[number, 0] == answers[number, 1]:
            raise HeadwiseError(
                f"the answers {shown(both[0])} and {shown(both[1])} after {shown(clean)} begin with the same token, so their logits do not "
                "differ: choose others"
            )
    lengths = np.array([0, *map(len, rows)], dtype=np.int64)
    return {
        "ids": np.array([token for row in rows for token in row], dtype=np.int32),
        "starts": np.cumsum(lengths),
        "rows": np.arange(len(examples) + 1, dtype=np.int64) * 2,
        "answers": answers,
    }


def _opened(tokenizer: Any, text: str) -> list[int]:
    """A text's tokens without special ones behind it."""
    out = tokenizer(text, return_special_tokens_mask=True, verbose=False)
    ids, special = list(out["input_ids"]), list(out["special_tokens_mask"])
    while special and special[-1]:
        ids.pop()
        special.pop()
    return ids


def _first(tokenizer: Any, prompt: str, answer: str) -> int:
    """The token after the prompt if the answer follows it, with a space between unless there is one."""
    joined = prompt + (answer if prompt[-1:].isspace() or answer[:1].isspace() else f" {answer}")
    before, after = _opened(tokenizer, prompt), _opened(tokenizer, joined)
    if len(after) <= len(before):
        raise HeadwiseError(f"the answer {shown(answer)} adds no token to {shown(prompt)}")
    same = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before))
    if same < len(before):
        raise HeadwiseError(
            f"the answer {shown(answer)} changes how the end of {shown(prompt)} is split into tokens: move the end of the prompt"
        )
    return after[len(before)]
