"""Evaluation of a model that is, or was, trained: every example's own prediction, from which the metric is
computed."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from headwise.evaluation import Evaluation, answers
from headwise.models import DEFAULT_LENGTH, check_weights, length_of, length_within, read_examples
from headwise.tasks import Task


def examine(
    model: Any, tasks: Sequence[Task], split: str = "test", **reading: Any
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Every metric of every task on a split, and what they were computed from.

    Args:
        model: a MultiTaskModel or a TaskModel.
        tasks: what it is asked.
        split: a labelled one.
        reading: batch_size, max_length, quiet: see `evaluate`.

    Returns:
        (task, metric, score 0–1, examples, at_chance: of the task, see `Evaluation.at_chance`), and one row
        per task and example, see `Evaluation.table`.
    """
    evaluations = [evaluate(model, task, split, **reading) for task in tasks]
    rows = []
    for evaluation in evaluations:
        size, at_chance = len(evaluation), evaluation.at_chance
        for metric, score in evaluation.metrics.items():
            row = {"task": evaluation.task.name, "metric": metric, "score": score}
            rows.append(row | {"examples": size, "at_chance": at_chance})
    return pd.DataFrame(rows), pd.concat(
        [evaluation.table() for evaluation in evaluations], ignore_index=True
    )


def token_limit(model: Any, max_length: int) -> int:
    """`max_length`, or what the model and its tokenizer can read, if that is less."""
    return int(min(length_within(max_length, model.encoder), model.tokenizer.model_max_length))


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
        model: a MultiTaskModel or a TaskModel; it is read in evaluation mode and stays in its own.
        task: the task.
        split: "validation", "test", ...
        decoder: the name of the trained task whose decoder answers; default: the task's own.
        batch_size: examples at a time; results do not depend on it. Default: 64, on an accelerator 256.
        max_length: tokens per text or pair; default: as the model was trained, else 256.
        accelerator: of a running training: its processes share the work, and its precision is used.
        quiet: show no progress.

    Raises:
        HeadwiseError: weights of the model are NaN, or its outputs NaN or infinite.
    """
    decoder_name = decoder or task.name
    examples, length = task.split(split), length_of(model, decoder_name, max_length) or DEFAULT_LENGTH
    encoded = read_examples(model.encoder, model.tokenizer, examples, token_limit(model, length))
    options: Any = {"batch_size": batch_size, "accelerator": accelerator, "quiet": quiet}
    check_weights(model)
    task_answers = answers(model, decoder_name, encoded, description=f"evaluating {task.name}", **options)
    return Evaluation.from_answers(task, examples, task_answers, split)
