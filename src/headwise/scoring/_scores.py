"""`HeadScores`: one score per head as a labelled array, and what is said of it."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
import xarray as xr

from headwise._base.sentences import synthetic_text
from headwise.heads import HeadSet
from headwise.scoring._selection import top_heads
from headwise.sections import HeadMaps, Section, Table, intact_note, judged_by

FRACTION = 0.3  # of the heads that are listed, as the papers choose


class HeadScores(xr.DataArray):  # type: ignore[no-untyped-call]
    """Scores of heads, (layer, head) or (task, layer, head), with how they came about in `.attrs`: an
    `xarray.DataArray` that describes itself."""

    __slots__ = ()

    def section(self, fraction: float = FRACTION) -> Section:
        """What is said of these scores.

        Args:
            fraction: of the heads, how many count as a task's top heads.
        """
        from headwise.scoring import _patching_section as patching

        scores: xr.DataArray = self
        if "task" not in self.dims:
            scores = self.expand_dims(task=[self.attrs.get("task", "task")])
        if self.attrs.get("method") in patching.METHODS:
            return patching.section(scores)
        return _section(scores, fraction)

    def _repr_html_(self) -> str:
        described = {"layer", "head"} <= set(self.dims) <= {"task", "layer", "head"}
        if described:
            return self.section()._repr_html_()
        return super()._repr_html_()  # type: ignore[no-untyped-call]


def _section(scores: xr.DataArray, fraction: float) -> Section:
    facts = scores.attrs
    sets = {str(name): top_heads(scores.sel(task=name), fraction) for name in scores["task"].values}
    signed = facts.get("sense") == "signed"
    table = _top_heads(scores, sets, signed)
    best = table.drop_duplicates("task").set_index("task")["head"]
    size, first = "scores highest", "highest"
    if signed:
        size, first = "has the score of the largest size", "of the largest size (scores are signed)"
    framed = f"{len(next(iter(sets.values())))} {first} of {int(scores.isel(task=0).notnull().sum())} heads"
    spread = ""
    if len(sets) > 1:
        spread = "; σ: how much the number of top heads in a layer differs between tasks"
    named = facts.get("method", "a method that was given")
    if facts.get("variant"):
        named = f"{named} ({facts['variant']})"
    return Section(
        title="Importance of every head",
        findings=[f"{'; '.join(f'{name}: head {best[name]} {size}' for name in sets if name in best)}."],
        blocks=[
            HeadMaps(
                "scores",
                "Importance of every head",
                "importance",
                scores,
                sets,
                f"Framed: the {framed} of a task.",
            ),
            Table(
                "heads-by-layer", "Top heads of each task", _by_layer(scores, sets), f"The {framed}{spread}."
            ),
            *language_modelling(facts),
            Table("top-heads", "Top heads and their scores", table, detail=True),
        ],
        methods=f"Heads were scored by {named}; head 2.5 is the sixth of the third layer.{_judged(facts)}",
        settings={str(name): value for name, value in facts.items()},
        notes=[*facts.get("at_chance", {}).values(), *facts.get("notes", [])],
        values={
            **values(scores),
            "top": {name: list(map(list, heads)) for name, heads in sets.items()},
        },
    )


def values(scores: xr.DataArray) -> dict[str, Any]:
    """The scores of every head, for machines."""
    return {
        "scores": {str(name): scores.sel(task=name).to_numpy().tolist() for name in scores["task"].values}
    }


def _judged(facts: Mapping[Any, Any]) -> str:
    judged = judged_by(facts["metrics"], facts["max_length"]) if "metrics" in facts else ""
    return f"{judged}{intact_note(facts)}{synthetic_text(facts.get('synthetic', ()))}"


def _top_heads(scores: xr.DataArray, sets: Mapping[str, HeadSet], signed: bool) -> pd.DataFrame:
    """The chosen heads of each task, the most important first."""
    tables = []
    for name, head_set in sets.items():
        heads = list(head_set)
        sizes = [float(scores.sel(task=name, layer=layer, head=head)) for layer, head in heads]
        named = [f"{layer}.{head}" for layer, head in heads]
        table = pd.DataFrame({"task": name, "head": named, "score": pd.Series(sizes, dtype=float)})
        order = table["score"]
        if signed:
            order = order.abs()
        tables.append(table.loc[order.sort_values(ascending=False, kind="stable").index])
    return pd.concat(tables, ignore_index=True)


def _by_layer(scores: xr.DataArray, sets: Mapping[str, HeadSet]) -> pd.DataFrame:
    """The chosen heads of each layer (rows) and task (columns), and σ of their number between several
    tasks."""
    by_task = {name: heads.layers() for name, heads in sets.items()}
    rows = []
    for layer in range(scores.sizes["layer"]):
        in_layer = {name: layers.get(layer, ()) for name, layers in by_task.items()}
        row: dict[str, Any] = {"layer": layer}
        row |= {name: " ".join(map(str, heads)) or "-" for name, heads in in_layer.items()}
        if len(sets) > 1:
            row["σ"] = pd.Series([len(heads) for heads in in_layer.values()]).std(ddof=0)
        rows.append(row)
    return pd.DataFrame(rows)


def language_modelling(facts: Mapping[Any, Any]) -> list[Table]:
    """Every metric of the intact model where it was asked to predict text."""
    from headwise.tasks import metric_label

    rows = []
    for task, values_of in facts.get("performance", {}).items():
        if "perplexity" in values_of:
            rows.append({"task": task} | {metric_label(name): value for name, value in values_of.items()})
    if not rows:
        return []
    caption = "Of the intact model, on the examples that were scored."
    return [Table("language-modelling", "Language modelling", pd.DataFrame(rows), caption)]
