"""Every sentence of the findings is worded by its interval or test: null results claim nothing, clear results say which way."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from headwise._base.sentences import NOT_SHOWN, number
from headwise.probing import _section as probing
from headwise.report import read
from headwise.studies._sections import grids, similarity, stemcells, transfer
from headwise.training import _section as training
from headwise.training._result import TrainingResult


def test_one_source_model_says_nothing_of_others() -> None:
    (sentence,) = transfer.findings(
        pd.DataFrame(), compared(1.0, np.nan, np.nan, np.nan, "no p: 1 source model of each method")
    )
    assert sentence.endswith(f": {transfer.BEYOND}; no p: 1 source model of each method.")
    assert NOT_SHOWN not in sentence


@pytest.mark.parametrize(
    ("p", "said"), [(0.3, "not shown to be more than the 2.4"), (0.001, "more than the 2.4")]
)
def test_stem_cells_are_worded_by_their_test(p: float, said: str) -> None:
    test = pd.DataFrame([{"gates": "subset", "found": 3, "expected": 2.4, "p": p}])
    (sentence,) = stemcells.findings(test, pd.DataFrame())
    assert said in sentence
    assert ("not shown" in sentence) == (p > 0.05)


@pytest.mark.parametrize(
    ("low", "high", "note", "said"),
    [
        (-0.05, 0.025, "", NOT_SHOWN),
        (-0.05, -0.01, "", "lower, over runs and heads"),
        (0.01, 0.02, "", "higher, over runs and heads"),
        (
            np.nan,
            np.nan,
            "no interval: 2 heads a run in the smaller group; 4 are needed",
            "there is no interval (2 heads a run in the smaller group; 4 are needed), so nothing is said beyond these runs and heads",
        ),
    ],
)
def test_effects_are_worded_by_their_interval(low: float, high: float, note: str, said: str) -> None:
    effect = pd.DataFrame(
        [
            {
                "gates": "subset",
                "effect": "stem − alone",
                "mean": -0.012,
                "low": low,
                "high": high,
                "note": note,
            }
        ]
    )
    (sentence,) = stemcells.findings(pd.DataFrame(), effect)
    assert sentence.endswith(f": {said}.")
    assert "nan" not in sentence


def compared(difference: float, low: float, high: float, p: float, note: str = "") -> pd.DataFrame:
    row = {
        "task": "sick",
        "shots": 4,
        "method": "iat",
        "baseline": "plain",
        "difference": difference,
        "low": low,
        "high": high,
    }
    return pd.DataFrame([{**row, "p": p, "q": p, "note": note}])


def test_transfer_is_worded_by_its_test_or_interval() -> None:
    scores = pd.DataFrame()
    for difference, p, said in (
        (1.0, 0.4, NOT_SHOWN),
        (1.0, 0.03, "iat is better"),
        (-1.0, 0.03, "iat is worse"),
    ):
        (sentence,) = transfer.findings(scores, compared(difference, -1, 1, p))
        assert f": {said} (p =" in sentence
    few = "no p: 3 source models of each method, 6 are needed"
    assert f"{NOT_SHOWN}; {few}." in transfer.findings(scores, compared(1.0, -0.5, 2.5, np.nan, few))[0]
    assert f"iat is better; {few}." in transfer.findings(scores, compared(1.0, 0.5, 1.5, np.nan, few))[0]


def test_one_run_of_a_transfer_has_no_spread() -> None:
    scores = pd.DataFrame(
        {
            "task": "sick",
            "method": "iat",
            "shots": [4, 8],
            "mean": [50.0, 60.0],
            "sd": [np.nan, 2.0],
            "runs": [1, 5],
        }
    )
    assert transfer.findings(scores, pd.DataFrame()) == [
        "4 examples of sick bring the iat model to 50.0 % (one run).",
        "8 examples of sick bring the iat model to 60.0 ± 2.0 % (mean ± standard deviation over 5 runs).",
    ]


def test_links_are_worded_by_the_mantel_test() -> None:
    row = {"similarity": "DSE", "kind": "pearson", "correlation": -0.7, "note": ""}
    pairs = pd.DataFrame(index=range(10))
    for p, said in (
        (0.4, "No link of task similarity by DSE with dissociation could be shown"),
        (0.01, "by DSE is associated with less dissociation"),
    ):
        (sentence,) = similarity.findings(pd.DataFrame([{**row, "p": p}]), pairs, ["DSE"])
        assert said in sentence
    (sentence,) = similarity.findings(
        pd.DataFrame([{**row, "p": np.nan, "note": "no p: 6 relabellings"}]), pairs, ["DSE"]
    )
    assert "no p: 6 relabellings" in sentence
    assert "goes with" not in sentence


def trained(gains: list[float]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "method": method,
                "seed": seed,
                "task": task,
                "score": 0.7 + (gain if method == "iat" else 0.0),
                "chance": 0.5,
            }
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
    assert training.training_findings(trained(gains))[-1].endswith(f"; {said}.")


def embeddings(gains: list[float], error: float | None = 0.01, examples: int = 300) -> pd.DataFrame:
    rows = [
        {
            "task": f"t{i}",
            "embedding": name,
            "test": 0.5 + (gain if name.startswith("top") else 0.0),
            "stderr": error,
            "examples": examples,
        }
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
    few = probing.top_against(embeddings([0.3], 0.1, examples=20), "last")
    assert few.endswith("(of 20 test examples, 50 are needed: nothing is said beyond them).")


@pytest.mark.parametrize(
    ("scores", "said"),
    [((0.5, 0.4), "On none of 2 tasks"), ((0.9, 0.4), "On t0 the head best on validation, 0.0,")],
)
def test_the_best_head_is_beside_a_guess(scores: tuple[float, float], said: str) -> None:
    places = ("task", "layer", "head")
    values = np.reshape(scores, (2, 1, 1))
    data = xr.Dataset(
        {"test": (places, values), "validation": (places, values), "majority": ("task", [0.5, 0.5])}
    )
    sentence = probing.findings(embeddings([0.0, 0.0]), data.assign_coords(task=["t0", "t1"]))[-1]
    assert sentence.startswith(said)
    assert "guess that ignores the text" in sentence


def test_only_tasks_that_both_methods_have_are_compared() -> None:
    """A method without the hard task is no better for it."""
    scores = pd.concat(
        [
            pd.DataFrame(
                {
                    "method": method,
                    "seed": seed,
                    "task": list(values),
                    "score": list(values.values()),
                    "chance": 0.1,
                }
            )
            for seed in range(3)
            for method, values in (
                ("multi-task", {"easy": 0.9, "hard": 0.5}),
                ("iat", {"easy": 0.9}),
                ("lora", {"other": 0.9}),
            )
        ]
    )
    said = training.training_findings(scores)
    assert "iat: 90.0 on average over 1 task (3 seeds)." in said
    assert said[3] == "No task is one of all methods, so these averages are not to be compared."
    assert (
        "iat is +0.00 points from multi-task on average over 1 task, seed by seed: +0.00, +0.00, +0.00; there is no interval"
        in said[4]
    )
    assert "0.00 to 0.00" not in said[4]  # which would read as certainty
    assert said[5] == "lora and multi-task have no task and seed in common, so they are not compared."


def test_what_is_at_chance_is_named_with_its_method() -> None:
    scores = trained([0.0, 0.0])
    weak = (scores["method"] == "iat") & (scores["task"] == "b")
    assert (
        training.training_findings(scores.assign(at_chance=weak))[-1]
        == "Not shown to be above chance in any seed: b (iat)."
    )
    assert not any(
        "chance" in sentence
        for sentence in training.training_findings(scores.assign(at_chance=weak & (scores["seed"] == 0)))
    )


def test_a_single_task_training_is_not_mixed_with_multi_task(tmp_path: Path) -> None:
    """Its parts, one for each task, are plain trainings in folders of their own: not further runs of multi-task training."""

    def save(folder: Path, method: str, scores: dict[str, float]) -> None:
        shared = {"split": "validation", "metric": "accuracy", "chance": 0.1}
        table = pd.DataFrame({"task": list(scores), "score": list(scores.values()), **shared})
        history = pd.DataFrame({"step": [1], "task": ["a"], "loss": [1.0]})
        kept = {"method": method, "tasks": dict.fromkeys(scores), "settings": {"seed": 0}}
        model = SimpleNamespace(write=lambda _: {"kind": "multi-task"})
        TrainingResult(table, table, history, kept, models={"": model}).save(folder, begun=True)

    save(tmp_path / "multi-task", "multi-task", {"a": 0.6, "b": 0.6})
    for task in ("a", "b"):
        save(tmp_path / "single-task" / task, "multi-task", {task: 0.9})
    save(tmp_path / "single-task", "single-task", {"a": 0.9, "b": 0.9})
    (section,) = read([tmp_path])
    assert section.findings[:2] == [
        "multi-task: 60.0 on average over 2 tasks (1 seed).",
        "single-task: 90.0 on average over 2 tasks (1 seed).",
    ]
    assert read([tmp_path / "single-task" / "a"])[0].findings == [
        "multi-task: 90.0 on average over 1 task (1 seed)."
    ]


class Trained:
    """A finished training with its scores."""

    def __init__(self, folder: str, description: dict[str, object]) -> None:
        self.folder, self.description = folder, description


def test_settings_of_one_method_are_not_averaged() -> None:
    """Two values of alpha with the same seed are two methods to the report; seeds of one are one."""

    def one(method: str, seed: int, folder: str = "", tasks: str = "ab", **options: object) -> Trained:
        settings = {"seed": seed, "epochs": 3}
        return Trained(
            folder,
            {
                "method": method,
                "tasks": dict.fromkeys(tasks),
                "settings": settings,
                "seconds": seed,
                **options,
            },
        )

    swept = [one("iat", seed, alpha=alpha) for seed in (0, 1) for alpha in (0.1, 0.3)]
    assert training.labels([one("multi-task", 0), *swept]) == [
        "multi-task",
        *["iat (alpha 0.1)", "iat (alpha 0.3)"] * 2,
    ]
    assert training.labels([one("iat", 0), one("iat", 1)]) == ["iat", "iat"]
    assert training.labels([one("iat", 0), one("iat", 0, tasks="c")]) == ["iat (tasks a, b)", "iat (tasks c)"]
    assert training.labels([one("iat", 0, "x"), one("iat", 0, "y")]) == ["iat in x", "iat in y"]


def test_a_grid_without_enough_seeds_says_so() -> None:
    class Run:
        files = ("grid.parquet", "pairs-mean.parquet")

        def __init__(self, held_out: bool) -> None:
            self.recipe = {"tasks": {"held_out": held_out}}

        def table(self, name: str) -> pd.DataFrame:
            grid = pd.DataFrame({"label": ["bert"], "a–b": [12.0], "average": [12.0]})
            return grid if name == "grid" else pd.DataFrame({"D": [12.0], "D_seed_low": [self.low]})

        low = np.nan

    run = Run(True)
    assert "Validation is a tenth of train here" in grids.of_specialization(run).methods
    assert "a tenth" not in grids.of_specialization(Run(False)).methods
    assert "too few seeds" in grids.of_specialization(run).findings[-1]
    run.low = 2.0
    assert "above 0 for 1 of 1 results" in grids.of_specialization(run).findings[-1]


def test_no_minus_zero_and_an_average_over_different_metrics_in_a_table_says_so() -> None:
    assert number(-0.04) == number(0.0) == "0.0"
    assert number(-0.04, sign=True) == "+0.0"
    assert number(-0.06) == "-0.1"
    rows = {
        "method": "iat",
        "seed": 0,
        "split": "validation",
        "chance": 0.5,
        "examples": 9,
        "at_chance": False,
    }
    scores = pd.DataFrame(
        [
            {**rows, "task": "a", "score": 0.8, "metric": "count-f1"},
            {**rows, "task": "b", "score": 0.9, "metric": "accuracy"},
        ]
    )
    table = TrainingResult(scores, pd.DataFrame(), pd.DataFrame(), {}).table()
    assert table["metric"].to_list() == ["F1", "accuracy", "different metrics"]
