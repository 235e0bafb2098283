"""Decoders that read one vector per text: classes and numbers."""

from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.models._decoders.output import DecoderOutput, TaskLike
from headwise.models._families import HeadShape, head_shape
from headwise.models._finite import UNANSWERED
from headwise.models._pooling import default_pooling, pool
from headwise.tasks import KINDS

UNLABELLED = -1
ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "gelu": nn.functional.gelu}


class SequenceDecoder(nn.Module):
    """Classification (cross-entropy) or regression (squared error) of whole texts.

    A number is learnt on the scale of its training targets: the layers give (y − mean) ÷ sd, and the loss is
    the squared error there, so that it starts near 1 whatever the unit, as cross-entropies do. Predictions
    and logits are in the task's own unit.

    Args:
        dim: width of the encoder.
        classes: how many there are; 0: the answer is a number.
        pooling: "cls", "last" or "mean".
        shape: the layers between the pooled state and the logits.
        std: standard deviation of the initial weights.

    Attributes:
        mean, sd: of the training targets, (1,); only for numbers, and saved with the weights. An sd of 0: not
            known yet; then the loss is in the task's own unit.
    """

    mean: Tensor
    sd: Tensor

    def __init__(self, dim: int, classes: int, pooling: str, shape: HeadShape, std: float = 0.02) -> None:
        super().__init__()
        self.numbers, self.pooling, self.shape = not classes, pooling, shape
        self.dense = nn.Linear(dim, dim) if shape.dense else None
        self.out = nn.Linear(dim, classes or 1, bias=shape.bias)
        self.drop_in, self.drop_out = nn.Dropout(shape.dropout_in), nn.Dropout(shape.dropout_out)
        self.act = ACTIVATIONS[shape.activation]
        if self.numbers:
            self.register_buffer("mean", torch.zeros(1))
            self.register_buffer("sd", torch.zeros(1))
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
        if not self.numbers:
            return class_output(logits, batch)
        # copies of one decoder, trained side by side, have one mean and sd each
        rows = len(logits) // len(self.sd)
        mean, sd = self.mean.repeat_interleave(rows), self.unit.repeat_interleave(rows)  # (batch,)
        numbers = logits.squeeze(-1) * sd + mean  # (batch,)
        loss = (logits.squeeze(-1) - (batch.labels.float() - mean) / sd).square()  # (batch,)
        return DecoderOutput(loss, numbers.detach(), numbers.unsqueeze(-1))

    @property
    def unit(self) -> Tensor:
        """What one unit of the loss's scale is in the task's own, (1,): the sd of the training targets; 1
        while they are not known."""
        return torch.where(self.sd > 0, self.sd, 1.0)

    def standardise(self, targets: Any) -> None:
        """Takes mean and standard deviation of training targets, once: weights that were trained under others
        keep them.

        Args:
            targets: (examples,) numbers. Where all are equal the sd is 1.
        """
        if not self.numbers or bool((self.sd > 0).all()):
            return
        numbers = torch.as_tensor(targets, dtype=torch.float64)
        sd = float(numbers.std(correction=0))
        self.mean.fill_(float(numbers.mean()))
        self.sd.fill_(sd if sd > 0 else 1.0)


def class_output(logits: Tensor, batch: Any) -> DecoderOutput:
    """Cross-entropies and classes from logits (batch, classes).

    The loss is NaN where there is no label, the class `UNANSWERED` where the logits are no numbers.
    """
    labels = batch.labels
    loss = nn.functional.cross_entropy(logits, labels, reduction="none", ignore_index=UNLABELLED)  # (batch,)
    wrong = logits.isnan().any(dim=-1) | logits.isinf().all(dim=-1)  # (batch,), with no class to be read
    prediction = logits.detach().argmax(dim=-1).masked_fill(wrong, UNANSWERED)
    return DecoderOutput(loss.masked_fill(labels == UNLABELLED, torch.nan), prediction, logits)


def number_output(logits: Tensor, batch: Any) -> DecoderOutput:
    """Squared errors and numbers from logits (batch, 1), in the task's own unit."""
    prediction = logits.squeeze(-1)  # (batch,)
    return DecoderOutput((prediction - batch.labels.float()).square(), prediction.detach(), logits)


def build(task: TaskLike, dim: int, *, config: Any = None, pooling: str | None = None) -> SequenceDecoder:
    """A sequence decoder for `task`, shaped as the family of `config` shapes its own classifiers.

    Args:
        task: of kind "classes" or "number".
        dim: width of the encoder.
        config: the encoder's configuration; without it the plain shape is used.
        pooling: "cls", "last", "mean"; default: the family's own.
    """
    classes = len(task.classes)
    if classes < 2 and not KINDS[task.kind].numbers:
        raise HeadwiseError(
            f"task {task.name!r} has {classes} classes; a classification task needs at least 2"
        )
    if config is None:
        return SequenceDecoder(dim, classes, pooling or "cls", HeadShape())
    pooling = pooling or default_pooling(config)
    std = config.to_dict().get("initializer_range", 0.02)
    return SequenceDecoder(dim, classes, pooling, head_shape(config, pooling), std)
