"""`HarnessResult`: both models on every task, and every example."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from headwise._base.parsing import read_json
from headwise._base.tables import csv_text, read_csv
from headwise.sections import Described, Section
from headwise.store import manifest, sealed_text, surroundings, write_text

KIND, FACTS, TABLES = "harness-evaluation", "evaluation.json", ("table", "examples")


@dataclass(repr=False)
class HarnessResult(Described):
    """What `headwise.harness.run_harness` found.

    Attributes:
        table: by task, filter and metric the intact and the changed model, their difference, and its interval over examples.
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
        from headwise.harness._section import section

        return section(self)

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
    table["note"] = (
        table["note"].astype(object).fillna("") if "note" in table else ""
    )  # older results have none
    return HarnessResult(table, examples, facts["settings"], facts["notes"])
