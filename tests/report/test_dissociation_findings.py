"""Every sentence of a dissociation is worded by its interval or test: null results claim nothing, clear results say which way."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from headwise._base.sentences import NOT_SHOWN, no_interval
from headwise.lesions import _section as dissociation
from headwise.lesions._analysis import Bounds
from headwise.lesions._statistics import TestOfD

TASKS = ["topic", "number"]
WHY = "topic has 20 held-out examples; 50 are needed"
NO_INTERVAL = no_interval(WHY)


class Result:
    """A dissociation with tables by name, whose tests of D were not run."""

    d, fraction, fractions, sets, tests, matched = 0.3, 0.3, (), {}, {}, {}  # type: ignore[var-annotated]
    permutation = SimpleNamespace(p=float("nan"), note="")

    random = tuple(f"random {i}" for i in range(10))
    synthetic: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    random_note = "random: mean and range of 10 sets, not an interval"

    def __init__(
        self, tables: dict[str, pd.DataFrame], tasks: list[str], level: float = 0.95, why: str = ""
    ) -> None:
        untested = pd.DataFrame({"p_fdr": pd.Series(dtype=float)})
        self.table = {"matched": untested, "overlap": pd.DataFrame(index=tasks), **tables}.__getitem__
        self.tasks, self.settings = tasks, {"level": level, "heads_each": 1, "heads_total": 4}
        one = Bounds(np.nan, np.nan, why)  # no predictions: of these the reason alone is read
        self.analysis = SimpleNamespace(
            tasks=(),
            d_bounds=lambda: one,
            d_i_bounds=lambda: [one] * len(tasks),
            pair_bounds=lambda: {(0, 1): one},
            uncorrected=lambda which: "",
        )
        self.scores = xr.DataArray(
            np.zeros((len(tasks), 2, 2)), dims=("task", "layer", "head"), coords={"task": tasks}
        )


def dissociated(
    d: float, low: float, high: float, p: float = np.nan, verdict: str = "double", level: float = 0.95
) -> Result:
    """A dissociation whose every D is the same; own lesions cost 25 points, and so do the others' where D is 0."""
    row = {"metric": "accuracy", "RP own": 70.0, "RP others": 70.0 + d, "D": d, "D low": low, "D high": high}
    summary = pd.DataFrame([{"task": name, **row} for name in [*TASKS, "all"]]).set_index("task")
    rows = {
        "topic†": (60, 84 * (70 + d) / 100),
        "number†": (84 * (70 + d) / 100, 60),
        "random": (80, 80),
        "random lowest": (70, 50),
    }
    performance = pd.DataFrame(rows | {"intact": (85, 85)}, index=TASKS).T.rename_axis("lesion")
    pair = {"A": "topic", "B": "number", "verdict": verdict, "D_low": low, "p_fdr": p, "overlap": 30.0}
    tables = {"summary": summary, "performance": performance, "pairs": pd.DataFrame([pair])}
    return Result(tables, TASKS, level, WHY if np.isnan(low) else "")


@pytest.mark.parametrize(
    ("low", "high", "said", "unsaid"),
    [
        (-14.6, 15.5, NOT_SHOWN, "costs it more"),
        (2.0, 6.0, "costs it more", NOT_SHOWN),
        (-6.0, -2.0, "costs it less", NOT_SHOWN),
    ],
)
def test_d_is_worded_by_its_interval(low: float, high: float, said: str, unsaid: str) -> None:
    d = 3.8 if high > 0 else -3.8
    first, *rest = dissociation.findings(dissociated(d, low, high))
    assert said in first
    assert unsaid not in first
    for task, sentence in zip(
        TASKS, rest[:2], strict=True
    ):  # a task is compared with itself under the others' lesions
        assert sentence.startswith(
            f"{task} keeps 70.0 % of its performance without its own heads and {70 + d:.1f} % without another"
        )
        assert (NOT_SHOWN in sentence) == (said == NOT_SHOWN)


def test_without_an_interval_nothing_is_claimed() -> None:
    said = dissociation.findings(dissociated(30.0, np.nan, np.nan))
    assert [WHY in sentence for sentence in said] == [
        True,
        True,
        True,
        False,
        True,
        False,
    ]  # all but random sets and overlap
    assert [NO_INTERVAL in sentence for sentence in said[:3]] == [True] * 3
    claims = (
        "matter more",
        "costs it more",
        NOT_SHOWN,
        "lies above 0",
    )  # what was not tested is not called undecided either
    assert not any(claim in sentence for sentence in said for claim in claims)


def test_an_interval_is_called_by_its_own_level() -> None:
    wide = dissociated(3.8, 2.0, 6.0, level=0.99)
    assert all("(99 % interval 2.0 to 6.0)" in sentence for sentence in dissociation.findings(wide)[:3])
    square = pd.DataFrame(np.eye(2), index=TASKS, columns=TASKS)
    tables = {kind: wide.table(kind) for kind in ("summary", "performance", "pairs")}
    tables |= {"corrected": square, "pairwise": square}
    shown = dissociation.blocks(Result(tables, TASKS, 0.99))
    assert ["99 % interval" in block.caption for block in shown if block.name in ("pairs", "summary")].count(
        True
    ) == 2
    assert not any("95 %" in block.caption for block in shown)


