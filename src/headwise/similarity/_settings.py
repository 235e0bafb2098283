"""What the similarity of tasks can be told: settings declared once, without torch."""

from typing import Literal

from headwise.engine._recipe import ModelName
from headwise.settings import DataPath, Settings, option


class Similarity(Settings):
    """Settings of `headwise.studies.similarity_study` and of a recipe of kind "similarity"; each metric is computed if its data is given."""

    sentences: DataPath | None = option(None, "Sentences for DSE and CRA: text (one a line), csv or parquet (column sentence).")
    sentence_count: int = option(1000, "Sentences that are read, from the first.", ge=10)
    pooling: Literal["cls", "last", "mean"] = option("mean", "How a sentence's token states become one vector.")
    brain: DataPath | None = option(None, "Brain responses for CNM (Pereira et al. 2018).")
    ahp: bool = option(False, "Fine-tune each task's model on every task, for AHP.")
    shots: int = option(1000, "Training examples of each such transfer.", ge=2)
    seeds: int = option(1, "Fine-tunings of each such transfer.", ge=1)
    evaluate: int | None = option(1000, "Held-out examples of each such transfer, at most.", ge=10)
    multitask: ModelName | None = option(None, "A multi-task model: compares tasks by their head scores.")
    score_examples: int = option(2000, "At most this many training examples of each task to score heads on.", ge=1)
    dissociation: DataPath | None = option(None, "Correlate with this folder (or table of pairs) of `headwise dissociate`.")
    alternative: Literal["two-sided", "less", "greater"] = option(
        "less", "What is tested of that correlation; less: similar tasks dissociate less."
    )
