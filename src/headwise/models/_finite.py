"""What is no number: losses, weights and answers that are NaN or infinite, as trainings that diverge and half
precision leave them.

A class can be read off NaN as well (the first one), so a model without a single number answers like any
other. Each is refused where it is read, on the host: nothing here waits for a device inside a pass.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from headwise.errors import HeadwiseError

UNANSWERED = -1  # the class of a text whose logits are no numbers
PLAIN = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
REMEDY = "lower the learning rate, clip gradients (clip=1.0) or let the rate rise for longer (warmup=0.1)"


def check_losses(
    losses: ArrayLike, step_in_words: Callable[[int], str], endured: int = 1, remedy: str = REMEDY
) -> None:
    """Refuses losses that are NaN or infinite.

    Args:
        losses: (steps,), in order.
        step_in_words: names a step (its number, task and learning rate), for the error.
        endured: this many of them in a row are one too many.
        remedy: what helps.

    Raises:
        HeadwiseError: names the first step of the row.
    """
    values = np.asarray(losses, dtype=np.float64)
    row, last = 0, -2
    for step in np.flatnonzero(~np.isfinite(values)).tolist():
        if step != last + 1:
            row = 0
        row, last = row + 1, step
        if row >= endured:
            first = step - row + 1
            several = f", as are the {row - 1} after it" if row > 1 else ""
            raise HeadwiseError(
                f"the training has diverged: the loss of {step_in_words(first)} is {values[first]}{several}; "
                f"{remedy}"
            )


def nan_weight(model: nn.Module) -> str:
    """The name of the first weight that holds NaN; empty if none does. Quantized and sharded weights are not
    looked at."""
    for name, tensor in chain(model.named_parameters(), model.named_buffers()):
        if type(tensor) not in (nn.Parameter, torch.Tensor):
            continue
        if tensor.dtype not in PLAIN or tensor.device.type == "meta":
            continue
        # a sum is quick, and finite only if there is no NaN; it may also overflow, so then each value is
        # looked at
        if not bool(tensor.detach().sum(dtype=torch.float32).isfinite()) and bool(tensor.isnan().any()):
            return name
    return ""


def check_weights(model: nn.Module) -> None:
    """Raises a HeadwiseError if a weight of a model holds NaN."""
    if name := nan_weight(model):
        raise HeadwiseError(
            f"{name} of this {type(model).__name__} holds NaN, as trainings leave weights that have "
            "diverged: whatever were computed from it would mean nothing; open an earlier checkpoint, or "
            "train again with a lower learning rate"
        )


def check_answers(
    task: str, predictions: NDArray[Any], losses: NDArray[np.floating[Any]], labelled: bool = True
) -> None:
    """Refuses answers of a model whose outputs are no numbers.

    Args:
        task: its name.
        predictions: (..., examples) or (..., examples, columns), by the shape of the losses.
        losses: (..., examples).
        labelled: whether the examples have labels; else their losses are NaN.

    Raises:
        HeadwiseError: says of how many examples.
    """
    if predictions.dtype.kind == "f":
        wrong = np.isnan(predictions)
    else:
        wrong = predictions == UNANSWERED
    wrong = wrong.reshape(*losses.shape, -1).any(-1)  # (..., examples)
    if labelled:
        wrong = wrong | np.isnan(losses)
    wrong = wrong.reshape(-1, losses.shape[-1]).any(0)  # (examples,)
    if wrong.any():
        raise no_answers(task, str(int(wrong.sum())), len(wrong), f", first for number {int(wrong.argmax())}")


def no_answers(task: str, count: str, examples: int, first: str = "") -> HeadwiseError:
    """What is said of a model whose outputs are no numbers."""
    return HeadwiseError(
        f"task {task!r}: the model's outputs are NaN or infinite for {count} of {examples} examples{first}, "
        "and its answers would mean nothing. If it computes in half precision, its activations may overflow: "
        "use dtype='float32' or 'bfloat16'; otherwise its training has diverged, and it must be trained again"
    )


def check_scores(
    values: NDArray[np.floating[Any]], scored: NDArray[np.bool_], method: str, task: str
) -> None:
    """Refuses scores that are no numbers of heads that have one.

    Args:
        values: (layers, heads).
        scored: (layers, heads), the heads that have a score.
        method, task: for the error.

    Raises:
        HeadwiseError: names the first head.
    """
    wrong = scored & ~np.isfinite(values)
    if wrong.any():
        layer, head = np.argwhere(wrong)[0].tolist()
        raise HeadwiseError(
            f"method {method!r} gives {values[layer, head]} for {int(wrong.sum())} of {int(scored.sum())} "
            f"heads on task {task!r}, first for head {layer}.{head}: the model's losses or their gradients "
            "are NaN or infinite. If it computes in half precision, use dtype='float32' or 'bfloat16'; "
            "otherwise its training has diverged, and it must be trained again"
        )


def rates_in_words(rates: Sequence[tuple[str, float]]) -> str:
    """Learning rates in words: one number where all are equal."""
    if len({rate for _, rate in rates}) == 1:
        return f"learning rate {rates[0][1]:.3g}"
    return f"learning rates {', '.join(f'{name} {rate:.3g}' for name, rate in rates)}"
