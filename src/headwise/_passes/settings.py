"""What estimators and lesions read: settings declared once, without torch."""

from typing import Any, Literal

from headwise.settings import Opening, option


class Reading(Opening):
    """What every estimator and every lesion reads, beside its own settings."""

    split: str = option("train", "Split of the data to read.")
    examples: int | None = option(10_000, "At most this many examples of the split, drawn at random; None: all.", ge=1)
    max_length: int | None = option(
        None, "Maximum number of tokens per text; default: as in the model's training, else 256.", ge=1
    )
    batch_size: int | None = option(None, "Examples per batch; the result does not depend on it.", ge=1, decides=False)
    precision: Literal["float32", "tf32", "bf16"] = option(
        "float32",
        "Arithmetic of all passes, intact and lesioned: bf16 (automatic mixed precision), tf32 (NVIDIA GPUs), or float32, the "
        "type of the weights.",
    )
    seed: int = option(0, "Random seed.", ge=0)
    silenced: Any = option(None, "Heads to keep silenced throughout, a HeadSet.", live=True)
    tokenizer: Any = option(None, "Tokenizer of a plain transformers model; default: the one saved with its weights.", live=True)
    heads: Any = option(None, "The model's `Heads`, if already built.", live=True)
    quiet: bool = option(False, "Do not show progress.", decides=False)
