"""`Steering`: heads, directions, the strength that was chosen, and what each strength does."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor, nn

from headwise._base.opener import read_tensors
from headwise._base.parsing import read_json
from headwise._base.tables import csv_text, read_csv
from headwise._base.writing import save_tensors
from headwise.errors import HeadwiseError
from headwise.heads import Heads, UnsupportedModel
from headwise.models import SavedTask, as_task_model
from headwise.sections import Described, Section
from headwise.store import manifest, sealed_text, write_text

KIND, MODEL = "steering", "model"
VECTORS, FACTS, TABLES = "vectors.safetensors", "steering.json", ("table", "heads")


@dataclass(repr=False)
class Steering(Described):
    """What `headwise.steer` found.

    Attributes:
        table: one row per split ("validation" chose the strength, "test" is reported) and strength: effect, its change from the intact
            model, KL divergence from the intact model per token and, for pairs, accuracy; each with its interval over examples.
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

    def section(self) -> Section:
        """What is said of this steering: what the chosen strength does, every strength, the steered heads."""
        from headwise.steering._section import section

        return section(self)

    def applied(self, heads: Heads, strength: float | None = None) -> AbstractContextManager[None]:
        """Inside the block the model is steered, `generate()` included.

        Args:
            heads: of the model, or of another of the same shape.
            strength: default: the chosen one.
        """
        scale = self.strength if strength is None else strength
        return heads.steered(self.vectors, scale) if scale else nullcontext()

    def bake(self, heads: Heads, strength: float | None = None) -> nn.Module:
        """The model with the steering written into its biases, see `Heads.bake`.

        Raises:
            HeadwiseError: the chosen strength is 0.
            UnsupportedModel: plain transformers could not load the result.
        """
        scale = self.strength if strength is None else strength
        if not scale:
            raise HeadwiseError(
                "the chosen strength is 0: no strength raised the effect, so there is nothing to write"
            )
        return heads.bake(self.vectors, scale)

    def save(
        self, folder: str | Path, heads: Heads | None = None, tokenizer: Any = None, **noted: Any
    ) -> None:
        """Writes a folder that `headwise.load` and `headwise eval --steer` read.

        Args:
            folder: must not exist.
            heads: of the model, to save the steered model in `folder`/model as well, if its family allows it; `notes` says if not.
            tokenizer: saved with that model.
            noted: further fields of the manifest.
        """
        with manifest.new_folder(folder, KIND, **noted) as aside:
            if heads is not None:
                try:
                    name = str(self.settings["task"])
                    baked = as_task_model(
                        self.bake(heads), tokenizer, SavedTask(name, "next-token", (), "token-accuracy")
                    )
                    baked.save(aside / MODEL)
                except (UnsupportedModel, HeadwiseError) as error:
                    self.notes.append(f"no steered model was saved: {error}")
            save_tensors(
                {f"{layer}.{head}": v.contiguous() for (layer, head), v in self.vectors.items()},
                aside / VECTORS,
            )
            for name in TABLES:
                write_text(aside / f"{name}.csv", csv_text(getattr(self, name)))
            facts = {"strength": self.strength, "settings": self.settings, "notes": self.notes}
            write_text(aside / FACTS, sealed_text(facts))


def load_folder(folder: Path, record: Mapping[str, Any]) -> Steering:
    """Opens what `Steering.save` wrote; `headwise.load` calls this."""
    facts = read_json(folder / FACTS)
    vectors = {}
    for name, vector in read_tensors(folder / VECTORS).items():
        layer, head = map(int, name.split("."))
        vectors[layer, head] = vector
    table, heads = (read_csv(folder / f"{name}.csv") for name in TABLES)
    table["note"] = (
        table["note"].astype(object).fillna("") if "note" in table else ""
    )  # older results have none
    order = [(int(layer), int(head)) for layer, head in heads[["layer", "head"]].to_numpy()]
    return Steering(
        table,
        heads,
        {place: vectors[place] for place in order},
        float(facts["strength"]),
        facts["settings"],
        facts["notes"],
    )
