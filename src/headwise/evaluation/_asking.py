"""Asking a model every example: its predictions and losses, in the order of the examples."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headwise._base.progress import track
from headwise._passes.subject import computing
from headwise.heads import twinned
from headwise.models import check_answers
from headwise.tasks import BUSY_TOKENS, KINDS, Encoded, batches


def answers(
    model: Any,
    name: str,
    encoded: Encoded,
    *,
    batch_size: int | None = None,
    precision: str | None = None,
    accelerator: Any = None,
    description: str = "",
    quiet: bool = False,
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """What a model answers to examples, in batches sorted by length; the model itself stays as it is.

    Args:
        model: a MultiTaskModel or a TaskModel.
        name: of the task that is asked.
        encoded: the examples.
        batch_size: examples at a time; results do not depend on it. Default: 64, on an accelerator 256.
        precision: of the passes, see `computing`; None: as it is.
        accelerator: of a running training: its processes share the work, and its precision is used.
        description: for the progress bar.
        quiet: show no progress.

    Returns:
        predictions, (examples,) or (examples, counts); losses, (examples,).

    Raises:
        HeadwiseError: the model's outputs are NaN or infinite.
    """
    kind = KINDS[encoded.examples.kind]
    rank, world = 0, 1
    if accelerator:
        rank, world = accelerator.process_index, accelerator.num_processes
    exact = torch.float32 if model.device.type == "mps" else torch.float64
    table = torch.zeros(len(encoded), max(len(kind.counts), 1) + 1, dtype=exact, device=model.device)
    size = batch_size or (64 if model.device.type == "cpu" else 256)
    plan = batches(encoded, size, enough=BUSY_TOKENS.get(model.device.type))[rank::world]

    def passing() -> AbstractContextManager[Any]:
        if accelerator is not None:
            return accelerator.autocast()
        if precision is None:
            return nullcontext()
        return computing(precision, model.device)

    with twinned(model) as (twin,), torch.inference_mode():
        for batch in track(plan, description, len(plan), quiet=quiet or rank > 0):
            batch = batch.to(model.device)
            with passing():
                output = twin(name, batch)
            rows = output.prediction.reshape(len(batch), -1)  # (batch, columns)
            table[batch.index] = torch.cat([rows.to(exact), output.loss.reshape(-1, 1).to(exact)], dim=1)
    if world > 1:
        table = accelerator.reduce(table, "sum")  # every example was asked by one process; the others hold 0
    values = table.cpu().numpy()
    predictions = values[:, :-1] if kind.counts else values[:, 0]
    if not (kind.counts or kind.numbers):
        predictions = predictions.astype(np.int64)
    losses = values[:, -1].astype(np.float64)
    check_answers(name, predictions, losses, encoded.examples.labelled)
    return predictions, losses
