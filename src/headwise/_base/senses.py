"""What scores of heads mean: sizes, or effects with a sign; and what heads are ranked by."""

from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from headwise.errors import HeadwiseError

if TYPE_CHECKING:
    import xarray as xr

Sense = Literal["signed", "magnitude"]
SENSES = get_args(Sense)
MEANING = (
    "'signed' (0: no effect, below 0: in the task's way) or 'magnitude' (the higher, the more important)"
)


def importance(scores: "xr.DataArray", by: str = "magnitude") -> NDArray[np.float64]:
    """What heads are ranked by, in the shape of their scores: sizes of signed scores (`attrs["sense"]`),
    other scores as they are.

    Args:
        scores: of any dims.
        by: "magnitude"; or "signed", which takes all scores as they are.

    Raises:
        HeadwiseError: scores below 0 do not say what they mean, or no head has a score.
    """
    if by not in SENSES:
        raise HeadwiseError(f"by is {by!r}; heads are ranked by 'magnitude' or 'signed'")
    values = check_ranked(scores.to_numpy().astype(float))
    sense = scores.attrs.get("sense")
    if sense is not None and sense not in SENSES:
        raise HeadwiseError(f"the scores' sense is {sense!r}; set attrs['sense'] to {MEANING}")
    if by == "signed" or sense == "magnitude":
        return values
    if sense is None and (values < 0).any():
        raise HeadwiseError(
            "some scores are below 0 and do not say what that means: set scores.attrs['sense'] to "
            f"{MEANING}, or rank them as they are with by='signed'"
        )
    return np.abs(values)


def check_ranked(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values by which heads are ranked, if there are any; single heads without one (layers of fewer heads)
    are NaN.

    Raises:
        HeadwiseError: all are NaN.
    """
    if np.isnan(values).all():
        raise HeadwiseError(
            "the scores are NaN for every head, so there is nothing to rank: compute them with a model whose "
            "losses are numbers (this one's training may have diverged), or select a task that has scores"
        )
    return values
