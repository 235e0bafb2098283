"""Few-shot transfer, as the study `transfer` leaves it."""

from typing import Any

import pandas as pd

from headwise._base.least import EXPLAINED
from headwise._base.sentences import NOT_SHOWN, between, counted, number, sign, spread, synthetic_rows
from headwise.figures import training as figures
from headwise.sections import Chart, Section, Table, judged_by
from headwise.studies._sections import optional_table

TUNED = {"full": "in full", "lora": "low-rank updates and a new decoder", "decoder": "a new decoder alone"}
DIFFERENCES = (
    "Points. The unit is the source model: means over few-shot seeds, then the paired difference over "
    "sources, with a t interval that counts the shared few-shot examples too; p by sign flips of sources, "
    "from six on; q: false discovery rate."
)
BEYOND = "nothing is said beyond these models"


def section(run: Any) -> Section:
    """The section of a transfer run."""
    scores, cells = run.table("transfer"), run.table("few-shot")
    tests = optional_table(run, "transfer-tests")
    blocks: list[Table | Chart] = [
        Chart(
            "transfer", "Scores over the number of examples", lambda: figures.transfer(scores), _runs(scores)
        ),
        Table(
            "transfer",
            "Few-shot scores in percent (Table 6 of Li et al. 2023)",
            _layout(scores, cells),
            _runs(scores),
        ),
        Table("transfer-scores", "Few-shot scores of every method", scores, detail=True),
    ]
    if len(tests):
        blocks.append(Table("transfer-tests", "Differences between methods", tests, DIFFERENCES))
    by_task = cells.groupby("task")
    metrics = {task: task_cells["metric"].iloc[0] for task, task_cells in by_task}
    lengths = {task: task_cells["max_length"].iloc[0] for task, task_cells in by_task}
    return Section(
        title="Few-shot transfer",
        findings=findings(scores, tests),
        blocks=blocks,
        methods=f"Every source model was fine-tuned{_tuned(cells)} on k examples in all of a task it had not "
        "seen, and judged on held-out data; the same examples for every method and source. "
        f"{EXPLAINED}.{judged_by(metrics, lengths)}{synthetic_rows(cells)}",
        notes=[note for note in cells["note"].unique() if note],
    )


def _layout(scores: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Tasks and methods × numbers of examples, with what a guess would score."""
    spreads = [spread(mean, sd) for mean, sd in zip(scores["mean"], scores["sd"], strict=True)]
    wide = (
        scores.assign(cell=spreads)
        .pivot(index=["task", "method"], columns="shots", values="cell")
        .reset_index()
    )
    wide.columns = [str(name) for name in wide.columns]
    wide.insert(1, "chance", 100 * wide["task"].map(cells.groupby("task")["chance"].mean()))
    return wide


def _runs(scores: pd.DataFrame) -> str:
    """What "±" is over."""
    runs, sources = int(scores["runs"].max()), int(scores["sources"].max())
    if runs == 1:
        return "One run."
    return f"Mean ± sd over {runs} runs ({counted(sources, 'source model')} × few-shot seeds)."


def _tuned(cells: pd.DataFrame) -> str:
    """What was trained."""
    return f" ({', '.join(TUNED[str(way)] for way in dict.fromkeys(cells['tuning']))})"


def findings(scores: pd.DataFrame, tests: pd.DataFrame) -> list[str]:
    """The differences that were tested; the scores themselves where there is one method."""
    if not len(tests):
        return [
            f"{row.shots} examples of {row.task} bring the {row.method} model to {spread(row.mean, row.sd)} "
            f"% ({_spread(row.runs)})."
            for row in scores.itertuples()
        ]
    sentences = []
    rows: Any = tests.itertuples()
    for row in rows:
        direction = f"{row.method} is {'better' if row.difference > 0 else 'worse'}"
        if pd.notna(row.p):
            verdict = direction if row.q < 0.05 else NOT_SHOWN
            verdict += f" (p = {row.p:.3g}, q = {row.q:.3g})"
        else:  # too few sources for a test: the interval carries the sentence
            if pd.isna(row.low):
                verdict = BEYOND
            else:
                verdict = direction if sign(row.low, row.high) else NOT_SHOWN
            if getattr(row, "note", ""):
                verdict += f"; {row.note}"
        sentences.append(
            f"{row.shots} examples of {row.task}: {row.method} is {number(row.difference, 2, sign=True)} "
            f"points from {row.baseline}{between(row.low, row.high, 2)}: {verdict}."
        )
    return sentences


def _spread(runs: Any) -> str:
    if int(runs) == 1:
        return "one run"
    return f"mean ± standard deviation over {int(runs)} runs"
