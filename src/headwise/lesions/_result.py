"""`Dissociation`: what `headwise.dissociate` found, with its tables, its figures, and its folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from headwise._base.tables import csv_text
from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.lesions._analysis import Analysis, analyse
from headwise.lesions._evaluation import Lesions, TaskOutcome
from headwise.lesions._notes import notes, other_test, random_note
from headwise.lesions._statistics import TestOfD, permutation_test
from headwise.lesions._tables import TABLES
from headwise.scoring import SCORES_FILE, load_scores, save_scores
from headwise.sections import Described, Section
from headwise.store import manifest, write_text
from headwise.tasks import KINDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = "dissociation"


@dataclass(frozen=True, repr=False)
class Dissociation(Described):
    """A dissociation study of one model.

    Attributes:
        scores: (task, layer, head), what the heads were chosen by.
        sets: each task's top heads.
        lesions: every example's prediction under every lesion.
        fraction: of heads in each set.
        fractions: further shares of heads (the α sweep).
        also: ways of silencing beside by zero.
        tests: re-split tests of pairs that were run, by (A, B).
        settings: how it was run.
        matched: tests of whether a task's heads are its own that were run, by task.
    """

    scores: xr.DataArray
    sets: dict[str, HeadSet]
    lesions: Lesions
    fraction: float
    fractions: tuple[float, ...]
    also: tuple[str, ...]
    tests: dict[tuple[str, str], TestOfD]
    settings: dict[str, Any]
    matched: dict[str, TestOfD] = field(default_factory=dict)

    def section(self) -> Section:
        """What is said of this study: the finding, figures and tables in the order of the paper."""
        from headwise.lesions._section import section

        return section(self)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks."""
        return tuple(self.sets)

    @property
    def random(self) -> tuple[str, ...]:
        """Names of the random lesions."""
        return tuple(name for name in self.lesions.sets if name.startswith("random "))

    @cached_property
    def analysis(self) -> Analysis:
        """Relative performance, D and their bootstrap draws."""
        return self._analysis(self.tasks)

    @cached_property
    def sweep(self) -> dict[float, Analysis]:
        """The same at every other share of heads."""
        analyses = {}
        for share in self.fractions:
            analyses[share] = self._analysis([at_share(name, share) for name in self.tasks])
        return analyses

    @cached_property
    def kinds(self) -> dict[str, Analysis]:
        """The same for every way of silencing."""
        analyses = {"zero": self.analysis}
        for how in self.also:
            analyses[how] = self._analysis([silenced_by(name, how) for name in self.tasks])
        return analyses

    def _analysis(self, lesion_names: Sequence[str]) -> Analysis:
        settings = {name: self.settings[name] for name in ("bootstrap", "level", "seed")}
        return analyse(self.lesions, self.tasks, lesion_names, **settings)

    @property
    def d(self) -> float:
        """D of all tasks, as a fraction (0.1 = 10 %)."""
        return self.analysis.d

    @cached_property
    def permutation(self) -> TestOfD:
        """The test of D that needs no new lesions: which lesion counts as a task's own is permuted. With too
        few tasks for it, its note says whether the re-split test can be run instead, or what would help."""
        test = permutation_test(self.analysis.rp, seed=self.settings["seed"])
        advice = other_test(self) if test.note else ""
        return replace(test, note=f"{test.note}; {advice}") if advice else test

    @cached_property
    def notes(self) -> list[str]:
        """What a reader must know before trusting the figures."""
        return notes(self)

    @property
    def random_note(self) -> str:
        """What the rows of random sets are, and whether their range is an interval; empty where none was
        drawn."""
        return random_note(len(self.random), self.settings["level"])

    @property
    def synthetic(self) -> tuple[str, ...]:
        """Tasks whose text was generated."""
        return tuple(self.settings.get("synthetic", ()))

    def table(self, kind: str = "performance") -> pd.DataFrame:
        """One of the study's tables, in percent.

        Args:
            kind: "performance" (Table 3), "summary" (D with intervals), "pairs" (verdicts and tests),
                "pairwise" (Table 10), "overlap" (Table 11), "layers" (Fig. 4), "relative" (RP), "corrected"
                (chance-corrected RP), "sweep" (over α), "kinds" (ways of silencing), "matched" (whether a
                task's heads are its own; empty where that was not tested).
        """
        if kind not in TABLES:
            raise HeadwiseError(f"there is no table {kind!r}; choose one of {', '.join(TABLES)}")
        return TABLES[kind](self)

    def plot(self, kind: str = "relative") -> "Figure":
        """One of the study's figures (needs matplotlib, the extra `figures`).

        Args:
            kind: "relative" or "corrected" (heat map of tasks under lesions), "pairs" (D of every pair with
                intervals), "layers" (Fig. 4), "overlap", "scores" (heads by importance, chosen ones framed),
                "sweep" (D over α), "null" (the tests of D).
        """
        from headwise.figures import dissociation as figures, heatmaps

        if kind == "null" and not self.tests:
            raise HeadwiseError(
                "no re-split test was run, so there is no null distribution to plot: call dissociate(..., "
                "test_draws=199)"
            )
        drawn = {
            "relative": lambda: figures.lesion_matrix(
                self.table("relative"), "relative performance (%)", "intact\n≤ 0"
            ),
            "corrected": lambda: figures.lesion_matrix(
                self.table("corrected"), "chance-corrected performance (%)", "not above\nchance", (0, 100)
            ),
            "pairs": lambda: figures.pair_scores(self.table("pairs"), self.settings["level"]),
            "layers": lambda: figures.heads_per_layer(self.table("layers")),
            "overlap": lambda: figures.overlap(self.table("overlap")),
            "scores": lambda: heatmaps(self.scores, chosen=self.sets, legend="importance"),
            "sweep": lambda: figures.sweep(self.table("sweep")),
            "null": lambda: figures.nulls(
                {f"{a} – {b}": (test.d, test.null, test.p) for (a, b), test in self.tests.items()}
            ),
        }
        if kind not in drawn:
            raise HeadwiseError(f"there is no figure {kind!r}; choose one of {', '.join(drawn)}")
        return drawn[kind]()

    @property
    def figures(self) -> list[str]:
        """The kinds of `plot` that this study has."""
        kinds = ["relative", "corrected", "pairs", "layers", "overlap", "scores"]
        if self.fractions:
            kinds.append("sweep")
        if self.tests:
            kinds.append("null")
        return kinds

    def save(self, folder: str | Path, **deciding: Any) -> Path:
        """Writes scores, sets, every prediction and every table; `headwise.load(folder)` opens it. The folder
        appears whole.

        Args:
            folder: where to.
            deciding: further facts for its manifest: what decided the result.

        Raises:
            HeadwiseError: the folder exists already.
        """
        facts = {
            # lists, since a manifest's keys are sorted and the order of lesions and tasks is that of every
            # array
            "sets": [[name, heads.to_json()] for name, heads in self.sets.items()],
            "lesions": [[name, heads.to_json()] for name, heads in self.lesions.sets.items()],
            "lesion_settings": self.lesions.settings,
            "tasks": [[name, outcome.facts()] for name, outcome in self.lesions.tasks.items()],
            "fraction": self.fraction,
            "fractions": list(self.fractions),
            "also": list(self.also),
            "tests": [
                {"a": a, "b": b, "exact": test.exact, **_test_record(test)}
                for (a, b), test in self.tests.items()
            ],
            "matched": [{"task": name, **_test_record(test)} for name, test in self.matched.items()],
            "settings": self.settings,
        }
        with manifest.new_folder(folder, KIND, **facts, **deciding) as aside:
            save_scores(self.scores, aside / SCORES_FILE)
            self.lesions.table().to_parquet(aside / "predictions.parquet", index=False)
            for kind in TABLES:
                write_text(aside / f"{kind}.csv", csv_text(self.table(kind).reset_index()))
        return Path(folder)


