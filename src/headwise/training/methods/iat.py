"""Important-head training (IAT; functional-specialization §4.2), and the same with random heads."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from headwise.heads import HeadSet
from headwise.scoring import random_heads, top_heads
from headwise.training.masks import from_json, to_json
from headwise.training.methods.base import Method, last_share, share

if TYPE_CHECKING:
    from headwise.training.run import Run


@dataclass
class ImportantHeads(Method):
    """In the last `delta` of the steps, a batch of a task updates only that task's most important heads.

    Everything outside attention trains as before. Heads are scored once per task, at the branch, on training data (Eq. 4).

    Args:
        alpha: share of all heads that a task may update; 1 is plain multi-task training.
        delta: share of the steps, at the end, in which it may; 0 is plain multi-task training.
        output_projection: whether a head's columns of W_O are its own too.
        examples: most training examples to score on.
    """

    name: ClassVar[str] = "iat"
    alpha: float = 0.3
    delta: float = 0.1
    output_projection: bool = True
    examples: int | None = 10_000
    heads: dict[str, HeadSet] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        share("alpha", self.alpha)
        share("delta", self.delta)

    def branch_step(self, steps: int) -> int | None:
        return last_share(self.delta, steps)

    def at_branch(self, run: "Run") -> None:
        scores = run.score_tasks(examples=self.examples)
        self.heads = {name: top_heads(scores[name], fraction=self.alpha) for name in run.names}

    def around_step(self, run: "Run", task: str) -> AbstractContextManager[Any]:
        if not self.heads:
            return nullcontext()
        return run.heads.training_only(self.heads[task], run.optimizer, output_projection=self.output_projection)

    def state_dict(self) -> dict[str, Any]:
        return {"heads": to_json(self.heads)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.heads = from_json(state.get("heads", {}))


@dataclass
class RandomHeads(ImportantHeads):
    """The control of `iat`: as many heads for each task, drawn at random by the training's seed."""

    name: ClassVar[str] = "random-heads"

    def at_branch(self, run: "Run") -> None:
        valid = run.heads.valid.cpu().numpy()
        draws = random_heads(valid, self.alpha, draws=len(run.names), seed=run.settings.seed)
        self.heads = dict(zip(run.names, draws, strict=True))
