"""How tasks were read and judged, and how good the intact model is: sentences for the methods of a result."""

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from headwise import tasks


def judged_by(metrics: Mapping[str, str], lengths: Mapping[str, int]) -> str:
    """By which metrics tasks were judged, and where their texts were cut: "Metric: sst2 accuracy, mrpc F1;
    texts cut at 128 tokens."."""
    labels = {task: tasks.metric_label(metric) for task, metric in metrics.items()}
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
    """How good the intact model is on what was scored, by the attributes of scores: "Intact model: sst2 91.2
    %, mrpc 68.4 % (at chance)."; empty for scores that do not say it."""
    scores = []
    for name, performance in facts.get("performance", {}).items():
        metric = facts["metrics"][name]
        score = f"{performance[metric]:.4g}"
        if tasks.METRICS[metric].share:
            score = f"{100 * performance[metric]:.1f} %"
        scores.append(f"{name} {score}{' (at chance)' * (name in facts.get('at_chance', {}))}")
    return f" Intact model: {', '.join(scores)}." if scores else ""


def held_out_note(names: Iterable[str]) -> str:
    """A sentence that names the tasks judged on a tenth of train; empty where there is none."""
    listed = ", ".join(names)
    if not listed:
        return ""
    return f" Judged on a tenth of train, not on the validation split (held_out): {listed}."
