"""`Steering`: heads, directions, the strength that was chosen, and what each strength does."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor, nn

from headwise._base.least import EXPLAINED
from headwise._base.opener import read_tensors
from headwise._base.parsing import read_json
from headwise._base.sentences import NOT_SHOWN, between, no_interval, number, sign
from headwise._base.tables import csv_text, read_csv
from headwise._base.writing import save_tensors
from headwise.errors import HeadwiseError
from headwise.figures import language as figures
from headwise.heads import Heads, UnsupportedModel
from headwise.models import SavedTask, as_task_model
from headwise.sections import Chart, Described, Section, Table
from headwise.store import manifest, sealed_text, write_text

KIND, MODEL = "steering", "model"
VECTORS, FACTS, TABLES = "vectors.safetensors", "steering.json", ("table", "heads")
REPORTED = "test"
DIRECTIONS = {
    "mean": "the mean output on the target class minus that on the others",
    "probe": "its probe's weights",
}


@dataclass(repr=False)
class Steering(Described):
    """The result of `headwise.steer`.

    Attributes:
        table: one row per split ("validation" chose the strength, "test" is reported) and strength: effect,
            its change from the intact model, KL divergence from the intact model per token and, for pairs,
            accuracy; each with its interval over examples.
        heads: the steered heads, best probe first: accuracy on validation and test, and σ.
        vectors: by head what a strength of 1 adds to its output: σ times the unit direction.
        strength: the chosen strength; 0 if no strength raised the effect within the limit on KL.
        settings: how it was found.
        notes: what a reader must know.
    """

    table: pd.DataFrame
    heads: pd.DataFrame
    vectors: dict[tuple[int, int], Tensor]
    strength: float
    settings: dict[str, Any]
    notes: list[str] = field(default_factory=list)

    def applied(self, heads: Heads, strength: float | None = None) -> AbstractContextManager[None]:
        """Inside the block the model is steered, `generate()` included.

        Args:
            heads: of the model, or of another of the same shape.
            strength: default: the chosen one.
        """
        scale = self._strength(strength)
        return heads.steered(self.vectors, scale) if scale else nullcontext()

    def bake(self, heads: Heads, strength: float | None = None) -> nn.Module:
        """The model with the steering written into its biases, see `Heads.bake`.

        Raises:
            HeadwiseError: the chosen strength is 0.
            UnsupportedModel: plain transformers could not load the result.
        """
        scale = self._strength(strength)
        if not scale:
            raise HeadwiseError(
                "the chosen strength is 0: no strength raised the effect, so there is nothing to write"
            )
        return heads.bake(self.vectors, scale)

    def _strength(self, strength: float | None) -> float:
        return self.strength if strength is None else strength

    def section(self) -> Section:
        """What is said of this steering: what the chosen strength does, every strength, the steered heads."""
        facts = self.settings
        effect = f"log p per token, {facts['target']} − others"
        if facts["pairs"]:
            effect = "log p(good) − log p(bad)"
        bounds = f"{100 * facts['level']:g} % intervals over examples"
        if self.table["effect_low"].isna().all():
            bounds = "no intervals"
        names = [f"{layer}.{head}" for layer, head in self.heads[["layer", "head"]].to_numpy()]
        return Section(
            title=f"Steering towards {facts['target']}",
            findings=self._findings(),
            blocks=[
                Chart(
                    "steering",
                    "Effect and distance from the intact model, by strength",
                    partial(
                        figures.strengths, self.table, self.strength, effect.replace("token, ", "token,\n")
                    ),
                    f"The validation split chose the strength (dotted: {self.strength:g}); the test split is "
                    "reported.",
                ),
                Table(
                    "steering",
                    "Every strength on both splits",
                    self.table,
                    f"Effect: {effect}; change: from the intact model; kl: nats per token; {bounds}; "
                    f"chosen on validation: {self.strength:g}.",
                ),
                Table(
                    "steering-heads",
                    "Steered heads",
                    self.heads.assign(head=names).drop(columns="layer"),
                    "Accuracy of a head's probe; sigma: standard deviation of its output along the "
                    "direction.",
                ),
            ],
            methods=(
                "Inference-time intervention (Li et al. 2023): a logistic probe of every head's output at "
                f"the last token, fitted on the training statements of {facts['task']}; the heads with the "
                f"best probes on validation; a direction of each, {DIRECTIONS[facts['directions']]}; "
                "strength × σ × direction is added at all tokens. The strength with the largest effect on "
                f"the validation split within {facts['max_kl']:g} nats per token was chosen. Intervals are "
                f"over examples: one model, heads and directions fixed. {EXPLAINED}."
            ),
            settings=facts,
            notes=self.notes,
            values={"strength": self.strength},
        )

    def _findings(self) -> list[str]:
        """What the chosen strength does on the reported split, by its interval; and the best probe."""
        facts = self.settings
        effect = f"the lead of {facts['target']} statements over the others in log p"
        if facts["pairs"]:
            effect = "the mean of log p(good) − log p(bad)"
        best = self.heads.iloc[0]
        probe = (
            f"The probe of head {int(best['layer'])}.{int(best['head'])}, best on validation, "
            f"classifies {number(100 * best['test'])} % of the test statements correctly."
        )
        if not self.strength:
            limit = f"the limit of {facts['max_kl']:g} nats per token on the validation split"
            return [f"No strength raised {effect} within {limit}.", probe]
        reported = self.table[self.table["split"] == REPORTED].set_index("strength")
        row = reported.loc[self.strength]
        low, high = row["change_low"], row["change_high"]
        direction = sign(low, high)
        verb = {1: "raises", -1: "lowers", 0: "changes"}[direction]
        doubt = ""
        if pd.isna(low):
            doubt = f": {no_interval(row['note'])}"
        elif not direction:
            doubt = f": {NOT_SHOWN}"
        sentences = [
            f"Steering {len(self.heads)} of {facts['heads_total']} heads towards {facts['target']} with "
            f"strength {self.strength:g} {verb} {effect} by {number(row['change'], 2, sign=True)}"
            f"{between(low, high, 2, facts['level'])} on the test split, at {number(row['kl'], 2)} nats per "
            f"token from the intact model{doubt}."
        ]
        if "accuracy" in reported:
            intact, steered = reported["accuracy"].loc[0.0], row["accuracy"]
            sentences.append(
                f"The good text is the likelier one in {number(100 * intact)} % of the pairs with the intact "
                f"model, and in {number(100 * steered)} % with the steered one."
            )
        return [*sentences, probe]

    def save(
        self, folder: str | Path, heads: Heads | None = None, tokenizer: Any = None, **facts: Any
    ) -> None:
        """Writes a folder that `headwise.load` and `headwise eval --steer` read.

        Args:
            folder: must not exist.
            heads: of the model, to save the steered model in `folder`/model as well, if its family allows it;
                `notes` says if not.
            tokenizer: saved with that model.
            facts: further fields of the manifest.
        """
        with manifest.new_folder(folder, KIND, **facts) as aside:
            if heads is not None:
                try:
                    task = SavedTask(str(self.settings["task"]), "next-token", (), "token-accuracy")
                    as_task_model(self.bake(heads), tokenizer, task).save(aside / MODEL)
                except (UnsupportedModel, HeadwiseError) as error:
                    self.notes.append(f"no steered model was saved: {error}")
            vectors = {f"{layer}.{head}": v.contiguous() for (layer, head), v in self.vectors.items()}
            save_tensors(vectors, aside / VECTORS)
            for name in TABLES:
                write_text(aside / f"{name}.csv", csv_text(getattr(self, name)))
            saved = {"strength": self.strength, "settings": self.settings, "notes": self.notes}
            write_text(aside / FACTS, sealed_text(saved))


def load_folder(folder: Path, record: Mapping[str, Any]) -> Steering:
    """Opens what `Steering.save` wrote; `headwise.load` calls this."""
    facts = read_json(folder / FACTS)
    table, heads = (read_csv(folder / f"{name}.csv") for name in TABLES)
    table["note"] = table["note"].astype(object).fillna("")
    tensors = read_tensors(folder / VECTORS)
    vectors = {}
    for layer, head in heads[["layer", "head"]].to_numpy().astype(int).tolist():
        vectors[layer, head] = tensors[f"{layer}.{head}"]
    return Steering(table, heads, vectors, float(facts["strength"]), facts["settings"], facts["notes"])
