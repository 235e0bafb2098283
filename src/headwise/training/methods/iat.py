"""Important-head training (IAT; functional-specialization §4.2), and the same with random heads."""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from headwise.settings import option
from headwise.training.methods.base import ScoredHeads

if TYPE_CHECKING:
    from headwise.training._loop import TrainingRun


class ImportantHeads(ScoredHeads):
    """In the last `delta` of the steps, a batch of a task updates only that task's most important heads.

    Everything outside attention trains as before. Heads are scored once per task, at the branch, on training
    data (Eq. 4).

    The last four options are what the released code does beside the method, each by itself, so that its
    effect can be measured.
    """

    name: ClassVar[str] = "iat"
    steps_alike: ClassVar[bool] = True

    class Options(ScoredHeads.Options):
        alpha: float = option(
            0.3, "Share of all heads that a task may update (α); 1 is plain training.", ge=0, le=1
        )
        delta: float = option(
            0.1, "Fraction of training, at the end, in which it may (δ); 0 is plain training.", ge=0, le=1
        )
        output_projection: bool = option(
            True, "Whether a head's columns of W_O are its own too; False leaves W_O free."
        )
        drift: bool = option(
            False,
            "Momentum and weight decay keep moving heads outside a task's set; only gradients are masked.",
        )
        eval_mode: bool = option(False, "The last delta of the steps run without dropout.")
        leak: bool = option(
            False,
            "Gradients of the scoring passes (the sum over all tasks' batches of batch_size of their mean "
            "loss, in eval mode) are added to those of the first step after them.",
        )

    options: Options

    def prepare(self, run: "TrainingRun") -> None:
        from headwise.heads import check_adapters

        check_adapters(run.heads)  # now, not when the heads are chosen

    def at_branch(self, run: "TrainingRun") -> None:
        from headwise.scoring import top_heads

        scores = run.score_tasks(examples=self.options.examples, variant=self.options.variant)
        self.heads = {name: top_heads(scores[name], fraction=self.options.alpha) for name in run.names}
        if self.options.leak:
            leave_gradients(run, self.options.examples)

    def around_step(self, run: "TrainingRun", task: str) -> AbstractContextManager[Any]:
        if not self.heads:
            return nullcontext()
        if self.options.eval_mode and run.wrapped.training:
            run.wrapped.eval()
        # else nothing reads those gradients
        masked = run.settings.clip is not None or run.settings.optimizer == "adafactor"
        return run.heads.training_only(
            self.heads[task],
            run.optimizer,
            output_projection=self.options.output_projection,
            drift=self.options.drift,
            masked=masked,
        )


class RandomHeads(ImportantHeads):
    """The control of `iat`: as many heads for each task, drawn at random by the training's seed."""

    name: ClassVar[str] = "random-heads"

    def at_branch(self, run: "TrainingRun") -> None:
        from headwise.scoring import random_heads

        valid = run.heads.valid.cpu().numpy()
        draws = random_heads(valid, self.options.alpha, draws=len(run.names), seed=run.settings.seed)
        self.heads = dict(zip(run.names, draws, strict=True))
        if self.options.leak:
            leave_gradients(run, self.options.examples)


def leave_gradients(run: "TrainingRun", examples: int | None) -> None:
    """Leaves the gradients that passes over every task's training data give, for the next step to add its own
    to."""
    from headwise.tasks import collate

    run.optimizer.zero_grad(set_to_none=True)
    size, was_training = run.settings.batch_size, run.wrapped.training
    run.wrapped.eval()
    for name, data in zip(run.names, run.encoded, strict=True):
        rows = np.arange(len(data))
        if examples is not None and examples < len(data):  # the examples that were scored
            rows = np.sort(
                np.random.default_rng(run.settings.seed).choice(len(data), examples, replace=False)
            )
        for start in range(0, len(rows), size):
            batch = collate(data, rows[start : start + size]).to(run.accelerator.device)
            with run.accelerator.no_sync(run.wrapped):
                run.accelerator.backward(run.wrapped(name, batch).loss.mean())
    run.wrapped.train(was_training)
    run.keep_gradients = True
