"""Passes of last tokens alone: the tokens before them are read once, into a cache.

In a causal model nothing that happens at the last token of a prompt reaches an earlier one. So what a patch
there changes, and how steeply, is found in the last token's own pass, and the gradient needs no backward pass
through the others.
"""

from contextlib import nullcontext
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from headwise._passes.subject import TaskSubject, computing
from headwise.models import projecting_only
from headwise.tasks import Batch

# Tokens of all prompts from which on it pays: single tokens read every weight for little arithmetic, and the
# check reads one prompt more.
WORTH = 1024


class LastTokens:
    """The last token of every prompt of a batch, ready to be read behind what comes before it.

    Args:
        subject: the model; `can_continue` says whether it has a cache.
        side: prompts, one row an example, of at least two tokens each.
    """

    def __init__(self, subject: TaskSubject, side: Batch) -> None:
        self.subject, self.side = subject, side
        inputs = _padded_on_the_left(side.inputs)
        mask = inputs["attention_mask"]
        if not bool(mask.all()):
            inputs["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
        before = {name: value[:, :-1] for name, value in inputs.items()}
        with (
            torch.no_grad(),
            projecting_only(subject.model.encoder, torch.zeros_like(before["input_ids"], dtype=torch.bool)),
        ):
            self.cache = self._run(before, use_cache=True).past_key_values
        self.inputs = {
            name: value if name == "attention_mask" else value[:, -1:] for name, value in inputs.items()
        }

    def differences(self) -> Tensor:
        """Logit of the right answer minus that of the other one after each prompt, (rows,); once, since the
        cache grows."""
        logits = self._run(self.inputs, use_cache=True, past_key_values=self.cache).logits[:, -1]
        pair = logits.float().gather(1, self.side.labels[self.side.owner].to(logits.device))  # (rows, 2)
        return pair[:, 0] - pair[:, 1]

    def _run(self, inputs: dict[str, Tensor], **options: Any) -> Any:
        subject = self.subject
        with (
            subject.model.contexts.get(subject.task.name, nullcontext)(),
            computing(subject.precision, subject.device),
        ):
            return subject.model.encoder(**inputs, **options)


def _padded_on_the_left(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Inputs (rows, tokens) with all padding moved to the left, so that the last tokens stand in one
    column."""
    mask = inputs["attention_mask"].bool()
    columns = mask.shape[1]
    behind = mask.int().flip(1).argmax(1)  # padding behind the last real token, (rows,)
    sources = (torch.arange(columns, device=mask.device) - behind[:, None]) % columns
    return {name: value.gather(1, sources.to(value.device)) for name, value in inputs.items()}


def can_continue(subject: TaskSubject, side: Batch, differences: Tensor) -> bool:
    """Whether last tokens can and should be read by themselves: checked on one prompt, whose difference a
    whole pass gave.

    Not on an accelerator, where small passes cost their launches.

    Args:
        subject: the model.
        side: prompts.
        differences: of whole passes over them, (rows,).
    """
    encoder: Any = subject.model.encoder
    lengths = side.inputs["attention_mask"].sum(1)
    if subject.device.type != "cpu" or int(subject.encoded.row_lengths.sum()) < WORTH:
        return False
    if not {"use_cache", "past_key_values", "position_ids"} <= set(signature(encoder.forward).parameters):
        return False
    if encoder.get_output_embeddings() is None or not long_enough(side):
        return False
    longest = int(lengths.argmax())
    row = slice(longest, longest + 1)
    inputs = {name: value[row] for name, value in side.inputs.items()}
    prompt = Batch(inputs, side.labels, side.index, side.owner[row], side.kind)
    try:
        with torch.no_grad():
            difference = LastTokens(subject, prompt).differences()
    except (AttributeError, IndexError, NotImplementedError, RuntimeError, TypeError, ValueError):
        # the model keeps something else than a cache of keys and values, or wants to be asked for it in
        # another way
        return False
    return torch.allclose(difference.float(), differences[row].float(), rtol=1e-3, atol=1e-4)


def long_enough(side: Batch) -> bool:
    """Whether something comes before every last token."""
    return int(side.inputs["attention_mask"].sum(1).min()) > 1
