"""Decoders that read one vector per text: classes and numbers."""

from typing import Any

import torch
from torch import Tensor, nn

from headwise.decoders.families import HeadShape, head_shape
from headwise.decoders.output import DecoderOutput, TaskLike
from headwise.decoders.pooling import default_pooling, pool
from headwise.errors import HeadwiseError

UNLABELLED = -1
ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "gelu": nn.functional.gelu}


class SequenceDecoder(nn.Module):
    """Classification (cross-entropy) or regression (squared error) of whole texts.

    Args:
        dim: width of the encoder.
        outputs: number of classes; 1 for a number.
        kind: "classes" or "number".
        pooling: "cls", "last" or "mean".
        shape: the layers between the pooled state and the logits.
        std: standard deviation of the initial weights.
    """

    def __init__(self, dim: int, outputs: int, kind: str, pooling: str, shape: HeadShape, std: float = 0.02) -> None:
        super().__init__()
        self.kind, self.pooling, self.shape = kind, pooling, shape
        self.dense = nn.Linear(dim, dim) if shape.dense else None
        self.out = nn.Linear(dim, outputs, bias=shape.bias)
        self.drop_in, self.drop_out = nn.Dropout(shape.dropout_in), nn.Dropout(shape.dropout_out)
        self.act = ACTIVATIONS[shape.activation]
        for layer in (self.dense, self.out):
            if layer is not None:
                nn.init.normal_(layer.weight, std=std)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def forward(self, states: Tensor, batch: Any) -> DecoderOutput:
        """From token states (batch, tokens, dim) to one loss and one prediction per text."""
        vector = self.drop_in(pool(states, batch.inputs.get("attention_mask"), self.pooling))  # (batch, dim)
        if self.dense is not None:
            vector = self.act(self.dense(vector))  # (batch, dim)
        logits = self.out(self.drop_out(vector)).float()  # (batch, outputs)
        return sequence_output(self.kind, logits, batch.labels)


def sequence_output(kind: str, logits: Tensor, labels: Tensor) -> DecoderOutput:
    """Losses and predictions from sequence logits (batch, outputs); the loss is NaN where an example has no label."""
    if kind == "number":
        prediction = logits.squeeze(-1)  # (batch,)
        return DecoderOutput((prediction - labels.float()).square(), prediction.detach(), logits)
    loss = nn.functional.cross_entropy(logits, labels, reduction="none", ignore_index=UNLABELLED)  # (batch,)
    return DecoderOutput(loss.masked_fill(labels == UNLABELLED, torch.nan), logits.detach().argmax(dim=-1), logits)


def build(task: TaskLike, dim: int, *, config: Any = None, pooling: str | None = None) -> SequenceDecoder:
    """A sequence decoder for `task`, shaped as the family of `config` shapes its own classifiers.

    Args:
        task: of kind "classes" or "number".
        dim: width of the encoder.
        config: the encoder's configuration; without it the plain shape is used.
        pooling: "cls", "last", "mean"; default: the family's own.
    """
    outputs = 1 if task.kind == "number" else len(task.classes)
    if task.kind == "classes" and outputs < 2:
        raise HeadwiseError(f"task {task.name!r} has {outputs} classes; a classification task needs at least 2")
    pooling = pooling or (default_pooling(config) if config is not None else "cls")
    shape = head_shape(config, pooling) if config is not None else HeadShape()
    std = config.to_dict().get("initializer_range", 0.02) if config is not None else 0.02
    return SequenceDecoder(dim, outputs, task.kind, pooling, shape, std)
