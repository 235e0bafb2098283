"""Settings of evaluations: declared once, without torch."""

from pathlib import Path

from headwise._passes.settings import Reading
from headwise.settings import OUT, Resampling, option


class Evaluating(Resampling, Reading):
    """Settings of `headwise.evaluate`."""

    out: Path | None = OUT

    split: str = option("validation", "Split of the data to evaluate on.")
    examples: int | None = option(
        None, "At most this many examples per task, drawn at random; default: all.", ge=1
    )
