"""Settings of task similarity: declared once, without torch."""

from typing import Literal

from headwise.engine import ModelName
from headwise.settings import DataPath, Settings, option


class Similarity(Settings):
    """Settings of `headwise.studies.similarity_study` and of a recipe of kind "similarity"; each metric is
    computed if its data is given."""

    sentences: DataPath | None = option(
        None, "Sentences for DSE and CRA: text (one per line), csv or parquet (column sentence)."
    )
    sentence_count: int = option(1000, "Number of sentences to read.", ge=10)
    pooling: Literal["cls", "last", "mean"] = option(
        "mean", "How token states are pooled into one sentence vector."
    )
    brain: DataPath | None = option(None, "Brain responses for CNM (Pereira et al. 2018).")
    ahp: bool = option(False, "Fine-tune each task's model on every task, for AHP.")
    shots: int = option(1000, "Training examples per transfer (AHP).", ge=2)
    seeds: int = option(1, "Fine-tuning runs per transfer (AHP).", ge=1)
    evaluate: int | None = option(1000, "At most this many held-out examples per transfer (AHP).", ge=10)
    multitask: ModelName | None = option(None, "Multi-task model for comparing tasks by their head scores.")
    score_examples: int = option(
        2000, "At most this many training examples per task for scoring heads.", ge=1
    )
    dissociation: DataPath | None = option(
        None,
        "Correlate with D: a folder (or table of pairs) of `headwise dissociate`, or of a specialization "
        "study.",
    )
    dissociation_model: str | None = option(None, "The model whose D is taken, where the study has several.")
    alternative: Literal["two-sided", "less", "greater"] = option(
        "less", "Alternative hypothesis of the correlation test; less: similar tasks dissociate less."
    )
