"""Pruning the least important heads: in the last δ of the steps, each task runs without the heads it needs least."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from headwise.heads import HeadSet
from headwise.training._masks import from_json, set_masks, to_json
from headwise.training.methods.base import ScoredHeads

if TYPE_CHECKING:
    from headwise.training._loop import TrainingRun


@dataclass
class PruneLeast(ScoredHeads):
    """At the branch heads are scored once per task; from there a task's forward passes run without its least important ones.

    Args:
        alpha: share of all heads that a task does without.
        delta: share of the steps, at the end, that train without them.
        examples: most training examples to score on.
        variant: a published code's form of the importance, see `headwise.scoring.gate_gradient`.
    """

    name: ClassVar[str] = "prune"
    steps_alike: ClassVar[bool] = True
    masks: dict[str, HeadSet] = field(default_factory=dict, init=False)

    def at_branch(self, run: "TrainingRun") -> None:
        from headwise.scoring import bottom_heads

        scores = run.score_tasks(examples=self.examples, variant=self.variant)
        self.masks = {name: bottom_heads(scores[name], fraction=self.alpha) for name in run.names}
        set_masks(run.model, self.masks, run.heads)

    def resumed(self, run: "TrainingRun") -> None:
        set_masks(run.model, self.masks, run.heads)

    def around_step(self, run: "TrainingRun", task: str) -> AbstractContextManager[Any]:
        return run.model.contexts.get(
            task, nullcontext
        )()  # around the backward pass too: checkpointed activations are recomputed

    def state_dict(self) -> dict[str, Any]:
        return {"masks": to_json(self.masks)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.masks = from_json(state.get("masks", {}))
