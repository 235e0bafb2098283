"""A text as the model reads it, and a task's answer to it as JSON."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from headwise.app.language import likeliest
from headwise.models import MultiTaskModel, SavedTask, TaskModel, check_tokens, length_within
from headwise.tasks import KINDS, Batch

MAX_TOKENS = 256


def read(model: MultiTaskModel | TaskModel, text: str, second: str, rows: int = 2) -> Batch:
    """A text, or two, in several equal rows, cut after 256 tokens or where the model's positions end;
    unlabelled.

    Raises:
        HeadwiseError: the tokenizer does not fit the model, or knows next to nothing of the text.
    """
    tokenizer = model.tokenizer
    pair = [second] * rows if second else None
    options: dict[str, Any] = {
        "truncation": True,
        "max_length": length_within(MAX_TOKENS, model.encoder),
        "return_tensors": "pt",
    }
    inputs = tokenizer([text] * rows, pair, **options)
    check_tokens(model.encoder, tokenizer, inputs["input_ids"][0], "the text")
    words = torch.full_like(inputs["input_ids"], -1)
    if tokenizer.is_fast:
        words = _words(inputs, rows)
    count = max(1, int(words.max()) + 1)
    batch = Batch(
        inputs={name: inputs[name] for name in tokenizer.model_input_names if name in inputs},
        labels=torch.full((rows, count), -100),
        index=torch.arange(rows),
        owner=torch.arange(rows),
        kind="classes",
        words=words,
        context_words=words,
        n_words=torch.full((rows,), count),
    )
    return batch.to(model.device)


def answer(
    model: MultiTaskModel | TaskModel, task: SavedTask, logits: Tensor, batch: Batch
) -> dict[str, Any]:
    """One task's answer as JSON: rows 0 (intact) and 1 (gated) of the logits."""
    header: dict[str, Any] = {"task": task.name, "kind": task.kind}
    kind = KINDS[task.kind]
    if kind.one_answer and kind.numbers:
        return {**header, "intact": float(logits[0]), "gated": float(logits[1])}
    if kind.one_class:
        intact, gated = logits.softmax(-1).cpu().tolist()
        return {**header, "classes": list(task.classes), "intact": intact, "gated": gated}
    if kind.tags_words:
        return {**header, "tags": _tags(model, task, logits, batch)}
    masks = (batch.inputs["input_ids"][0] == model.tokenizer.mask_token_id).nonzero()
    if not len(masks):
        return {**header, "note": f"write {model.tokenizer.mask_token} where the model should guess a word"}
    position = int(masks[0])
    return {**header, **likeliest(model, {"intact": logits[0, position], "gated": logits[1, position]})}


def _tags(
    model: MultiTaskModel | TaskModel, task: SavedTask, logits: Tensor, batch: Batch
) -> list[list[str]]:
    """Each word with its tag by the intact and by the gated model."""
    assert batch.words is not None
    numbers = batch.words[0].tolist()  # of each token, the word that it belongs to
    firsts: dict[int, int] = {}  # of each word, its first token
    words: dict[int, str] = {}
    tokens = model.tokenizer.convert_ids_to_tokens(batch.inputs["input_ids"][0].tolist())
    for position, (word, token) in enumerate(zip(numbers, tokens, strict=True)):
        if word >= 0:
            firsts.setdefault(word, position)
            words[word] = words.get(word, "") + token.removeprefix("##")
    if isinstance(model, TaskModel):  # its logits are of tokens, those of a multi-task model of words
        logits = logits[:, list(firsts.values())]
    intact, gated = logits[:, : len(words)].argmax(-1).tolist()
    return [
        [word, task.classes[before], task.classes[after]]
        for word, before, after in zip(words.values(), intact, gated, strict=True)
    ]


def _words(inputs: Any, rows: int) -> Tensor:
    """(rows, tokens) word numbers by the tokenizer's own pre-tokenisation, -1 at special tokens."""
    words = [inputs.word_ids(row) for row in range(rows)]
    return torch.from_numpy(np.array(words, dtype=float)).nan_to_num(-1).long()
