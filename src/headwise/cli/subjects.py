"""How a verb says what it judged tasks by, and whose text was generated."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwise.tasks import Task


def said(metrics: dict[str, str], lengths: dict[str, int]) -> str:
    """How tasks are read and judged, in one line: "metric: sst2 accuracy, mrpc F1; texts cut at 128 tokens"."""
    from headwise.tasks._metrics import label

    shown = {name: label(metric) for name, metric in metrics.items()}
    metric = ", ".join(f"{name} {metric}" for name, metric in shown.items())
    if len(set(shown.values())) == 1 and len(shown) > 1:
        metric = next(iter(shown.values()))
    cut = ", ".join(f"{name} {length}" for name, length in lengths.items())
    if len(set(lengths.values())) == 1:
        cut = str(next(iter(lengths.values())))
    return f"metric: {metric}; texts cut at {cut} tokens"


def judged_on(tasks: "Iterable[Task]") -> str:
    """The tasks judged on a tenth of train by `held_out`; empty where there is none."""
    names = ", ".join(task.name for task in tasks if task.holds_out)
    return f"judged on a tenth of train, not on the validation split (held_out): {names}" if names else ""


def made_up(tasks: Iterable[str]) -> str:
    """The tasks whose text was generated; empty where there is none."""
    names = ", ".join(tasks)
    return f"synthetic text: {names}" if names else ""
