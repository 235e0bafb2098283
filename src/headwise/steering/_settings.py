"""Settings of inference-time intervention: declared once, without torch."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from headwise.settings import OUT, QUIET, SEED, TOKENIZER, Opening, Resampling, option


class Steer(Resampling, Opening):
    """Settings of `headwise.steer`."""

    out: Path | None = OUT
    target: str | None = option(None, "Class of statements to steer towards; default: the last class.")
    top: int | None = option(
        None, "Number of heads to steer, those with the best probes; default: 5 % of all heads.", ge=1
    )
    directions: Literal["mean", "probe"] = option(
        "mean",
        "Direction of a head: mean output on the target class minus that on the others (mean), or its "
        "probe's weights.",
    )
    strengths: tuple[Annotated[float, Field(gt=0)], ...] = option(
        (1.0, 2.0, 5.0, 10.0, 15.0, 20.0),
        "Candidate strengths α, in standard deviations of a head's output.",
        min_length=1,
    )
    max_kl: float = option(
        1.0,
        "Do not choose a strength whose KL divergence from the intact model exceeds this many nats per "
        "token.",
        gt=0,
    )
    bake: bool = option(True, "With --out, also save the steered model, if its family allows it.")
    examples: int | None = option(None, "At most this many examples per split, drawn at random.", ge=10)
    max_length: int = option(256, "Maximum number of tokens per text.", ge=2)
    batch_size: int = option(16, "Examples per batch; the result does not depend on it.", ge=1, decides=False)
    seed: int = SEED
    tokenizer: Any = TOKENIZER
    quiet: bool = QUIET
