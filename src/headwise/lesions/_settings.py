"""Settings of lesions and dissociations: declared once, without torch."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from headwise._base.least import MIN_DRAWS
from headwise.scoring import Estimation, Reading
from headwise.settings import OUT, Resampling, option

HELD_OUT = "Held-out split on which lesions are evaluated."
JUDGED = "At most this many held-out examples per task, drawn at random; default: all."


class Lesion(Reading):
    """Settings of `headwise.lesion`."""

    split: str = option("validation", HELD_OUT)
    examples: int | None = option(None, JUDGED, ge=1)
    how: Literal["zero", "mean", "resample"] = option(
        "zero",
        "Output of a silenced head: zero; its mean over training examples of the task; or its output for a "
        "training example drawn at random (resample).",
    )
    reference_examples: int = option(256, "Training examples for mean and resample.", ge=1)
    way: str = option(
        "auto",
        "How lesions to zero are run, see `headwise._passes.lesioned`; results agree up to rounding.",
        decides=False,
    )


class Dissociate(Resampling, Estimation):
    """Settings of `headwise.dissociate`: the `[lesions]` table of a recipe; the defaults are the paper's, or
    say what is added to it."""

    out: Path | None = OUT

    fraction: float = option(0.3, "Fraction of all heads to silence for each task (α).", gt=0, lt=1)
    fractions: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = option(
        (), "More fractions, for a sweep over α."
    )
    scores: Any = option(
        None,
        "Existing head scores (task, layer, head), or the folder of `headwise score --out`, to use instead "
        "of scoring again.",
    )
    random_draws: int = option(10, "Number of random head sets of the same size, for the random row.", ge=0)
    test_draws: int = option(
        0,
        "Re-splits in the test of D for each pair of tasks: 0 (no test), or 199 or more; each costs 4 "
        "evaluations.",
        ge=0,
    )
    matched_draws: int = option(
        0,
        "Sets drawn in the test of whether a task's heads are its own, for each task: 0 (no test), or 199 or "
        "more; each costs an evaluation of every task.",
        ge=0,
    )
    within_layers: bool = option(False, "Re-split heads within their layers only.")
    also: tuple[Literal["mean", "resample"], ...] = option(
        (), "Also silence heads by mean, by resample, or both; see `headwise.lesion`."
    )
    min_per_layer: int = option(0, "Number of heads per layer that are never silenced.", ge=0)
    split: str = option("validation", HELD_OUT)
    examples: int | None = option(None, JUDGED, ge=1)
    score_examples: int | None = option(
        10_000, "At most this many training examples per task for scoring heads; in Python, None: all.", ge=1
    )

    @field_validator("test_draws", "matched_draws")
    @classmethod
    def _enough_draws(cls, value: int, info: ValidationInfo) -> int:
        if 0 < value < MIN_DRAWS:
            drawn = "re-splits" if info.field_name == "test_draws" else "sets"
            raise ValueError(f"given {value}; the test needs {MIN_DRAWS} {drawn} or more (0: no test)")
        return value
