"""What heads do, as `headwise roles --out` leaves it."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from headwise.behaviour._tables import strongest
from headwise.figures._blocks import Chart, HeadMaps, Section, Table, number
from headwise.figures._probing import heatmaps
from headwise.scoring import top_heads

TOP = 3
FRAMED = "The framed head is the role's strongest."
SAID = ("induction", "previous-token", "duplicate-token", "copying", "retrieval", "function-vector")  # in sentences, where known


def section(found: Any, label: str) -> Section:
    """The section of saved roles."""
    known = [str(role) for role in found["role"].values if not np.isnan(found.sel(role=role)).all()]
    maps = found.sel(role=known).rename(role="task").drop_vars(["chance", "kind"])
    best = {role: top_heads(found.sel(role=role), n=1, by="signed") for role in known}
    definitions = pd.DataFrame({"role": list(found.attrs["definitions"]), "score": list(found.attrs["definitions"].values())})
    definitions["note"] = [found.attrs["notes"].get(role, "") for role in definitions["role"]]
    made_up = found.attrs.get("texts", {}).get("synthetic", False)
    return Section(
        title=f"What heads do: {label}",
        findings=_findings(found, best),
        blocks=[
            Chart("role-maps", "Every head in every role", partial(heatmaps, maps, chosen=best), FRAMED),
            HeadMaps("roles", "One role at a time", "score", maps, best, FRAMED),
            Table(
                "roles-top", "Strongest heads of each role", strongest(found, TOP), "Head 2.5 is the sixth of the third layer.", 3
            ),
            Table("roles-definitions", "What the scores are", definitions),
        ],
        methods="Shares of attention are means over texts; chance is even attention, 0 for eigenvalue scores and effects, and what random "
        "rotations give for compositions. No test was made." + (" The texts are synthetic." if made_up else ""),
        settings={name: value for name, value in found.attrs.items() if name not in ("definitions", "notes")},
    )


def _findings(found: Any, best: dict[str, Any]) -> list[str]:
    """The strongest head of the best-known roles, beside chance; and the share of heads that are sinks."""
    said = []
    for role in (role for role in SAID if role in best):
        ((layer, head),) = best[role]
        score, chance = float(found.sel(role=role)[layer, head]), float(found["chance"].sel(role=role)[layer])
        if score <= 0:
            said.append(f"No head scores above 0 for {role}.")
            continue
        said.append(f"The strongest head for {role} is {layer}.{head}: {number(score, 2)}, where chance is {number(chance, 2)}.")
    sinks = found.attrs.get("sinks")
    if sinks is not None:
        said.append(f"{number(100 * sinks)} % of the heads give the first token more than 0.3 of their attention.")
    return said or ["None of the requested roles is defined in this model."]
