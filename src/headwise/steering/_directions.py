"""Which heads tell the statements apart, and along which direction: probes of every head, and the directions
of the best."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.probing import (
    NOT_KEPT,
    SPLIT_NAMES,
    Encoder,
    Labels,
    Probe,
    fit,
    probe_heads,
    ranked_heads,
    record,
)
from headwise.steering._settings import Steer
from headwise.tasks import Examples

SHARE = 20  # one head in twenty, as 48 of the 1,024 heads in Li et al. (2023)


@dataclass(frozen=True)
class Directions:
    """Heads and their vectors.

    Attributes:
        heads: layer, head, accuracy of its probe on validation and test, and σ, best first.
        vectors: by head σ times the unit direction, (head_dim,).
    """

    heads: pd.DataFrame
    vectors: dict[tuple[int, int], Tensor]


def best_directions(
    encoder: Encoder, splits: Mapping[str, Examples], target: int, settings: Steer
) -> Directions:
    """Probes every head for the class `target`, and takes the directions of the best on validation.

    Probes are fitted on train and judged on validation; directions and σ are those of train alone.

    Args:
        encoder: the model; heads are read at the last token.
        splits: labelled statements, "train", "validation" and "test".
        target: number of the class.
        settings: how many heads, and which directions.
    """
    of_target = [(np.asarray(splits[name].labels) == target).astype(np.int64) for name in SPLIT_NAMES]
    for name, labels in zip(SPLIT_NAMES, of_target, strict=True):
        if len(np.unique(labels)) < 2:
            raise HeadwiseError(
                f"the {name} split has statements of one kind only: both the target class and others are "
                "needed"
            )
    labels = Labels("classes", "accuracy", 2, *of_target)
    probing = Probe(device=str(encoder.device), quiet=settings.quiet, seed=settings.seed)
    with tempfile.TemporaryDirectory(prefix="headwise-") as folder:
        recordings = {
            name: record(
                encoder,
                splits[name],
                Path(folder) / name,
                hidden=False,
                dtype="float32",
                max_length=settings.max_length,
                batch_size=settings.batch_size,
                quiet=settings.quiet,
                identity=NOT_KEPT,
            )
            for name in SPLIT_NAMES
        }
        grid, _ = probe_heads(recordings, labels, probing)
        total = encoder.heads.total
        count = settings.top or max(1, total // SHARE)
        if count > total:
            raise HeadwiseError(f"top is {count}; the model has {total} heads")
        heads = ranked_heads(grid["validation"])[:count]
        outputs = {
            head: recordings["train"].heads([head])[0].double() for head in heads
        }  # (examples, head_dim)
    rows, vectors = [], {}
    train = torch.from_numpy(of_target[0])
    for head in heads:
        if settings.directions == "mean":
            direction = outputs[head][train == 1].mean(0) - outputs[head][train == 0].mean(0)
        else:
            strength = float(grid["strength"][head])
            probe = fit(
                outputs[head][None].float(), train, [strength], classes=2, tolerance=probing.tolerance
            )
            direction = probe.weights[0, 0, 0, 0].double()
        length = direction.norm()
        if not float(length) > 0:
            raise HeadwiseError(
                f"head {head} gives both kinds of statement the same output, so it has no direction: lower "
                "top"
            )
        unit = direction / length
        sigma = float((outputs[head] @ unit).std(correction=0))
        vectors[head] = (sigma * unit).float()
        scores = {name: grid[name][head] for name in ("validation", "test")}
        rows.append({"layer": head[0], "head": head[1], **scores, "sigma": sigma})
    return Directions(pd.DataFrame(rows), vectors)
