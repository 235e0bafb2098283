"""The result of a training: the model, every example's prediction, the scores, the losses."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headwise._base.parsing import read_json, reading
from headwise._base.writing import room_in
from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.sections import Described, Section
from headwise.store import manifest, save_model, write_text
from headwise.tasks import metric_label
from headwise.training._masks import from_json, to_json

if TYPE_CHECKING:
    from headwise.evaluation import Evaluation
    from headwise.models import MultiTaskModel, TaskModel

TRAINING_FILE = "training.json"  # written last: a folder that has it is whole
TABLES = ("scores", "predictions", "history")
SEVERAL = "single-task"


@dataclass(repr=False)
class TrainingResult(Described):
    """What `headwise.train` returns.

    Attributes:
        scores: one row per task and split: metric, score (a share, 1 is perfect), chance, whether the score
            is at chance (see `Evaluation.at_chance`), examples.
        predictions: one row per example: task, split, example, label and prediction (or counts), loss.
        history: one row per step: step, task, loss.
        description: model, method, settings; seconds (of all attempts together, where a training was
            resumed), attempts (the seconds of each), processes (that worked on it at once).
        heads: the head sets a method chose for each task, if it chose any.
        models: the trained model under "", or after single-task training one for each task.
        folder: where it was saved.
    """

    scores: pd.DataFrame
    predictions: pd.DataFrame
    history: pd.DataFrame
    description: dict[str, Any]
    heads: dict[str, HeadSet] = field(default_factory=dict)
    models: "dict[str, MultiTaskModel | TaskModel]" = field(default_factory=dict)
    folder: Path | None = None

    def section(self) -> Section:
        """What is said of this training."""
        from headwise.training._section import trainings_section

        return trainings_section([self])

    @property
    def model(self) -> Any:
        """The trained model; after single-task training a dict of models by task."""
        if not self.models and self.folder is not None:
            from headwise.store import load

            loaded = load(self.folder)
            self.models = loaded if isinstance(loaded, dict) else {"": loaded}
        return self.models.get("", self.models)

    def table(self, split: str = "validation") -> pd.DataFrame:
        """Tasks × (metric, score, chance, examples), scores in percent, with their average as the last
        row."""
        rows = self.scores[self.scores["split"] == split].drop(columns="split").copy()
        rows[["score", "chance"]] = (100 * rows[["score", "chance"]]).round(2)
        rows["metric"] = rows["metric"].map(metric_label)
        mixed = "different metrics" if rows["metric"].nunique() > 1 else ""
        average = {
            "task": "average",
            "metric": mixed,
            "score": round(float(rows["score"].mean()), 2),
            "chance": np.nan,
        }
        rows = pd.concat([rows, pd.DataFrame([{**average, "examples": rows["examples"].sum()}])])
        return rows.set_index("task")

    def save(self, folder: str | Path, overwrite: bool = False, *, begun: bool = False) -> None:
        """Writes models and tables.

        Args:
            folder: where; a new one appears whole or not at all.
            overwrite: put them in the place of another model that is there.
            begun: the training is under way in the folder, where single tasks have saved their models
                already.

        Raises:
            HeadwiseError: another model is there.
        """

        def write(aside: Path) -> dict[str, Any]:
            several = self.description["method"] == SEVERAL
            if several:
                fields = {"kind": SEVERAL, "tasks": list(self.description["tasks"])}
            else:
                fields = self.model.write(aside)
            if several and not begun:
                for name, model in self.model.items():
                    model.save(aside / name)
            for name in TABLES:
                table: pd.DataFrame = getattr(self, name)
                with room_in(aside):
                    table.to_parquet(aside / f"{name}.parquet", index=False)
            record = {"description": self.description, "heads": to_json(self.heads)}
            write_text(aside / TRAINING_FILE, json.dumps(record, indent=1) + "\n")
            return dict(fields)

        save_model(folder, write, overwrite, begun=begun)
        self.folder = Path(folder)

    @classmethod
    def load(cls, folder: str | Path) -> "TrainingResult":
        """Reads a saved result; the model is opened when it is asked for."""
        folder = Path(folder)
        if not (folder / TRAINING_FILE).is_file():
            raise HeadwiseError(f"{folder} holds no finished training: there is no {TRAINING_FILE} in it")
        record = read_json(folder / TRAINING_FILE)
        if (folder / manifest.NAME).is_file():
            manifest.check(
                folder, manifest.read(folder), TRAINING_FILE, *(f"{name}.parquet" for name in TABLES)
            )
        with reading(folder, "a finished training, so it is damaged"):
            scores, predictions, history = (pd.read_parquet(folder / f"{name}.parquet") for name in TABLES)
            return cls(
                scores,
                predictions,
                history,
                dict(record["description"]),
                from_json(record["heads"]),
                folder=folder,
            )


def score_rows(evaluations: "list[Evaluation]") -> pd.DataFrame:
    """The score of each evaluation, beside chance."""
    rows = []
    for evaluation in evaluations:
        row = {
            "task": evaluation.task.name,
            "split": evaluation.split,
            "metric": evaluation.task.metric,
            "score": evaluation.score,
        }
        rows.append(
            {
                **row,
                "chance": evaluation.chance,
                "at_chance": evaluation.at_chance,
                "examples": len(evaluation),
            }
        )
    return pd.DataFrame(rows)
