"""Language models on the page: what they say next when heads are changed, and what a head attends to in a
long text."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, TypeGuard

import torch
from torch import Tensor

from headwise._base.names import shown
from headwise.app.values import check_text
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet
from headwise.models import MultiTaskModel, TaskModel, check_tokens, most_tokens, projecting_only
from headwise.steering import Steering

LONG_TEXT = 40_000  # characters
LONGEST = 8192  # tokens
SHOWN = 10  # next tokens listed
Inputs = Mapping[str, Tensor]


def continues(model: MultiTaskModel | TaskModel) -> TypeGuard[TaskModel]:
    """Whether a model continues a text, token by token."""
    return isinstance(model, TaskModel) and model.head == "causal-lm"


def prompt(model: TaskModel, text: Any, noun: str = "text") -> dict[str, Tensor]:
    """A text as the model reads it, whole, (1, tokens).

    Raises:
        HeadwiseError: it is empty, or longer than the model or the page can read.
    """
    checked = check_text(text, longest=LONG_TEXT, exact=True, noun=noun)
    inputs = model.tokenizer(checked, return_tensors="pt")
    length, most = inputs["input_ids"].shape[1], min(LONGEST, most_tokens(model.encoder) or LONGEST)
    if not 1 <= length <= most:
        raise HeadwiseError(f"the {noun} has {length} tokens; from 1 to {most} are allowed")
    check_tokens(model.encoder, model.tokenizer, inputs["input_ids"].flatten(), f"the {noun}")
    return {
        name: inputs[name].to(model.device) for name in model.tokenizer.model_input_names if name in inputs
    }


def pieces(model: TaskModel, text: str, inputs: Inputs) -> list[str]:
    """The text cut into its tokens; tokens that the tokenizer adds have their own names."""
    names: list[str] = model.tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())
    if not model.tokenizer.is_fast:
        return names
    offsets = model.tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    end = 0
    for number, (first, last) in enumerate(offsets):
        if last > first:
            names[number] = text[min(first, end) : last]
        end = max(end, last)
    return names


def next_logits(model: TaskModel, inputs: Inputs) -> Tensor:
    """What the model says after the last token, (vocabulary,); no other position's logits are computed where
    the model allows it."""
    last = torch.zeros_like(inputs["input_ids"], dtype=torch.bool)
    last[:, -1] = True
    with projecting_only(model.encoder, last) if model._selects else nullcontext():
        logits: Tensor = model.encoder(**inputs, **model._no_cache).logits  # (1, 1 or tokens, vocabulary)
    return logits[0, -1].float()


def patching(
    model: TaskModel, heads: Heads, head_set: HeadSet, patch: Mapping[str, Any], length: int
) -> tuple[Inputs, Any]:
    """The source of a patch as the model reads it, and the block inside which heads put out what they do
    there.

    Args:
        model, heads: the model and its heads.
        head_set: which of them.
        patch: from the page: the text "source", and at which "tokens", "all" or "last".
        length: of the text that is patched, in tokens.
    """
    tokens = patch.get("tokens", "all")
    if tokens not in ("all", "last"):
        raise HeadwiseError(f'tokens is {shown(tokens)}; a patch reaches "all" tokens or the "last"')
    if not head_set:
        raise HeadwiseError("choose heads to patch first")
    source = prompt(model, patch.get("source"), "source of the patch")
    source_length = source["input_ids"].shape[1]
    if tokens == "all" and source_length != length:
        raise HeadwiseError(
            f"the text has {length} tokens and the source of the patch {source_length}: make them equally "
            "long, or patch the last token only"
        )
    return source, heads.patched(head_set, source, tokens)


def continuations(
    model: TaskModel, inputs: Inputs, blocks: list[AbstractContextManager[Any]], source: Inputs | None = None
) -> dict[str, Any]:
    """The likeliest next tokens with their probabilities: intact, changed (inside the blocks), and after the
    source of a patch."""
    rows = {"intact": next_logits(model, inputs)}
    if source is not None:
        rows["source"] = next_logits(model, source)
    with ExitStack() as changed:
        for block in blocks:
            changed.enter_context(block)
        rows["gated"] = next_logits(model, inputs)
    return likeliest(model, rows)


def likeliest(model: MultiTaskModel | TaskModel, rows: Mapping[str, Tensor]) -> dict[str, Any]:
    """Ten tokens that are likeliest in the intact row, and the three of each other row, with every row's
    probabilities.

    Args:
        model: has the tokenizer.
        rows: logits (vocabulary,) by name; "intact" is one of them.
    """
    p = {name: logits.softmax(-1).cpu() for name, logits in rows.items()}
    likely: set[int] = set()
    for name, row in p.items():
        count = SHOWN if name == "intact" else 3
        likely.update(row.topk(min(count, len(row))).indices.tolist())
    tokens = sorted(likely, key=lambda token: -float(p["intact"][token]))
    probabilities = {name: row[tokens].tolist() for name, row in p.items()}
    return {"tokens": [model.tokenizer.decode([token]) for token in tokens], **probabilities}


def row_of(model: TaskModel, heads: Heads, inputs: Inputs, layer: int, head: int, query: int) -> list[float]:
    """How a head's attention from one token is spread over all; the model keeps its own attention, and no map
    is made."""
    with heads.recorded("last", attention=[query]) as tape:
        next_logits(model, inputs)
    return [round(weight, 6) for weight in tape.attention[layer][0, head, 0].float().cpu().tolist()]


def check_steering(steering: Any, model: MultiTaskModel | TaskModel, heads: Heads) -> Steering:
    """What `headwise steer` saved, if it fits the model.

    Raises:
        HeadwiseError: it is something else, or belongs to another model.
    """
    if not isinstance(steering, Steering):
        raise HeadwiseError(f"steer holds a {type(steering).__name__}, not a result of `headwise steer`")
    if not continues(model):
        raise HeadwiseError("steering is for left-to-right language models, and this model is not one")
    with steering.applied(heads, 1.0), torch.inference_mode():  # says now if it does not fit
        model.encoder(**heads.example)
    return steering
