"""Per-example counts (correct, predicted, gold) of predicted structures, worked out only where they are
read."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.models._decoders.output import DecoderOutput


class DecodedLater(DecoderOutput):
    """A decoder's output whose prediction is worked out when it is first read: decoding trees costs more than
    the loss, and training does not read it."""

    def __init__(self, loss: Tensor, decode: Callable[[], Tensor], logits: Any) -> None:
        self.loss, self.logits = loss, logits
        self._decode = decode
        self._prediction: Tensor | None = None
        device = loss.device.type
        self._cast: Any = nullcontext()  # decoding uses the precision of the pass, wherever it is read
        if torch.is_autocast_enabled(device):
            self._cast = torch.autocast(device, torch.get_autocast_dtype(device))

    @property
    def prediction(self) -> Tensor:  # type: ignore[override]
        """(batch, 3 or 4) counts, as `tasks.metrics` reads them."""
        if self._prediction is None:
            with torch.no_grad(), self._cast:
                self._prediction = self._decode()
        return self._prediction


def match_counts(predicted: NDArray[np.int64], gold: NDArray[np.int64], batch: int) -> NDArray[np.int64]:
    """How many rows agree, sentence by sentence; a row that occurs twice must be predicted twice.

    Args:
        predicted: (rows, columns), the first column being the number of the sentence; the others
            non-negative.
        gold: (rows, columns), the same.
        batch: number of sentences.

    Returns:
        (batch, 3) correct, predicted, gold.
    """
    both, inverse = np.unique(np.concatenate([predicted, gold]), axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    size = len(both)
    times_predicted = np.bincount(inverse[: len(predicted)], minlength=size)
    times_gold = np.bincount(inverse[len(predicted) :], minlength=size)
    correct = np.bincount(both[:, 0], weights=np.minimum(times_predicted, times_gold), minlength=batch)
    n_predicted = np.bincount(predicted[:, 0], minlength=batch)
    n_gold = np.bincount(gold[:, 0], minlength=batch)
    return np.stack([correct.astype(np.int64), n_predicted, n_gold], 1)


def table(*columns: Tensor) -> NDArray[np.int64]:
    """Columns on any device as one array (rows, columns) for `match_counts`."""
    return torch.stack(columns, 1).long().cpu().numpy()


def real_rows(labels: Tensor) -> Tensor:
    """Label rows of a list without those that only fill a padded batch."""
    return labels[labels[:, 0] >= 0]