def at_share(task: str, fraction: float) -> str:
    """The name of a task's lesion in the α sweep."""
    return f"{task} at {fraction:g}"


def silenced_by(task: str, how: str) -> str:
    """The name of a task's lesion in another way of silencing."""
    return f"{task} by {how}"


def load_folder(folder: Path, record: Mapping[str, Any]) -> Dissociation:
    """Opens what `Dissociation.save` wrote."""
    scores = load_scores(folder / SCORES_FILE)
    predictions = pd.read_parquet(folder / "predictions.parquet")
    sets = {name: HeadSet.from_json(text) for name, text in record["lesions"]}
    outcomes = {
        name: _outcome(predictions[predictions["task"] == name], len(sets), facts)
        for name, facts in record["tasks"]
    }
    return Dissociation(
        scores=scores,
        sets={name: HeadSet.from_json(text) for name, text in record["sets"]},
        lesions=Lesions(sets, outcomes, record["lesion_settings"]),
        fraction=record["fraction"],
        fractions=tuple(record["fractions"]),
        also=tuple(record["also"]),
        tests={(test["a"], test["b"]): _test_of(test) for test in record["tests"]},
        settings=record["settings"],
        # results of before this test have none
        matched={test["task"]: _test_of(test) for test in record.get("matched", ())},
    )


def _test_record(test: TestOfD) -> dict[str, Any]:
    """A test as JSON values, null for NaN."""
    numbers = {name: None if np.isnan(value) else value for name, value in (("d", test.d), ("p", test.p))}
    return {**numbers, "null": test.null.tolist(), "note": test.note}


def _test_of(record: Mapping[str, Any]) -> TestOfD:
    d, p = (np.nan if record[name] is None else float(record[name]) for name in ("d", "p"))
    return TestOfD(d, p, np.array(record["null"]), record.get("exact", False), record["note"])


def _outcome(rows: pd.DataFrame, lesions: int, facts: Mapping[str, Any]) -> TaskOutcome:
    """Rows lie lesion by lesion, example by example, as `Lesions.table` writes them."""
    columns = [name for name in KINDS[facts["kind"]].counts if name in rows and rows[name].notna().all()]
    labels: NDArray[Any] | None = None
    predictions: NDArray[Any]
    if columns:
        predictions = rows[columns].to_numpy().reshape(lesions, -1, len(columns))
    else:
        predictions = rows["prediction"].to_numpy().reshape(lesions, -1)
        labels = rows["label"].to_numpy().reshape(lesions, -1)[0]
    losses = rows["loss"].to_numpy().reshape(lesions, -1)
    return TaskOutcome(
        facts["kind"], facts["metric"], predictions, losses, labels, facts["chance"], facts["ways"]
    )
