"""Important-head training (IAT; functional-specialization §4.2), and the same with random heads."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from headwise.heads import HeadSet
from headwise.training._masks import from_json, to_json
from headwise.training.methods.base import ScoredHeads

if TYPE_CHECKING:
    from headwise.training._loop import TrainingRun


@dataclass
class ImportantHeads(ScoredHeads):
    """In the last `delta` of the steps, a batch of a task updates only that task's most important heads.

    Everything outside attention trains as before. Heads are scored once per task, at the branch, on training data (Eq. 4).

    The last four options are what the released code does beside the method, each by itself, so that its effect can be measured.

    Args:
        alpha: share of all heads that a task may update; 1 is plain multi-task training.
        delta: share of the steps, at the end, in which it may; 0 is plain multi-task training.
        examples: most training examples to score on.
        variant: a published code's form of the importance, see `headwise.scoring.gate_gradient`.
        output_projection: whether a head's columns of W_O are its own too; False leaves W_O free.
        drift: momentum and weight decay keep moving heads outside a task's set; only their gradients are masked.
        eval_mode: the last `delta` of the steps run without dropout.
        leak: gradients of the scoring passes (the sum over all tasks' batches of `batch_size` of their mean loss, in eval mode)
            are added to those of the first step after them.
    """

    name: ClassVar[str] = "iat"
    steps_alike: ClassVar[bool] = True
    output_projection: bool = True
    drift: bool = False
    eval_mode: bool = False
    leak: bool = False
    heads: dict[str, HeadSet] = field(default_factory=dict, init=False)

    def prepare(self, run: "TrainingRun") -> None:
        from headwise.heads._freeze.adapters import check_adapters

        check_adapters(run.heads)  # now, not when the heads are chosen

    def at_branch(self, run: "TrainingRun") -> None:
        from headwise.scoring import top_heads

        scores = run.score_tasks(examples=self.examples, variant=self.variant)
        self.heads = {name: top_heads(scores[name], fraction=self.alpha) for name in run.names}
        if self.leak:
            leave_gradients(run, self.examples)

    def around_step(self, run: "TrainingRun", task: str) -> AbstractContextManager[Any]:
        if not self.heads:
            return nullcontext()
        if self.eval_mode and run.wrapped.training:
            run.wrapped.eval()
        masked = run.settings.clip is not None or run.settings.optimizer == "adafactor"  # else nothing reads those gradients
        return run.heads.training_only(
            self.heads[task], run.optimizer, output_projection=self.output_projection, drift=self.drift, masked=masked
        )

    def state_dict(self) -> dict[str, Any]:
        return {"heads": to_json(self.heads)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.heads = from_json(state.get("heads", {}))


@dataclass
class RandomHeads(ImportantHeads):
    """The control of `iat`: as many heads for each task, drawn at random by the training's seed."""

    name: ClassVar[str] = "random-heads"

    def at_branch(self, run: "TrainingRun") -> None:
        from headwise.scoring import random_heads

        valid = run.heads.valid.cpu().numpy()
        draws = random_heads(valid, self.alpha, draws=len(run.names), seed=run.settings.seed)
        self.heads = dict(zip(run.names, draws, strict=True))
        if self.leak:
            leave_gradients(run, self.examples)


def leave_gradients(run: "TrainingRun", examples: int | None) -> None:
    """Leaves the gradients that passes over every task's training data give, for the next step to add its own to."""
    from headwise.tasks._batches import collate

    run.optimizer.zero_grad(set_to_none=True)
    size, was_training = run.settings.batch_size, run.wrapped.training
    run.wrapped.eval()
    for name, data in zip(run.names, run.encoded, strict=True):
        rows = np.arange(len(data))
        if examples is not None and examples < len(data):  # the examples that were scored
            rows = np.sort(np.random.default_rng(run.settings.seed).choice(len(data), examples, replace=False))
        for start in range(0, len(rows), size):
            batch = collate(data, rows[start : start + size]).to(run.accelerator.device)
            with run.accelerator.no_sync(run.wrapped):
                run.accelerator.backward(run.wrapped(name, batch).loss.mean())
    run.wrapped.train(was_training)
    run.keep_gradients = True
