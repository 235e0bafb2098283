"""`HeadRoles`: what every head does, as a labelled array that describes itself and is kept in a folder."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from headwise._base.sentences import number
from headwise.figures import heatmaps
from headwise.heads import HeadSet
from headwise.scoring import load_scores, save_scores, top_heads
from headwise.sections import Chart, HeadMaps, Section, Table
from headwise.store import manifest

KIND, FILE = "roles", "roles.nc"
TOP = 3
FRAMED = "The framed head is the role's strongest."
IN_SENTENCES = (
    "induction",
    "previous-token",
    "duplicate-token",
    "copying",
    "retrieval",
    "function-vector",
)


class HeadRoles(xr.DataArray):  # type: ignore[no-untyped-call]
    """Scores of heads in their roles, (role, layer, head), with how they came about in `.attrs`.

    It is an `xarray.DataArray` that describes itself.
    """

    __slots__ = ()

    def section(self, top: int = TOP) -> Section:
        """What is said of these roles; of each its `top` heads."""
        names = [str(role) for role in self["role"].values]
        defined = [role for role in names if not np.isnan(self.sel(role=role)).all()]
        maps = self.sel(role=defined).rename(role="task").drop_vars(["chance", "kind"])
        strongest = {role: top_heads(self.sel(role=role), n=1, by="signed") for role in defined}
        facts = self.attrs
        notes: dict[str, str] = facts["notes"]
        definitions = pd.DataFrame(facts["definitions"].items(), columns=["role", "score"])
        definitions["note"] = [notes.get(role, "") for role in definitions["role"]]
        methods = (
            "Shares of attention are means over texts; chance is even attention, 0 for eigenvalue scores and "
            "effects, and what random rotations give for compositions. No test was made."
        )
        if facts.get("texts", {}).get("synthetic"):
            methods += " The texts are synthetic: give --texts FILE for your own."
        caption = "layer.head and its score, -: none above 0; head 2.5 is the sixth of the third layer."
        return Section(
            title="What heads do",
            findings=findings(self, strongest),
            blocks=[
                Chart(
                    "role-maps", "Every head in every role", partial(heatmaps, maps, chosen=strongest), FRAMED
                ),
                HeadMaps("roles", "One role at a time", "score", maps, strongest, FRAMED),
                Table("top", "Strongest heads of each role", strongest_table(self, top), caption),
                Table("definitions", "What the scores are", definitions, detail=True),
            ],
            methods=methods,
            settings={
                str(name): fact for name, fact in facts.items() if name not in ("definitions", "notes")
            },
            notes=[*(f"{role}: {note}" for role, note in notes.items()), *facts.get("stale", [])],
            values={
                "roles": {role: self.sel(role=role).to_numpy().tolist() for role in names},
                "chance": {role: self["chance"].sel(role=role).to_numpy().tolist() for role in names},
            },
        )

    def _repr_html_(self) -> str:
        if set(self.dims) == {"role", "layer", "head"}:
            return self.section()._repr_html_()
        return super()._repr_html_()  # type: ignore[no-untyped-call]


def findings(scores: xr.DataArray, strongest: Mapping[str, HeadSet]) -> list[str]:
    """The strongest head of the best-known roles, beside chance; and the share of heads that are sinks."""
    sentences = []
    for role in IN_SENTENCES:
        if role not in strongest:
            continue
        ((layer, head),) = strongest[role]
        score = float(scores.sel(role=role)[layer, head])
        chance = float(scores["chance"].sel(role=role)[layer])
        if score > 0:
            sentences.append(
                f"The strongest head for {role} is {layer}.{head}: {number(score, 2)}, "
                f"where chance is {number(chance, 2)}."
            )
        else:
            sentences.append(f"No head scores above 0 for {role}.")
    sinks = scores.attrs.get("sinks")
    if sinks is not None:
        sentences.append(
            f"{number(100 * sinks)} % of the heads give the first token more than 0.3 of their attention."
        )
    return sentences or ["None of the requested roles is defined in this model."]


def strongest_table(scores: xr.DataArray, top: int) -> pd.DataFrame:
    """For each role its chance level, mean over the layers that have one, and its strongest heads.

    A cell is "layer.head score", or "-" where no further head scores above 0.
    """
    headings = ["strongest head", *(f"{ordinal(rank)} head" for rank in range(2, top + 1))]
    rows = []
    for role in scores["role"].values:
        of_role = scores.sel(role=role).to_numpy()
        ranked = np.argsort(-np.where(np.isnan(of_role), -np.inf, of_role), axis=None, kind="stable")[:top]
        cells = []
        for layer, head in zip(*np.unravel_index(ranked, of_role.shape), strict=True):
            if of_role[layer, head] > 0:
                cells.append(f"{layer}.{head} {of_role[layer, head]:.2f}")
        cells += ["-"] * (top - len(cells))
        levels = scores["chance"].sel(role=role).to_numpy()
        levels = levels[~np.isnan(levels)]
        chance = float(levels.mean()) if len(levels) else np.nan
        rows.append({"role": str(role), "chance": chance, **dict(zip(headings, cells, strict=True))})
    return pd.DataFrame(rows)


def ordinal(number: int) -> str:
    """2nd, 3rd, 4th, 11th, 21st, ..."""
    endings = {1: "st", 2: "nd", 3: "rd"}
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{endings.get(number % 10, 'th')}"


def keep(scores: HeadRoles, folder: Path, **facts: Any) -> HeadRoles:
    """Writes a folder of roles, with facts for its manifest; gives the roles back."""
    with manifest.new_folder(folder, KIND, **facts) as aside:
        save_scores(scores, aside / FILE)
    return scores


def load_folder(folder: Path, record: Mapping[str, Any]) -> HeadRoles:
    """Opens what `keep` wrote; `headwise.load` calls this."""
    scores = load_scores(folder / FILE).rename("role score")
    texts = {
        name: scores[name].astype(str) for name in ("role", "kind")
    }  # netCDF gives texts back as objects
    return HeadRoles(scores.assign_coords(texts))
