"""Every sentence of the findings is worded by its interval or test: null results claim nothing, clear results say which way."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from headwise.figures._blocks import NOT_SHOWN
from headwise.studies._sections import dissociation, grids, probing, similarity, stemcells, training, transfer

TASKS = ["topic", "number"]


class Found:
    """A dissociation with tables by name."""

    fraction, fractions, sets, tests = 0.3, (), {}, {}  # type: ignore[var-annotated]

    def __init__(self, tables: dict[str, pd.DataFrame], tasks: list[str]) -> None:
        self.table, self.tasks = tables.__getitem__, tasks
        self.scores = xr.DataArray(np.zeros((len(tasks), 2, 2)), dims=("task", "layer", "head"), coords={"task": tasks})


def found(d: float, low: float, high: float, p: float = np.nan, verdict: str = "double") -> Found:
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
    return Found({"summary": summary, "performance": performance, "pairs": pd.DataFrame([pair])}, TASKS)


@pytest.mark.parametrize(
    ("low", "high", "said", "unsaid"),
    [(-14.6, 15.5, NOT_SHOWN, "costs it more"), (2.0, 6.0, "costs it more", NOT_SHOWN), (-6.0, -2.0, "costs it less", NOT_SHOWN)],
)
def test_d_is_worded_by_its_interval(low: float, high: float, said: str, unsaid: str) -> None:
    d = 3.8 if high > 0 else -3.8
    first, *rest = dissociation.findings(found(d, low, high))
    assert said in first
    assert unsaid not in first
    for task, sentence in zip(TASKS, rest[:2], strict=True):  # a task is compared with itself under the others' lesions
        assert sentence.startswith(
            f"{task} keeps 70.0 % of its performance without its own heads and {70 + d:.1f} % without another"
        )
        assert (NOT_SHOWN in sentence) == (said == NOT_SHOWN)


def test_without_an_interval_nothing_is_claimed() -> None:
    said = dissociation.findings(found(30.0, np.nan, np.nan))
    assert "there is no interval" in said[0]
    assert not any("matter more" in sentence or "costs it more" in sentence for sentence in said)


def test_verdicts_and_random_sets_are_called_what_they_are() -> None:
    null = " ".join(dissociation.findings(found(12.0, -3.0, 20.0, p=0.4, verdict="distinct")))
    assert "point estimates: 1 × distinct; the interval of D lies above 0 for 0 of 1" in null
    assert "could show for none of 1 pairs" in null
    assert "1 of 2 tasks fall below every random set" in null
    clear = " ".join(dissociation.findings(found(12.0, 3.0, 20.0, p=0.01, verdict="distinct")))
    assert "lies above 0 for 1 of 1" in clear
    assert "in 1 of 1 pairs" in clear


@pytest.mark.parametrize(("p", "said"), [(0.3, "not shown to be more than the 2.4"), (0.001, "more than the 2.4")])
def test_stem_cells_are_worded_by_their_test(p: float, said: str) -> None:
    test = pd.DataFrame([{"gates": "subset", "found": 3, "expected": 2.4, "p": p}])
    (sentence,) = stemcells.findings(test, pd.DataFrame())
    assert said in sentence
    assert ("not shown" in sentence) == (p > 0.05)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(-0.05, 0.025, NOT_SHOWN), (-0.05, -0.01, "lower"), (0.01, 0.02, "higher"), (-np.inf, np.inf, NOT_SHOWN)],
)
def test_effects_are_worded_by_their_interval(low: float, high: float, said: str) -> None:
    effect = pd.DataFrame([{"gates": "subset", "effect": "stem − alone", "mean": -0.012, "low": low, "high": high}])
    (sentence,) = stemcells.findings(pd.DataFrame(), effect)
    assert sentence.endswith((f": {said}.", f": {said}, over runs."))


def compared(difference: float, low: float, high: float, p: float, note: str = "") -> pd.DataFrame:
    row = {"task": "sick", "shots": 4, "method": "iat", "baseline": "plain", "difference": difference, "low": low, "high": high}
    return pd.DataFrame([{**row, "p": p, "q": p, "note": note}])


def test_transfer_is_worded_by_its_test_or_interval() -> None:
    scores = pd.DataFrame()
    for difference, p, said in ((1.0, 0.4, NOT_SHOWN), (1.0, 0.03, "iat is better"), (-1.0, 0.03, "iat is worse")):
        (sentence,) = transfer.findings(scores, compared(difference, -1, 1, p))
        assert f": {said} (p =" in sentence
    few = "no p: 3 source models of each method, 6 are needed"
    assert f"{NOT_SHOWN}; {few}." in transfer.findings(scores, compared(1.0, -0.5, 2.5, np.nan, few))[0]
    assert f"iat is better; {few}." in transfer.findings(scores, compared(1.0, 0.5, 1.5, np.nan, few))[0]


def test_links_are_worded_by_the_mantel_test() -> None:
    row = {"similarity": "DSE", "kind": "pearson", "correlation": -0.7, "note": ""}
    pairs = pd.DataFrame(index=range(10))
    for p, said in (
        (0.4, "No link of task similarity by DSE with dissociation could be shown"),
        (0.01, "by DSE goes with less dissociation"),
    ):
        (sentence,) = similarity.findings(pd.DataFrame([{**row, "p": p}]), pairs, ["DSE"])
        assert said in sentence
    (sentence,) = similarity.findings(pd.DataFrame([{**row, "p": np.nan, "note": "no p: 6 relabellings"}]), pairs, ["DSE"])
    assert "no p: 6 relabellings" in sentence
    assert "goes with" not in sentence


def trained(gains: list[float]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"method": method, "seed": seed, "task": task, "score": 0.7 + (gain if method == "iat" else 0.0), "chance": 0.5}
            for seed, gain in enumerate(gains)
            for method in ("multi-task", "iat")
            for task in ("a", "b")
        ]
    )


@pytest.mark.parametrize(
    ("gains", "said"),
    [
        ([0.02, -0.01, 0.01], NOT_SHOWN),
        ([0.020, 0.021, 0.022], "iat is better"),
        ([-0.020, -0.021, -0.022], "iat is worse"),
        ([0.05], "one seed says nothing about others"),
    ],
)
def test_trainings_are_compared_over_seeds(gains: list[float], said: str) -> None:
    assert training.findings(trained(gains))[-1].endswith(f"; {said}.")


def embeddings(gains: list[float], error: float | None = 0.01) -> pd.DataFrame:
    rows = [
        {"task": f"t{i}", "embedding": name, "test": 0.5 + (gain if name.startswith("top") else 0.0), "stderr": error}
        for i, gain in enumerate(gains)
        for name in ("last layer", "best layer", "top 4 heads")
    ]
    table = pd.DataFrame(rows)
    return table if error is not None else table.drop(columns="stderr")


def test_probes_are_compared_by_standard_errors() -> None:
    null = probing.top_against(embeddings([0.01, -0.01, 0.02]), "last")
    assert (
        f"the last layer on 2 of 3 tasks, by 1.0 points in the median: shown ahead on 0, shown behind on 0; {NOT_SHOWN} on 3."
        in null
    )
    assert "shown ahead on 2, shown behind on 1;" in probing.top_against(embeddings([0.1, -0.1, 0.2]), "best")
    assert "nothing is said beyond these examples" in probing.top_against(embeddings([0.1], None), "last")


def test_top_heads_are_rarely_shown_ahead_where_they_are_not() -> None:
    """Two embeddings judged on the same 300 examples, equally good: at 5 %, in both directions together."""
    rng = np.random.default_rng(0)
    hard = rng.normal(size=(500, 1, 300))
    right = (0.8 * hard + 0.6 * rng.normal(size=(500, 2, 300)) < 0.5).mean(-1)
    error = np.sqrt(right * (1 - right) / 300)
    shown = np.abs(right[:, 0] - right[:, 1]) > 1.96 * np.hypot(error[:, 0], error[:, 1])
    assert shown.mean() <= 0.07


def test_published_figures_stand_beside_the_same_data_only() -> None:
    names = list(dissociation.PUBLISHED)

    def shown(tasks: list[str], metric: str = "accuracy") -> bool:
        square = pd.DataFrame(np.eye(len(tasks)), index=tasks, columns=tasks)
        summary = pd.DataFrame({"metric": metric}, index=[*tasks, "all"])
        tables = dict.fromkeys(("corrected", "performance", "pairs", "pairwise"), square) | {"summary": summary}
        return "published" in [block.name for block in dissociation.blocks(Found(tables, tasks))]

    assert shown(names)
    assert not shown(names[:3])
    assert not shown([*names, "rte"])
    assert not shown(names, "f1")


def test_a_grid_without_enough_seeds_says_so() -> None:
    class Run:
        files = ("grid.parquet", "pairs-mean.parquet")

        def table(self, name: str) -> pd.DataFrame:
            grid = pd.DataFrame({"label": ["bert"], "a–b": [12.0], "average": [12.0]})
            return grid if name == "grid" else pd.DataFrame({"D": [12.0], "D_seed_low": [self.low]})

        low = np.nan

    run = Run()
    assert "too few seeds" in grids.of_specialization(run).findings[-1]
    run.low = 2.0
    assert "above 0 for 1 of 1 results" in grids.of_specialization(run).findings[-1]
