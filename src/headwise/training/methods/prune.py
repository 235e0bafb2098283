"""Pruning the least important heads: in the last δ of the steps, each task runs without the heads it needs
least."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from headwise.settings import option
from headwise.training._masks import restore_masks, set_masks
from headwise.training.methods.base import ScoredHeads

if TYPE_CHECKING:
    from headwise.training._loop import TrainingRun


class PruneLeast(ScoredHeads):
    """At the branch heads are scored once per task; from there a task's forward passes run without its least
    important ones."""

    name: ClassVar[str] = "prune"
    steps_alike: ClassVar[bool] = True

    class Options(ScoredHeads.Options):
        alpha: float = option(0.3, "Share of all heads that a task does without (α).", ge=0, le=1)
        delta: float = option(
            0.1, "Fraction of training, at the end, that train without them (δ).", ge=0, le=1
        )

    options: Options

    def at_branch(self, run: "TrainingRun") -> None:
        from headwise.scoring import bottom_heads

        scores = run.score_tasks(examples=self.options.examples, variant=self.options.variant)
        self.heads = {name: bottom_heads(scores[name], fraction=self.options.alpha) for name in run.names}
        set_masks(run.model, self.name, self.heads, run.heads)

    @classmethod
    def restore(cls, model: Any, record: Any, folder: Path) -> None:
        restore_masks(model, cls.name, record)

    def resumed(self, run: "TrainingRun") -> None:
        set_masks(run.model, self.name, self.heads, run.heads)

    def around_step(self, run: "TrainingRun", task: str) -> AbstractContextManager[Any]:
        # around the backward pass too: checkpointed activations are recomputed
        return run.model.contexts.get(task, nullcontext)()
