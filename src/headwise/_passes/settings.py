"""What estimators and lesions read: settings declared once, without torch."""

from typing import Any, Literal

from headwise.settings import Settings, option


class Reading(Settings):
    """What every estimator and every lesion reads, beside its own settings."""

    split: str = option("train", "Split of the data that is read.")
    examples: int | None = option(10_000, "At most this many examples of the split, drawn by the seed; None: all.", ge=1)
    max_length: int | None = option(None, "Tokens at which texts are cut; default: as in the model's training, else 256.", ge=1)
    batch_size: int | None = option(None, "Examples per batch; the result does not depend on it.", ge=1, decides=False)
    precision: Literal["float32", "tf32", "bf16"] = option(
        "float32",
        "Arithmetic of all passes, intact and lesioned alike: bf16 (automatic mixed precision), tf32 (NVIDIA GPUs), or float32, the "
        "type of the weights.",
    )
    dtype: Literal["float32", "bfloat16", "float16", "auto"] | None = option(
        None,
        "Type of the weights of a model that is read from a folder or the hub; auto: as the checkpoint has them. Default: float32, "
        "and on a GPU auto.",
    )
    seed: int = option(0, "Seed of samples and of everything else that is random.", ge=0)
    silenced: Any = option(None, "Heads that stay silenced throughout, a HeadSet.", live=True)
    tokenizer: Any = option(None, "Tokenizer of a plain transformers model; default: the one beside its weights.", live=True)
    heads: Any = option(None, "The model's `Heads`, if they were found already.", live=True)
    device: str | None = option(
        None, "Where a model is opened that is not live yet: cpu, cuda, ...; default: a GPU if there is one.", decides=False
    )
    quiet: bool = option(False, "Show no progress.", decides=False)
    trust_remote_code: bool = option(False, "Run code that a model folder brings along; read it first.", decides=False)
