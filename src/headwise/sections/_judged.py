"""How tasks were read and judged, and how good the intact model is: sentences for the methods of a result."""

from collections.abc import Hashable, Iterable, Mapping
from typing import Any


def judged_by(metrics: Mapping[str, str], lengths: Mapping[str, int]) -> str:
    """By which metrics tasks were judged, and where their texts were cut: "Metric: sst2 accuracy, mrpc F1; texts cut at 128 tokens."."""
    from headwise.tasks import metric_label

    labels = {task: metric_label(metric) for task, metric in metrics.items()}
    if len(labels) > 1 and len(set(labels.values())) == 1:
        metric = next(iter(labels.values()))
    else:
        metric = ", ".join(f"{task} {label}" for task, label in labels.items())
    if len(set(lengths.values())) == 1:
        length = str(next(iter(lengths.values())))
    else:
        length = ", ".join(f"{task} {tokens}" for task, tokens in lengths.items())
    return f" Metric: {metric}; texts cut at {length} tokens."


def intact_note(facts: Mapping[Hashable, Any]) -> str:
    """How good the intact model is on what was scored, by the attributes of scores: "Intact model: sst2 91.2 %, mrpc 68.4 % (at chance).";
    empty for scores that do not say it."""
    from headwise.tasks import METRICS

    shown = []
    for name, values in facts.get("performance", {}).items():
        metric = facts["metrics"][name]
        value = f"{100 * values[metric]:.1f} %" if METRICS[metric].share else f"{values[metric]:.4g}"
        shown.append(f"{name} {value}{' (at chance)' if name in facts.get('at_chance', {}) else ''}")
    return f" Intact model: {', '.join(shown)}." if shown else ""


def held_out_note(tasks: Iterable[str]) -> str:
    """A sentence that names the tasks judged on a tenth of train; empty where there is none."""
    names = ", ".join(tasks)
    return f" Judged on a tenth of train, not on the validation split (held_out): {names}." if names else ""
