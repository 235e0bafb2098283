"""How a verb says what it judged tasks by, and whose text was generated."""

from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

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


def intact(facts: Mapping[Hashable, Any], tasks: Iterable[str]) -> str:
    """How good the intact model is on what was scored, by the attributes of scores: "intact model: sst2 91.2 %, mrpc 68.4 % (at chance)";
    empty for scores that do not say it."""
    from headwise.tasks._metrics import METRICS

    shown = []
    for name in (name for name in tasks if name in facts.get("performance", {})):
        values, metric = facts["performance"][name], facts["metrics"][name]
        value = f"{100 * values[metric]:.1f} %" if METRICS[metric].share else f"{values[metric]:.4g}"
        shown.append(f"{name} {value}{' (at chance)' if name in facts.get('at_chance', {}) else ''}")
    return f"intact model: {', '.join(shown)}" if shown else ""


def judged_on(tasks: "Iterable[Task]") -> str:
    """The tasks judged on a tenth of train by `held_out`; empty where there is none."""
    names = ", ".join(task.name for task in tasks if task.holds_out)
    return f"judged on a tenth of train, not on the validation split (held_out): {names}" if names else ""


def made_up(tasks: Iterable[str]) -> str:
    """The tasks whose text was generated; empty where there is none."""
    names = ", ".join(tasks)
    return f"synthetic text: {names}" if names else ""
