"""What decides a result that is computed from a model and tasks: known before the model is opened, and
without torch."""

from collections.abc import Sequence
from typing import Any

from headwise._passes.settings import Reading
from headwise.models import renumbered
from headwise.store import Decision, decision
from headwise.tasks import Task


def decision_of(
    operation: str, model: Any, tasks: Sequence[Task], settings: Reading, *splits: str, **facts: Any
) -> Decision:
    """What decides a result that an operation computes from a model and tasks.

    Args:
        operation: its name.
        model: as the user gives it; what it remembers of its tasks is part of its content.
        tasks: what it is asked.
        settings: of the operation.
        splits: which are read.
        facts: further ones.
    """
    facts = {
        **settings.decides(),
        "silenced": sorted(settings.silenced or ()),
        # else the metric that the model remembers holds
        "metric given for": [task.name for task in tasks if task.metric_given],
        **facts,
    }
    if outputs := renumbered(model, tasks):
        facts["outputs of the model for classes"] = outputs
    return decision(operation, facts, model=model, tokenizer=settings.tokenizer, tasks=tasks, splits=splits)
