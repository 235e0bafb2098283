"""`HeadRoles`: what every head does, as a labelled array, and what is said of it."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from headwise._base.sentences import number
from headwise.behaviour._tables import strongest
from headwise.figures import heatmaps
from headwise.scoring import top_heads
from headwise.sections import Chart, HeadMaps, Section, Table

TOP = 3
FRAMED = "The framed head is the role's strongest."
SAID = (
    "induction",
    "previous-token",
    "duplicate-token",
    "copying",
    "retrieval",
    "function-vector",
)  # in sentences, where known


class HeadRoles(xr.DataArray):  # type: ignore[no-untyped-call]
    """Scores of heads in their roles, (role, layer, head), with how they came about in `.attrs`: an `xarray.DataArray` that describes
    itself."""

    __slots__ = ()

    def section(self, top: int = TOP) -> Section:
        """What is said of these roles; of each its `top` heads."""
        return _section(self, top)

    def _repr_html_(self) -> str:
        described = {"role", "layer", "head"} == set(self.dims)
        return self.section()._repr_html_() if described else super()._repr_html_()  # type: ignore[no-untyped-call]


def _section(scores: xr.DataArray, top: int) -> Section:
    roles = [str(role) for role in scores["role"].values]
    defined = [role for role in roles if not np.isnan(scores.sel(role=role)).all()]
    maps = scores.sel(role=defined).rename(role="task").drop_vars(["chance", "kind"])
    best = {role: top_heads(scores.sel(role=role), n=1, by="signed") for role in defined}
    facts = scores.attrs
    definitions = pd.DataFrame(
        {"role": list(facts["definitions"]), "score": list(facts["definitions"].values())}
    )
    definitions["note"] = [facts["notes"].get(role, "") for role in definitions["role"]]
    table = strongest(scores, top)
    caption = "layer.head and its score, -: none above 0; head 2.5 is the sixth of the third layer."
    synthetic = (
        " The texts are synthetic: give --texts FILE for your own."
        if facts.get("texts", {}).get("synthetic")
        else ""
    )
    return Section(
        title="What heads do",
        findings=_findings(scores, best),
        blocks=[
            Chart("role-maps", "Every head in every role", partial(heatmaps, maps, chosen=best), FRAMED),
            HeadMaps("roles", "One role at a time", "score", maps, best, FRAMED),
            Table("top", "Strongest heads of each role", table, caption),
            Table("definitions", "What the scores are", definitions, detail=True),
        ],
        methods="Shares of attention are means over texts; chance is even attention, 0 for eigenvalue scores and effects, and what random "
        f"rotations give for compositions. No test was made.{synthetic}",
        settings={str(name): value for name, value in facts.items() if name not in ("definitions", "notes")},
        notes=[*(f"{role}: {note}" for role, note in facts["notes"].items()), *facts.get("stale", [])],
        values={
            "roles": {role: scores.sel(role=role).to_numpy().tolist() for role in roles},
            "chance": {role: scores["chance"].sel(role=role).to_numpy().tolist() for role in roles},
        },
    )


def _findings(scores: Any, best: dict[str, Any]) -> list[str]:
    """The strongest head of the best-known roles, beside chance; and the share of heads that are sinks."""
    sentences = []
    for role in (role for role in SAID if role in best):
        ((layer, head),) = best[role]
        score, chance = (
            float(scores.sel(role=role)[layer, head]),
            float(scores["chance"].sel(role=role)[layer]),
        )
        if score <= 0:
            sentences.append(f"No head scores above 0 for {role}.")
            continue
        sentences.append(
            f"The strongest head for {role} is {layer}.{head}: {number(score, 2)}, where chance is {number(chance, 2)}."
        )
    sinks = scores.attrs.get("sinks")
    if sinks is not None:
        sentences.append(
            f"{number(100 * sinks)} % of the heads give the first token more than 0.3 of their attention."
        )
    return sentences or ["None of the requested roles is defined in this model."]