def test_captions_speak_of_intervals_only_where_there_are_some() -> None:
    square = pd.DataFrame(np.eye(2), index=TASKS, columns=TASKS)
    some = dissociated(3.8, np.nan, np.nan)
    tables = {kind: some.table(kind) for kind in ("summary", "performance", "pairs")}
    without = Result({**tables, "corrected": square, "pairwise": square}, TASKS, why=WHY)
    said = {block.title: block.caption for block in dissociation.blocks(without)}
    assert not any("% interval" in caption for caption in said.values())
    assert f"No interval: {WHY}." in said["Dissociation of every pair"]
    assert f"No interval: {WHY}." in said["Every task"]
    assert "not an interval" in said["Performance in percent (Table 3)"]
    assert "no p: the re-split test was not run" in said["Every pair of tasks"]
    assert "Table 11 of Li et al. 2023." in [block.caption for block in dissociation.blocks(without)]
    tried = Result(
        {**tables, "pairs": tables["pairs"].assign(p=np.nan), "corrected": square, "pairwise": square},
        TASKS,
        why=WHY,
    )
    tried.tests = {("topic", "number"): TestOfD(0.0, np.nan, np.array([]), note="too few")}
    blocks = {block.title: block.caption for block in dissociation.blocks(tried)}
    assert "no p: the re-split test had too few splits" in blocks["Every pair of tasks"]
    assert "Dissociation of re-split heads" not in blocks  # there is nothing to draw
    written = dissociation.section(without).methods
    assert f"There is no interval of D: {WHY}." in written
    assert "bootstrap" not in written
    without.synthetic = ("topic",)
    assert dissociation.section(without).methods.endswith("The text of topic is synthetic.")
    assert "docs/statistics.md" in written


def test_a_figure_without_values_for_a_task_says_why() -> None:
    some = dissociated(3.8, 1.0, 6.0)
    tables = {kind: some.table(kind) for kind in ("summary", "performance", "pairs")}
    tables["summary"].loc["number", "RP own"] = np.nan
    weak = pd.DataFrame([[70.0, np.nan]] * 2, index=TASKS, columns=TASKS)
    lacking = Result({**tables, "corrected": weak, "pairwise": weak}, TASKS)
    lacking.analysis.uncorrected = lambda which: f"{TASKS[which[1]]} is not above chance when intact"
    said = {block.name: block.caption for block in dissociation.blocks(lacking)}
    assert said["lesions"].endswith("No values: the metric of number is 0 or less when intact.")
    assert said["lesions-corrected"].endswith("No values: number is not above chance when intact.")


def test_verdicts_and_random_sets_are_called_what_they_are() -> None:
    null = " ".join(dissociation.findings(dissociated(12.0, -3.0, 20.0, p=0.4, verdict="distinct")))
    assert "of Li et al. 2023 on point estimates: distinct; the interval of D does not lie above 0." in null
    assert "could not show for any of 1 pairs" in null
    assert (
        "1 of 2 tasks fall below every one of the 10 random sets drawn, as a further random set would with probability 9.1 %"
        in null
    )
    assert "sets share 30 % of their heads" in null  # not "30 to 30 %"
    none = " ".join(dissociation.findings(dissociated(-1.0, -3.0, 2.0, verdict="none")))
    assert "point estimates: without a dissociation;" in none
    clear = " ".join(dissociation.findings(dissociated(12.0, 3.0, 20.0, p=0.01, verdict="distinct")))
    assert "the interval of D lies above 0." in clear
    assert "in 1 of 1 pairs" in clear


@pytest.mark.parametrize(
    ("d_low", "p", "headline", "test"),
    [
        (5.0, 0.03, "D is 10.0 % (90 % interval 5.0 to 20.0)", "over this model's lesions, gives p = 0.03."),
        (np.nan, np.nan, f"D is 10.0 %: {NO_INTERVAL}", ""),
    ],
)
def test_the_findings_hold_the_level_of_the_interval_and_the_permutation_test(
    d_low: float, p: float, headline: str, test: str
) -> None:
    result = dissociated(10.0, d_low, 20.0, level=0.9)
    result.permutation = SimpleNamespace(p=p, note="")
    sentences = dissociation.findings(result)
    assert headline in sentences[0]
    of_permutations = [sentence for sentence in sentences if "permutation test" in sentence]
    assert len(of_permutations) == bool(test)
    assert all(sentence.endswith(test) for sentence in of_permutations)


def test_published_figures_stand_beside_the_same_data_only() -> None:
    names = list(dissociation.PUBLISHED)

    def shown(tasks: list[str], metric: str = "accuracy") -> bool:
        square = pd.DataFrame(np.eye(len(tasks)), index=tasks, columns=tasks)
        summary = pd.DataFrame({"metric": metric}, index=[*tasks, "all"])
        summary["D low"] = summary["RP own"] = square["D_low"] = 0.0
        tables = dict.fromkeys(("corrected", "performance", "pairs", "pairwise"), square) | {
            "summary": summary
        }
        return "published" in [block.name for block in dissociation.blocks(Result(tables, tasks))]

    assert shown(names)
    assert not shown(names[:3])
    assert not shown([*names, "rte"])
    assert not shown(names, "f1")


def test_a_task_at_chance_is_said_below_the_headline() -> None:
    square = pd.DataFrame(np.eye(2), index=TASKS, columns=TASKS)
    some = dissociated(-5.2, -23.9, 12.1)
    tables = {kind: some.table(kind) for kind in ("summary", "performance", "pairs")}
    weak = Result({**tables, "corrected": square, "pairwise": square}, TASKS)
    weak.notes = (
        "topic: the intact model is at chance (0.375; a guess that ignores the text: 0.5), so its lesions show little",
    )
    assert dissociation.section(weak).notes == weak.notes
    shown = " ".join(str(dissociation.section(weak)).split())
    assert "topic: the intact model is at chance (0.375; a guess that ignores the text: 0.5)" in shown
