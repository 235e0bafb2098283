"""`HarnessResult`: both models on every task, and every example."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from headwise._base.least import EXPLAINED
from headwise._base.parsing import read_json
from headwise._base.sentences import NOT_SHOWN, between, no_interval, number, sign
from headwise._base.tables import csv_text, read_csv
from headwise.figures import language as figures
from headwise.sections import Chart, Described, Section, Table
from headwise.store import manifest, sealed_text, surroundings, write_text

KIND, FACTS, TABLES = "harness-evaluation", "evaluation.json", ("table", "examples")
IN_SENTENCES = 6  # metrics in sentences of their own


@dataclass(repr=False)
class HarnessResult(Described):
    """The result of `headwise.harness.run_harness`.

    Attributes:
        table: by task, filter and metric the intact and the changed model, their difference, and its interval
            over examples.
        examples: one row per task, filter, metric and example.
        settings: how it was run; `change` says what was changed.
        notes: metrics without a value per example.
    """

    table: pd.DataFrame
    examples: pd.DataFrame
    settings: dict[str, Any]
    notes: list[str]

    def section(self) -> Section:
        """What is said of this evaluation: every metric by its interval."""
        change, level = self.settings["change"], self.settings["level"]
        names = self._metric_names()
        intervals = f"{100 * level:g} % intervals of the paired difference over examples"
        intervals += ", where there are enough of them."
        title = "Intact and changed model on every task"
        blocks: list[Chart | Table] = [Table("evaluation", title, self.table, f"{change}; {intervals}")]
        if names:
            draw = partial(figures.differences, self.table.set_axis(names))
            blocks.insert(0, Chart("evaluation", "Changed minus intact model", draw, intervals))
        return Section(
            title="Evaluation of a changed model",
            findings=self._findings(names),
            blocks=blocks,
            methods=(
                "lm-evaluation-harness ran the same requests on the intact and on the changed model "
                f"({change}). The unit is the example: differences are paired, intervals a bootstrap over "
                f"examples, each at its own level. {EXPLAINED}."
            ),
            settings=self.settings,
            notes=self.notes,
        )

    def _metric_names(self) -> list[str]:
        """By row its task and metric, and its filter where a task has several."""
        filters = self.table.groupby("task")["filter"].transform("nunique")
        names = []
        for count, row in zip(filters, self.table.to_dict("records"), strict=True):
            names.append(f"{row['task']}, {row['metric']}")
            if count > 1:
                names[-1] += f" ({row['filter']})"
        return names

    def _findings(self, names: list[str]) -> list[str]:
        """How many metrics rise and fall; and the first ones by their intervals."""
        if not names:
            return ["No metric of these tasks has a value per example, so there is nothing to compare."]
        signs, sentences = [], []
        for name, row in zip(names, self.table.to_dict("records"), strict=True):
            low, high = row["low"], row["high"]
            signs.append(sign(low, high))
            verdict = {1: "it is higher", -1: "it is lower", 0: NOT_SHOWN}[signs[-1]]
            if pd.isna(low):
                verdict = no_interval(row["note"])
            sentences.append(
                f"{name}: {number(row['intact'], 3)} intact, {number(row['changed'], 3)} changed, a "
                "difference of "
                f"{number(row['difference'], 3, sign=True)}{between(low, high, 3, self.settings['level'])}: "
                f"{verdict}."
            )
        undecided = f"for the others {NOT_SHOWN}."
        without = int(self.table["low"].isna().sum())
        if without:
            undecided = f"there is no interval for {without}; for the rest {NOT_SHOWN}."
        counts = f"raises {signs.count(1)} and lowers {signs.count(-1)} of {len(names)} metrics"
        return [f"The change ({self.settings['change']}) {counts}; {undecided}", *sentences[:IN_SENTENCES]]

    def save(self, folder: str | Path) -> None:
        """Writes a folder that `headwise.load` opens."""
        with manifest.new_folder(folder, KIND, provenance=surroundings()) as aside:
            for name in TABLES:
                write_text(aside / f"{name}.csv", csv_text(getattr(self, name)))
            write_text(aside / FACTS, sealed_text({"settings": self.settings, "notes": self.notes}))


def load_folder(folder: Path, record: Mapping[str, Any]) -> HarnessResult:
    """Opens what `HarnessResult.save` wrote; `headwise.load` calls this."""
    facts = read_json(folder / FACTS)
    table, examples = (read_csv(folder / f"{name}.csv") for name in TABLES)
    table["note"] = table["note"].astype(object).fillna("")
    return HarnessResult(table, examples, facts["settings"], facts["notes"])
