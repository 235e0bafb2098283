"""Training the five structured tasks on one encoder: alone, in pairs, together; with gates that learn along, if asked."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import torch
from torch import Tensor, nn

from headwise.decoders import DecoderOutput, MultiTaskModel, open_model
from headwise.errors import HeadwiseError
from headwise.heads import Heads
from headwise.scoring import concrete
from headwise.tasks import KINDS, Task, metrics
from headwise.training.evaluating import evaluate
from headwise.training.methods.base import Method
from headwise.training.run import Run
from headwise.training.settings import TrainingSettings

FIVE = ("pos", "ner", "dep", "con", "srl")
GAIN = 10.0  # a head that saves 0.1 of the loss keeps itself open against 1 % of heads too many

# He & Choi 2021: encoder 5e-5 (1e-5 with gates), decoders 1e-3, warm-up 10 %, clip 1, p ∝ batches^0.8, losses balanced over 5 steps.
PAPER = TrainingSettings(
    epochs=30,
    learning_rate=5e-5,
    decoder_learning_rate=1e-3,
    gate_learning_rate=1e-3,
    warmup=0.1,
    clip=1.0,
    sampling="power",
    power=0.8,
    balance=5,
    max_length=512,
    evaluate="epoch",
)
# A small encoder has more to learn: a higher rate for it, and a little weight decay.
SMALL = PAPER.with_changes(epochs=20, learning_rate=2e-4, weight_decay=0.01, max_length=256, early_stopping=20)


def fit(
    model: str | Path,
    tasks: Sequence[Task],
    settings: TrainingSettings = SMALL,
    method: Method | None = None,
    *,
    random_weights: bool = False,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    folder: str | Path | None = None,
) -> Run:
    """Trains one encoder with a decoder per task, through the one training loop.

    Args:
        model: a folder or hub id of an encoder.
        tasks: one, some or all of the five.
        settings: of the loop.
        method: what a step updates: plain multi-task training, important-head training, `GatedTraining`, ...
        random_weights: the control: the same architecture, its weights drawn anew by the seed.
        options: per task name, settings of its decoder.
        folder: for checkpoints; the training goes on from there if it was stopped.

    Returns:
        the finished run; `run.model` is in eval mode.
    """
    torch.manual_seed(settings.seed)
    opened = open_model(model, need="encoder")
    encoder = fresh(opened.encoder, settings.seed) if random_weights else opened.encoder
    chosen = {task.name: dict((options or {}).get(task.name, {})) for task in tasks}
    run = Run(MultiTaskModel(encoder, opened.tokenizer, tasks, options=chosen), tasks, method, settings, folder=folder)
    run.train()
    return run


def fresh(encoder: Any, seed: int) -> Any:
    """The same architecture with new random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        other = type(encoder)(encoder.config)
    return other.to(next(encoder.parameters()).device).train(encoder.training)


def examine(
    model: MultiTaskModel, tasks: Sequence[Task], split: str = "test", **reading: Any
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Every metric of every task on a split, and the counts of every sentence they come from.

    Returns:
        (task, metric, score 0–1, examples), and one row per task and sentence.
    """
    rows, tables = [], []
    for task in tasks:
        result = evaluate(model, task, split, **reading)
        tables.append(result.table())
        for name in KINDS[task.kind].metrics[: 1 if task.kind == "tags" else None]:  # of tags, F1 and accuracy are one
            score = metrics.score(name, task.kind, result.predictions)
            rows.append({"task": task.name, "metric": name, "score": score, "examples": len(result.predictions)})
    return pd.DataFrame(rows), pd.concat(tables, ignore_index=True)


class _Gated(nn.Module):
    """A model whose head outputs pass through hard-concrete gates, drawn anew for every row, with the price of open gates in the loss."""

    def __init__(self, model: Any, method: "GatedTraining", heads: Heads) -> None:
        super().__init__()
        self.model, self.log_a = model, nn.Parameter(torch.full(heads.shape, method.start))
        self._method, self._heads = method, heads
        self.register_buffer("valid", heads.valid.float())

    valid: Tensor

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
        output.loss = (
            output.loss + self._method.price(open_now.detach()) * open_now
        )  # every example pays, so that the mean pays once
        return output


@dataclass
class GatedTraining(Method):
    """Dynamic pruning: gates on all heads learn together with the model (He & Choi 2021, §4).

    Args:
        k: heads to leave open, in expectation, so that every task keeps as many: an open gate costs GAIN × (open − target) ÷ all heads,
            in units of the loss, and is paid for while too few are open. The target falls from all heads to k over the first half of
            the steps. The gates' learning rate times the number of steps should be 10 or more, or they cannot get there.
        penalty: a fixed price instead, in units of the loss; then the number of heads differs between tasks and says nothing.
        start: log a of every gate at the start (2 is nearly always open).
    """

    name: ClassVar[str] = "gated"
    k: int | None = None
    penalty: float | None = None
    start: float = 2.0
    log_a: Tensor | None = field(default=None, init=False)
    _total: int = field(default=0, init=False)
    _steps: int = field(default=1, init=False)
    _step: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if (self.k is None) == (self.penalty is None):
            raise HeadwiseError(f"give either k or penalty, not both and not neither; got k={self.k}, penalty={self.penalty}")

    def settings(self, settings: TrainingSettings) -> TrainingSettings:
        # evaluations on the way would see the model without its gates
        return settings.with_changes(evaluate="end", early_stopping=None)

    def trained(self, run: Run) -> nn.Module:
        if self.k is not None and not 1 <= self.k <= run.heads.total:
            raise HeadwiseError(f"k is {self.k}; the model has {run.heads.total} heads")
        self._total, self._steps = run.heads.total, len(run.plan)
        device = run.model.device
        gated = _Gated(run.model, self, run.heads).to(device)
        self.log_a = gated.log_a
        return gated

    def price(self, open_now: Tensor) -> Tensor | float:
        """The price of one more open gate, `open_now` being open now."""
        if self.penalty is not None:
            return self.penalty
        assert self.k is not None
        target = self._total - (self._total - self.k) * min(1.0, 2 * self._step / self._steps)
        return GAIN * (open_now - target) / self._total

    @contextmanager
    def around_step(self, run: Run, task: str) -> Iterator[None]:
        yield
        self._step += 1

    def finish(self, run: Run) -> None:
        """From here on the model answers with its gates at their test values."""
        gates = self.gates.to(run.model.device)
        if isinstance(run.model, MultiTaskModel):
            run.model.contexts |= {name: lambda: run.heads.gated(gates) for name in run.names}

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
        return {"step": self._step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._step = int(state["step"])
