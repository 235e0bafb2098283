"""Dynamic pruning: gates on all heads learn together with the model (He & Choi 2021)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.heads import Heads
from headwise.models import DecoderOutput
from headwise.scoring import concrete, count_for
from headwise.settings import option
from headwise.training._settings import Train
from headwise.training.methods.base import Method

if TYPE_CHECKING:
    from headwise.training._loop import TrainingRun

GAIN = 10.0  # a head that saves 0.1 of the loss keeps itself open against 1 % of heads too many


class _Gates(nn.Module):
    """A model whose head outputs pass through hard-concrete gates, drawn for every row, with the price of
    open gates in the loss."""

    def __init__(self, model: Any, method: "GatedTraining", heads: Heads) -> None:
        super().__init__()
        self.model, self.log_a = model, nn.Parameter(torch.full(heads.shape, method.options.start))
        self._method, self._heads = method, heads
        self.register_buffer("valid", heads.valid.float())
        self.register_buffer(
            "step", torch.zeros(()), persistent=False
        )  # on the device, where a captured step can count

    valid: Tensor
    step: Tensor

    def forward(self, name: str, batch: Any) -> DecoderOutput:
        if not self.training:
            with self._heads.gated(concrete.at_test(self.log_a)):
                output: DecoderOutput = self.model(name, batch)
            return output
        rows = len(batch.owner)
        noise = torch.rand((rows, *self.log_a.shape), device=self.log_a.device)  # (rows, layers, heads)
        with self._heads.gated(concrete.sample(self.log_a, noise)):
            output = self.model(name, batch)
        open_now = (concrete.open_probability(self.log_a) * self.valid).sum()
        # Every example pays, so that the mean pays once. The price has gradients but no value: while it pays
        # for opening gates it would make
        # losses negative, and balancing would reverse all gradients.
        output.loss = output.loss + self._method.price(open_now.detach(), self.step) * (
            open_now - open_now.detach()
        )
        return output


class GatedTraining(Method):
    """Gates on all heads, shared by the tasks of a training, learn together with the model; afterwards it
    answers through them.

    An open gate costs GAIN × (open − target) ÷ all heads, in units of the loss, and is paid for while too few
    are open, so that every training keeps as many. The target falls from all heads to the fraction over the
    first half of the steps. `gate_learning_rate` times the number of steps should be 10 or more, or gates
    cannot get there.
    """

    name: ClassVar[str] = "gated"
    steps_alike: ClassVar[bool] = True

    class Options(Method.Options):
        fraction: float = option(0.3, "Share of all heads to leave open, in expectation.", ge=0, le=1)
        penalty: float | None = option(
            None,
            "A fixed price of an open gate instead, in units of the loss; then the number of heads differs "
            "between tasks.",
        )
        start: float = option(2.0, "log a of every gate at the start (2 is nearly always open).")

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.log_a: Tensor | None = None
        self._total, self._steps = 0, 1
        self._counted = torch.zeros(())

    def settings(self, settings: Train) -> Train:
        # evaluations on the way would see the model without its gates
        return settings.with_changes(evaluate="end", early_stopping=None)

    def trained(self, run: "TrainingRun") -> nn.Module:
        self._total, self._steps = run.heads.total, len(run.plan)
        if self.options.penalty is None and not count_for(self.options.fraction, self._total):
            raise HeadwiseError(
                f"fraction {self.options.fraction} of the model's {self._total} heads is less than one head: "
                "give a larger fraction"
            )
        gates = _Gates(run.model, self, run.heads).to(run.model.device)
        self.log_a, self._counted = gates.log_a, gates.step
        return gates

    def price(self, open_now: Tensor, step: Tensor) -> Tensor | float:
        """The price of one more open gate, `open_now` being open now, in step `step`."""
        if self.options.penalty is not None:
            return self.options.penalty
        target = self._total - (self._total - count_for(self.options.fraction, self._total)) * (
            2 * step / self._steps
        ).clamp(max=1)
        return GAIN * (open_now - target) / self._total

    @contextmanager
    def around_step(self, run: "TrainingRun", task: str) -> Iterator[None]:
        yield
        self._counted += 1

    def finish(self, run: "TrainingRun") -> None:
        """From here on the model answers with its gates at their test values."""
        set_gates(run.model, dict.fromkeys(run.names, self.gates), run.heads)

    @classmethod
    def restore(cls, model: Any, record: Any, folder: Path) -> None:
        set_gates(model, {task: torch.tensor(rows) for task, rows in record.items()}, Heads(model.encoder))

    @property
    def expected(self) -> float:
        """How many gates are open, in expectation."""
        return 0.0 if self.log_a is None else float(concrete.open_probability(self.log_a.detach()).sum())

    @property
    def gates(self) -> Tensor:
        """(layers, heads), the gates at test, 0–1."""
        if self.log_a is None:
            raise HeadwiseError("the gates have not been trained yet")
        return concrete.at_test(self.log_a.detach()).cpu()

    def state_dict(self) -> dict[str, Any]:
        return {"step": int(self._counted)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._counted.fill_(int(state["step"]))


def set_gates(model: Any, gates: Mapping[str, Tensor], heads: Heads) -> None:
    """From now on, forward passes of each task run through its gates (layers, heads); a saved model keeps
    this."""
    model.contexts |= {task: partial(heads.gated, values.to(model.device)) for task, values in gates.items()}
    model.notes[GatedTraining.name] = {task: values.tolist() for task, values in gates.items()}
