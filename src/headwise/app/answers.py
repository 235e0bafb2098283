"""A text as the model reads it, and a task's answer to it as JSON."""

from typing import Any

import torch
from torch import Tensor

from headwise.app.language import likeliest
from headwise.models import MultiTaskModel, SavedTask, TaskModel, check_tokens, length_within
from headwise.tasks import KINDS, Batch

MAX_TOKENS = 256


def read(model: MultiTaskModel | TaskModel, text: str, second: str, rows: int = 2) -> Batch:
    """A text, or two, in several equal rows, cut after 256 tokens or where the model's positions end; unlabelled.

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
    words = _words(inputs, rows) if tokenizer.is_fast else torch.full_like(inputs["input_ids"], -1)
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
    known: dict[str, Any] = {"task": task.name, "kind": task.kind}
    kind = KINDS[task.kind]
    if kind.one_answer and kind.numbers:
        return {**known, "intact": float(logits[0]), "gated": float(logits[1])}
    if kind.one_class:
        intact, gated = logits.softmax(-1).cpu().tolist()
        return {**known, "classes": list(task.classes), "intact": intact, "gated": gated}
    if kind.tags_words:
        ids = batch.inputs["input_ids"][0].tolist()
        assert batch.words is not None
        places = batch.words[0].tolist()
        firsts = [places.index(word) for word in range(max(places) + 1) if word in places]
        pieces = model.tokenizer.convert_ids_to_tokens(ids)
        names = [
            "".join(p.removeprefix("##") for p, w in zip(pieces, places, strict=True) if w == word)
            for word in range(len(firsts))
        ]
        rows = logits[:, firsts] if isinstance(model, TaskModel) else logits[:, : len(firsts)]
        intact, gated = (row.argmax(-1).tolist() for row in rows)
        tags = [
            [word, task.classes[a], task.classes[b]] for word, a, b in zip(names, intact, gated, strict=True)
        ]
        return {**known, "tags": tags}
    found = (batch.inputs["input_ids"][0] == model.tokenizer.mask_token_id).nonzero()
    if not len(found):
        return {**known, "note": f"write {model.tokenizer.mask_token} where the model should guess a word"}
    at = int(found[0])
    return {**known, **likeliest(model, {"intact": logits[0, at], "gated": logits[1, at]})}


def _words(inputs: Any, rows: int) -> Tensor:
    """(rows, tokens) word numbers by the tokenizer's own pre-tokenisation, -1 at special tokens."""
    return torch.tensor(
        [[-1 if word is None else word for word in inputs.word_ids(row)] for row in range(rows)]
    )
