"""What estimators and lesions read: settings declared once, without torch."""

from typing import Any

from headwise.settings import Settings, option


class Reading(Settings):
    """What every estimator and every lesion reads, beside its own settings."""

    split: str = option("train", "Split of the data that is read.")
    examples: int | None = option(10_000, "At most this many examples of the split, drawn by the seed; None: all.", ge=1)
    max_length: int | None = option(None, "Tokens at which texts are cut; default: as in the model's training, else 256.", ge=1)
    batch_size: int | None = option(None, "Examples per batch; the result does not depend on it.", ge=1, decides=False)
    seed: int = option(0, "Seed of samples and of everything else that is random.", ge=0)
    silenced: Any = option(None, "Heads that stay silenced throughout, a HeadSet.", live=True)
    tokenizer: Any = option(None, "Tokenizer of a plain transformers model; default: the one beside its weights.", live=True)
    heads: Any = option(None, "The model's `Heads`, if they were found already.", live=True)
    quiet: bool = option(False, "Show no progress.", decides=False)
    trust_remote_code: bool = option(False, "Run code that a model folder brings along; read it first.", decides=False)
