"""What a method may change in the loop."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from headwise._base.names import as_fraction
from headwise.errors import HeadwiseError
from headwise.scoring._settings import VARIANTS
from headwise.training._settings import Train

if TYPE_CHECKING:
    from torch import nn

    from headwise.models import MultiTaskModel
    from headwise.training._loop import TrainingRun


@dataclass
class Method:
    """Plain multi-task training: every hook leaves the loop as it is. Other methods override some of them.

    The loop calls, in this order: `settings`, `prepare`, `trained`; then for every step `around_step`, and once, before the
    step that `branch_step` names, `at_branch`; at the end `finish`. Methods that do nothing before their branch can start from
    another method's checkpoint at that step, so that their comparison is paired.
    """

    name: ClassVar[str] = "multi-task"
    steps_alike: ClassVar[bool] = True
    """Whether all steps of a task do the same on the device, but for what `at_branch` changes: no number in them is drawn or counted
    on the host. Only then can a step be captured once and replayed. A class with an `around_step` or `trained` of its own says so
    itself, or its steps run as ordinary ones."""

    def settings(self, settings: Train) -> Train:
        """The settings this method trains with."""
        return settings

    def prepare(self, run: "TrainingRun") -> None:
        """Before the optimizer is made: freeze, wrap or add modules."""

    def trained(self, run: "TrainingRun") -> "nn.Module":
        """The module whose `forward(task name, batch)` gives the losses of a step; its parameters are what is trained."""
        model: nn.Module = run.model
        return model

    def resumed(self, run: "TrainingRun") -> None:
        """After `load_state_dict`, when a training resumes from a checkpoint."""

    def at_branch(self, run: "TrainingRun") -> None:
        """Once, before the step that `branch_step` names."""

    def around_step(self, run: "TrainingRun", task: str) -> AbstractContextManager[Any]:
        """A context around forward, backward, clipping and update of one step of `task`."""
        return nullcontext()

    def finish(self, run: "TrainingRun") -> None:
        """After the last step, before the evaluation."""

    def state_dict(self) -> dict[str, Any]:
        """What the method learnt on the way (JSON values and tensors), for checkpoints."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what `state_dict` gave."""

    def describe(self) -> dict[str, Any]:
        """Name and options, for results."""
        options = {field.name: getattr(self, field.name) for field in fields(self) if field.init}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
        known = {name: value for name, value in plain.items() if isinstance(value, str | int | float | bool | list | None)}
        return {"method": self.name, **known}

    def decides(self) -> dict[str, Any]:
        """Name and options, as far as a result depends on them; objects too, which count by their content."""
        return {"method": self.name, **{field.name: getattr(self, field.name) for field in fields(self) if field.init}}

    def branch_step(self, steps: int) -> int | None:
        """The step before which `at_branch` is called; None if there is no branch."""
        return None


@dataclass
class ScoredHeads(Method):
    """Plain multi-task training until the last `delta` of the steps, at whose beginning heads are scored once per task (Eq. 4).

    Args:
        alpha: share of all heads that are chosen for a task.
        delta: share of the steps, at the end, in which they are treated apart.
        examples: most training examples to score on.
        variant: a published code's form of the importance, see `headwise.scoring.gate_gradient`.
    """

    alpha: float = 0.3
    delta: float = 0.1
    examples: int | None = 10_000
    variant: str = "eq4"

    def __post_init__(self) -> None:
        share("alpha", self.alpha)
        share("delta", self.delta)
        known_variant(self.variant)

    def branch_step(self, steps: int) -> int | None:
        return last_share(self.delta, steps)


class OneTaskAtATime:
    """Hooks in a shared encoder that do what the task in use asks for; `using(task)` is its context in `model.contexts`."""

    task: str | None = None

    @contextmanager
    def using(self, task: str) -> Iterator[None]:
        before, self.task = self.task, task
        try:
            yield
        finally:
            self.task = before
            if before is None:
                self.forget()

    def forget(self) -> None:
        """Drops what a pass has left."""


def multi_task(model: Any, method: str) -> "MultiTaskModel":
    """The model, if it is an encoder with decoders, which adapters need.

    Raises:
        HeadwiseError: it is a plain transformers model with its own head, or it has adapters already.
    """
    from headwise.models import MultiTaskModel

    if not isinstance(model, MultiTaskModel):
        name = type(model.encoder).__name__
        raise HeadwiseError(
            f"method {method!r} needs an encoder with one decoder per task, but {name} has its own head: pass the bare encoder"
        )
    if len(model.adapters):
        raise HeadwiseError(
            f"method {method!r} adds adapters to an encoder without any, but this model has adapters: pass the bare encoder"
        )
    return model


# why a model trained by a method cannot be a source of transfer, by the name of its note
STAYS = {
    "pals": "its projected attention layers belong to the tasks it was trained on; a new task has none",
    "ca-mtl": "its upper layers are conditioned on the embeddings of the tasks it was trained on; a new task has none",
}


def stay_behind(method: str, encoder: Any) -> None:
    """The `carry` of a method that has nothing for a new task.

    Raises:
        HeadwiseError: always, with the reason.
    """
    raise HeadwiseError(
        f"a model trained by {method} cannot be a source of transfer: {STAYS[method]}; train the new task together with the others, "
        "or use a source trained by another method"
    )


def last_share(delta: float, steps: int) -> int | None:
    """The step at which the last `delta` of the steps begins; None if there is no such step."""
    last = int(round(delta * steps, 6))
    return steps - last if last else None


def known_variant(variant: str) -> None:
    """Checks that there is such a form of the importance."""
    if variant not in VARIANTS:
        raise HeadwiseError(f"variant {variant!r} is unknown; choose one of {', '.join(VARIANTS)}")


def share(name: str, value: float) -> None:
    """Checks that an option is a share from 0 to 1."""
    if not 0 <= value <= 1:
        raise HeadwiseError(f"{name} is {value:g}; {as_fraction(value)}")
