"""What estimators and lesions read: settings declared once, without torch."""

from typing import Any, Literal

from headwise.settings import HEADS, QUIET, SEED, TOKENIZER, Opening, option


class Reading(Opening):
    """What every estimator and every lesion reads, beside its own settings."""

    split: str = option("train", "Split of the data to read.")
    examples: int | None = option(
        10_000, "At most this many examples of the split, drawn at random; None: all.", ge=1
    )
    max_length: int | None = option(
        None, "Maximum number of tokens per text; default: as in the model's training, else 256.", ge=1
    )
    batch_size: int | None = option(
        None, "Examples per batch; the result does not depend on it.", ge=1, decides=False
    )
    precision: Literal["float32", "tf32", "bf16"] = option(
        "float32",
        "Arithmetic of all passes, intact and lesioned: bf16 (automatic mixed precision), tf32 (NVIDIA "
        "GPUs), or float32 (no mixed precision: the weights' own type).",
    )
    seed: int = SEED
    silenced: Any = option(None, "Heads to keep silenced throughout, a HeadSet.", live=True)
    tokenizer: Any = TOKENIZER
    heads: Any = HEADS
    quiet: bool = QUIET
