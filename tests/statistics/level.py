"""What simulations of a test's level have in common; each says what it measured, for the table of docs/statistics.md.

`make statistics` runs all of them with 2,000 simulated studies each and writes that table; `make test` runs the quick ones with 400.
"""

import json
import os
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

DRAWS = int(os.environ.get("HEADWISE_SIMULATIONS", "400"))  # simulated studies
MOST_REJECTED = 0.07  # at 5 %
LEAST_COVERED = 0.93  # of 95 % intervals

DOCS = Path(__file__).parents[2] / "docs"
MEASURED = DOCS / "statistics.json"  # what `make statistics` measured last
BEGIN, END = "<!-- levels: written by `make statistics` -->", "<!-- end of levels -->"
Row = dict[str, str | float]
rows: list[Row] = []


def rejected(p: ArrayLike, figure: str = "", world: str = "") -> float:
    """The share of simulated studies with p ≤ 0.05; studies without a p (NaN) show nothing and count as not rejected.

    Args:
        p: of every study.
        figure, world: a row of the page's table, if it is to have one: what p is of, and what was simulated, where H0 holds.
    """
    values = np.asarray(p, dtype=float)
    assert len(values) >= DRAWS
    assert figure == "" or np.isfinite(values).mean() >= 0.3
    share = float((values <= 0.05).mean())
    return noted(share, figure, world, "rejects", len(values), float(np.isfinite(values).mean()))


def covered(
    low: ArrayLike, high: ArrayLike, truth: ArrayLike = 0.0, figure: str = "", world: str = ""
) -> float:
    """The share of simulated studies whose interval holds the truth, of those that have an interval, at least half.

    Args:
        low, high: the ends; NaN where none is shown.
        truth: what they should hold.
        figure, world: as of `rejected`.
    """
    low, high = np.ravel(np.asarray(low, dtype=float)), np.ravel(np.asarray(high, dtype=float))
    assert low.size >= DRAWS
    has = np.isfinite(low) & np.isfinite(high)
    assert has.mean() >= 0.5
    share = float((((low <= truth) & (np.asarray(truth) <= high))[has]).mean())
    return noted(share, figure, world, "covers", low.size, float(has.mean()))


def noted(share: float, figure: str, world: str, what: str, studies: int, shown: float = 1.0) -> float:
    """Keeps a row of the table, if it is to have one; gives the share."""
    if figure:
        rows.append(
            {
                "figure": figure,
                "world": world,
                "what": what,
                "share": share,
                "shown": shown,
                "studies": studies,
            }
        )
    return share


def holds(row: Row) -> bool:
    """Whether a row keeps what is promised."""
    share = float(row["share"])
    return share <= MOST_REJECTED if row["what"] == "rejects" else share >= LEAST_COVERED


def table(measured: list[Row]) -> str:
    """The page's table, a row per simulated world."""
    lines = ["| interval or p | simulated | at 5 %, 95 % | shown | studies |", "|---|---|---|---|---|"]
    for row in measured:
        result = f"{row['what']} {100 * float(row['share']):.1f} %{'' if holds(row) else ' (missed)'}"
        studies = f"{row['studies']:,}"
        lines.append(
            f"| {row['figure']} | {row['world']} | {result} | {100 * float(row['shown']):.0f} % | {studies} |"
        )
    return "\n".join(lines)


def write() -> None:
    """Keeps what was measured, and writes the page's table."""
    MEASURED.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    page = DOCS / "statistics.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{table(rows)}\n{END}{after}", encoding="utf-8")
