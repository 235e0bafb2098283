"""Few-shot transfer, as the study `transfer` leaves it."""

from typing import Any

import pandas as pd

from headwise._base.least import EXPLAINED
from headwise.figures import _training as figures
from headwise.figures._blocks import NOT_SHOWN, Chart, Section, Table, between, number, sign, spread, synthetic_rows

TUNED = {"full": "in full", "lora": "low-rank updates and a new decoder", "decoder": "a new decoder alone"}
BEYOND = "nothing is said beyond these models"


def section(run: Any) -> Section:
    """The section of a transfer run."""
    scores = run.table("transfer")
    tests = run.table("transfer-tests") if "transfer-tests.parquet" in run.files else pd.DataFrame()
    wide = scores.assign(cell=[spread(m, s) for m, s in zip(scores["mean"], scores["sd"], strict=True)])
    layout = wide.pivot(index=["task", "method"], columns="shots", values="cell").reset_index()
    layout.columns = [str(c) for c in layout.columns]
    cells = run.table("few-shot") if "few-shot.parquet" in run.files else pd.DataFrame()
    if "chance" in cells:  # older runs have none
        layout.insert(1, "chance", 100 * layout["task"].map(cells.groupby("task")["chance"].mean()))
    title, note = "Scores over the number of examples", "Mean and standard deviation over runs."
    blocks: list[Any] = [
        Chart("transfer", title, lambda: figures.transfer(scores), note),
        Table("transfer", "Few-shot scores in percent, mean ± sd over runs (Table 6 of Li et al. 2023)", layout),
    ]
    if len(tests):
        note = (
            "Points. The unit is the source model: means over few-shot seeds, then the paired difference over sources, with a t interval "
            "that counts the shared few-shot examples too; p by sign flips of sources, from six on; q: false discovery rate."
        )
        blocks.append(Table("transfer-tests", "Differences between methods", tests, note, 3))
    return Section(
        title="Few-shot transfer",
        findings=findings(scores, tests),
        blocks=blocks,
        methods=f"Every source model was fine-tuned{_tuned(cells)} on k examples in all of a task it had not seen, and judged on held-out data; "
        f"the same examples for every method and source. {EXPLAINED}.{synthetic_rows(cells)}",
    )


def _tuned(cells: pd.DataFrame) -> str:
    """What was trained, where the run says it."""
    ways = [TUNED[str(way)] for way in dict.fromkeys(cells["tuning"])] if "tuning" in cells else []
    return f" ({', '.join(ways)})" if ways else ""


def findings(scores: pd.DataFrame, tests: pd.DataFrame) -> list[str]:
    """The differences that were tested; the scores themselves where there is one method."""
    if not len(tests):
        return [
            f"{row.shots} examples of {row.task} bring the {row.method} model to {spread(row.mean, row.sd)} % ({_runs(row.runs)})."
            for row in scores.itertuples()
        ]
    said = []
    rows: Any = tests.itertuples()
    for row in rows:
        better = f"{row.method} is {'better' if row.difference > 0 else 'worse'}"
        if pd.isna(row.p):  # too few sources for a test: the interval carries the sentence
            shown = (better if sign(row.low, row.high) else NOT_SHOWN) if pd.notna(row.low) else BEYOND
            verdict = shown + (f"; {row.note}" if getattr(row, "note", "") else "")
        else:
            verdict = f"{better if row.q < 0.05 else NOT_SHOWN} (p = {row.p:.3g}, q = {row.q:.3g})"
        said.append(
            f"{row.shots} examples of {row.task}: {row.method} is {number(row.difference, 2, sign=True)} points from {row.baseline}"
            f"{between(row.low, row.high, 2)}: {verdict}."
        )
    return said


def _runs(runs: Any) -> str:
    return "one run" if int(runs) == 1 else f"mean ± standard deviation over {int(runs)} runs"
