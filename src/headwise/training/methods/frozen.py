"""Frozen encoder: only the decoders learn. The control that tells what fine-tuning adds."""

from typing import TYPE_CHECKING, ClassVar

from headwise.training.methods.base import Method

if TYPE_CHECKING:
    from headwise.training._loop import TrainingRun


class FrozenEncoder(Method):
    """The encoder keeps its pre-trained weights (its dropout stays on, as in every method)."""

    name: ClassVar[str] = "frozen"

    def prepare(self, run: "TrainingRun") -> None:
        run.model.encoder.requires_grad_(False)
