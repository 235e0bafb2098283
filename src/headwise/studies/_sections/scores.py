"""Head scores, as `headwise score --out` leaves them."""

from typing import Any

import pandas as pd

from headwise.figures._blocks import HeadMaps, Section, Table
from headwise.scoring import top_heads
from headwise.studies._sections import patching

FRACTION = 0.3  # of the heads that are framed, as the papers choose


def section(found: Any, label: str) -> Section:
    """The section of saved scores."""
    scores = found if "task" in found.dims else found.expand_dims(task=[found.attrs["task"]])
    if found.attrs.get("method") in patching.METHODS:
        return patching.section(scores, label)
    sets = {str(name): top_heads(scores.sel(task=name), FRACTION) for name in scores["task"].values}
    places = [(name, head) for name, chosen in sets.items() for head in sorted(chosen)]
    values = [float(scores.sel(task=name, layer=layer, head=head)) for name, (layer, head) in places]
    table = pd.DataFrame({"task": [n for n, _ in places], "head": [f"{a}.{b}" for _, (a, b) in places], "score": values})
    signed = scores.attrs.get("sense") == "signed"
    size = table["score"].abs() if signed else table["score"]
    ordered = table.iloc[(-size).argsort(kind="stable")]  # by importance within each task, tasks in their order
    ordered = ordered.sort_values("task", key=lambda names: names.map(list(sets).index), kind="stable")
    best = ordered.drop_duplicates("task").set_index("task")["head"]
    said = "has the score of the largest size" if signed else "scores highest"
    return Section(
        title=f"Importance of every head: {label}",
        findings=[f"{name}: head {best[name]} {said}." for name in sets],
        blocks=[
            HeadMaps("scores", "Importance of every head", "importance", scores, sets, "Framed heads are the task's top 30 %."),
            Table("top-heads", "Top heads of each task", ordered, digits=4),
        ],
        methods=f"Heads were scored by {found.attrs.get('method', 'a method that was given')}; head 2.5 is the sixth of the third layer.",
        settings=dict(found.attrs),
    )
