"""Which heads tell the statements apart, and along which direction: probes of every head, and the directions of the best."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    Recording,
    fit,
    probe_heads,
    ranked_heads,
    record,
)
from headwise.steering._settings import Steer
from headwise.tasks import Examples

SHARE = 20  # one head in twenty, as 48 of the 1,024 heads in Li et al. (2023)


@dataclass(frozen=True)
class Found:
    """Heads and their vectors.

    Attributes:
        heads: layer, head, accuracy of its probe on validation and test, and σ, best first.
        vectors: by head σ times the unit direction, (head_dim,).
    """

    heads: pd.DataFrame
    vectors: dict[tuple[int, int], Tensor]


def find(encoder: Encoder, splits: Mapping[str, Examples], target: int, settings: Steer) -> Found:
    """Probes every head for the class `target`, and takes the directions of the best on validation.

    Probes are fitted on train and judged on validation; directions and σ are those of train alone.

    Args:
        encoder: the model; heads are read at the last token.
        splits: labelled statements, "train", "validation" and "test".
        target: number of the class.
        settings: how many heads, and which directions.
    """
    arrays = [(np.asarray(splits[name].labels) == target).astype(np.int64) for name in SPLIT_NAMES]
    for name, one in zip(SPLIT_NAMES, arrays, strict=True):
        if len(np.unique(one)) < 2:
            raise HeadwiseError(
                f"the {name} split has statements of one kind only: both the target class and others are needed"
            )
    labels = Labels("classes", "accuracy", 2, arrays[0], arrays[1], arrays[2])
    probing = Probe(device=str(encoder.device), quiet=settings.quiet, seed=settings.seed)
    options: dict[str, Any] = {
        "max_length": settings.max_length, "batch_size": settings.batch_size, "quiet": settings.quiet, "identity": NOT_KEPT
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="headwise-") as folder:
        recordings = {
            name: record(encoder, splits[name], Path(folder) / name, hidden=False, dtype="float32", **options)
            for name in SPLIT_NAMES
        }
        grid, _ = probe_heads(recordings, labels, probing)
        total = encoder.heads.total
        count = settings.top or max(1, total // SHARE)
        if count > total:
            raise HeadwiseError(f"top is {count}; the model has {total} heads")
        rows, vectors = [], {}
        for place in ranked_heads(grid["validation"])[:count]:
            vectors[place], sigma = _vector(
                recordings["train"], place, labels, float(grid["strength"][place]), settings, probing
            )
            scores = {"validation": grid["validation"][place], "test": grid["test"][place], "sigma": sigma}
            rows.append({"layer": place[0], "head": place[1], **scores})
    return Found(pd.DataFrame(rows), vectors)


def _vector(
    recording: Recording,
    place: tuple[int, int],
    labels: Labels,
    strength: float,
    settings: Steer,
    probing: Probe,
) -> tuple[Tensor, float]:
    """σ times the unit direction, and σ: the standard deviation of the outputs along it."""
    x = recording.heads([place])[0].double()  # (examples, dim)
    y = torch.from_numpy(np.asarray(labels.train))
    if settings.directions == "mean":
        direction = x[y == 1].mean(0) - x[y == 0].mean(0)
    else:
        direction = (
            fit(x[None].float(), y, [strength], classes=2, tolerance=probing.tolerance)
            .weights[0, 0, 0, 0]
            .double()
        )
    length = direction.norm()
    if not float(length) > 0:
        raise HeadwiseError(
            f"head {place} gives both kinds of statement the same output, so it has no direction: lower top"
        )
    unit = direction / length
    sigma = float((x @ unit).std(correction=0))
    return (sigma * unit).float(), sigma
