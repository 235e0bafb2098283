"""Part-of-speech tagging: one linear layer on every word."""

from typing import Any

import torch
from torch import Tensor, nn

from headwise.models._decoders.output import DecoderOutput, TaskLike
from headwise.models._decoders.words import pool_words


class TagDecoder(nn.Module):
    """A class for every word.

    Args:
        dim: width of the encoder.
        classes: number of tags.
        dropout: on the word vectors.
    """

    def __init__(self, dim: int, classes: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(dim, classes)

    def forward(self, states: Tensor, batch: Any) -> DecoderOutput:
        """From token states (batch, tokens, dim) to the mean cross-entropy of each sentence's words, and
        (correct, words, words)."""
        logits = self.out(self.dropout(pool_words(states, batch))).float()  # (batch, words, classes)
        gold = batch.labels  # (batch, words), -100 beyond a sentence
        # 0 where gold is -100
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), gold.flatten(), reduction="none")
        right = (logits.argmax(-1) == gold).sum(1)  # (batch,)
        return DecoderOutput(
            loss.view_as(gold).sum(1) / batch.n_words,
            torch.stack([right, batch.n_words, batch.n_words], 1),
            logits,
        )


def build(
    task: TaskLike, dim: int, *, config: Any = None, pooling: str | None = None, **options: Any
) -> TagDecoder:
    """The decoder of a task of kind "tags"; `config` and `pooling` matter to whole-text decoders only."""
    return TagDecoder(dim, len(task.classes), **options)
