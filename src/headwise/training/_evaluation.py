"""Evaluation: every example's own prediction, from which the metric is computed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from headwise.engine import track
from headwise.models._memory import LENGTH, length_of
from headwise.tasks import KINDS, Examples, Task, _metrics as metrics, batches, encode
from headwise.tasks._batches import BUSY
from headwise.tasks._chance import at_chance


@dataclass(frozen=True)
class Evaluation:
    """Predictions of one task on one split.

    Attributes:
        task: the task.
        split: its name.
        examples: what was asked.
        predictions: (examples,) class numbers or numbers, or (examples, counts).
        losses: (examples,) each example's loss; NaN where it has no label.
    """

    task: Task
    split: str
    examples: Examples
    predictions: NDArray[Any]
    losses: NDArray[np.float64]

    @property
    def score(self) -> float:
        """The task's metric, as a share (1 is perfect); NaN where the split has no labels."""
        return self.task.score(self.predictions, np.asarray(self.labels)) if self.examples.labelled else float("nan")

    @property
    def labels(self) -> NDArray[Any] | None:
        return None if isinstance(self.examples.labels, list) else self.examples.labels

    @property
    def chance(self) -> float:
        """The metric of the best guess that ignores the text, on the examples that were asked; NaN where they have no labels."""
        task = self.task
        return metrics.chance(task.metric, task.kind, self.examples.labels) if self.examples.labelled else float("nan")

    @property
    def at_chance(self) -> bool:
        """Whether nothing shows that the text was used: see `headwise.tasks._chance`."""
        if not self.examples.labelled:
            return False
        return at_chance(self.task.metric, self.task.kind, self.predictions, self.labels, self.chance)

    def table(self) -> pd.DataFrame:
        """One row per example: task, split, example, loss, and label and prediction, or the counts of the kind."""
        columns: dict[str, Any] = {"task": self.task.name, "split": self.split, "example": np.arange(len(self.examples))}
        if self.predictions.ndim == 1:
            columns |= {"label": self.labels, "prediction": self.predictions}
        else:
            columns |= {name: self.predictions[:, i] for i, name in enumerate(KINDS[self.task.kind].counts)}
        return pd.DataFrame({**columns, "loss": self.losses})


def examine(model: Any, tasks: Sequence[Task], split: str = "test", **reading: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Every metric of every task on a split, and what they were computed from.

    Args:
        model: a MultiTaskModel or a TaskModel.
        tasks: what it is asked.
        split: a labelled one.
        reading: batch_size, max_length, quiet: see `evaluate`.

    Returns:
        (task, metric, score 0–1, examples), and one row per task and example, see `Evaluation.table`.
    """
    found = [evaluate(model, task, split, **reading) for task in tasks]
    rows = [
        {"task": one.task.name, "metric": name, "score": score, "examples": len(one.examples)}
        for one in found
        for name, score in metrics.every(one.task.kind, one.predictions, one.labels).items()
    ]
    return pd.DataFrame(rows), pd.concat([one.table() for one in found], ignore_index=True)


def token_limit(model: Any, max_length: int) -> int:
    """`max_length`, or what the model and its tokenizer can read, if that is less."""
    positions = model.encoder.config.get_text_config().to_dict().get("max_position_embeddings") or max_length
    return int(min(max_length, positions, model.tokenizer.model_max_length))


def evaluate(
    model: Any,
    task: Task,
    split: str = "validation",
    *,
    decoder: str | None = None,
    batch_size: int | None = None,
    max_length: int | None = None,
    accelerator: Any = None,
    quiet: bool = False,
) -> Evaluation:
    """Asks a model every example of a split, in batches sorted by length.

    Args:
        model: a MultiTaskModel or a TaskModel; its mode is as before afterwards.
        task: the task.
        split: "validation", "test", ...
        decoder: the name of the trained task whose decoder answers; default: the task's own.
        batch_size: examples at a time; results do not depend on it. Default: 64, on an accelerator 256.
        max_length: tokens per text or pair; default: as the model was trained, else 256.
        accelerator: of a running training: its processes share the work, and its precision is used.
        quiet: show no progress.
    """
    examples = task.split(split)
    asked = decoder or task.name
    length = length_of(model, asked, max_length) or LENGTH
    encoded = encode(examples, model.tokenizer, token_limit(model, length))
    rank, world = (accelerator.process_index, accelerator.num_processes) if accelerator else (0, 1)
    columns = len(KINDS[task.kind].counts)
    exact = torch.float64 if model.device.type != "mps" else torch.float32
    found = torch.zeros(len(examples), max(columns, 1) + 1, dtype=exact, device=model.device)
    size = batch_size or (64 if model.device.type == "cpu" else 256)
    own = batches(encoded, size, enough=BUSY.get(model.device.type))[rank::world]
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            for batch in track(own, f"evaluating {task.name}", len(own), quiet=quiet or rank > 0):
                batch = batch.to(model.device)
                if accelerator is None:
                    output = model(decoder or task.name, batch)
                else:
                    with accelerator.autocast():
                        output = model(decoder or task.name, batch)
                rows = output.prediction.reshape(len(batch), -1)  # (batch, columns)
                found[batch.index] = torch.cat([rows.to(exact), output.loss.reshape(-1, 1).to(exact)], dim=1)
    finally:
        model.train(was_training)
    if world > 1:
        found = accelerator.reduce(found, "sum")  # every example was asked by one process; the others hold 0
    table = found.cpu().numpy()
    predictions = table[:, :-1] if columns else table[:, 0]
    if not (columns or KINDS[task.kind].numbers):
        predictions = predictions.astype(np.int64)
    return Evaluation(task, split, examples, predictions, table[:, -1].astype(np.float64))
