"""What a method may change in the loop."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator

from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.scoring import VARIANTS
from headwise.settings import Exact, checked, option
from headwise.training._masks import from_json, to_json
from headwise.training._settings import Train

if TYPE_CHECKING:
    from torch import nn

    from headwise.models import MultiTaskModel
    from headwise.training._loop import TrainingRun


def known_variant(variant: str) -> str:
    """The variant, if there is such a form of the importance."""
    if variant not in VARIANTS:
        raise HeadwiseError(f"variant {variant!r} is unknown; choose one of {', '.join(VARIANTS)}")
    return variant


LEARNING_RATE: Any = option(3e-4, "Peak learning rate of what it adds and of the decoders.", gt=0)


class Scoring(Exact):
    """How a method scores heads (Eq. 4)."""

    examples: int | None = option(10_000, "Most training examples to score heads on; None: all.", ge=1)
    variant: Annotated[str, AfterValidator(known_variant)] = option(
        "eq4", "A published code's form of the importance, see `headwise.scoring.gate_gradient`."
    )


class Method:
    """Plain multi-task training: every hook leaves the loop as it is. Other methods override some of them.

    The loop calls, in this order: `settings`, `prepare`, `trained`; then for every step `around_step`, and
    once, before the step that `branch_step` names, `at_branch`; at the end `finish`.

    Attributes:
        options: what was chosen of the class's `Options`.
        heads: by task, heads that the method chose; checkpoints and results keep them.
    """

    name: ClassVar[str] = "multi-task"
    shared_beginning: ClassVar[bool] = False
    """Whether it is plain multi-task training until its branch, so that it can start from another such
    training's checkpoint at that step, and their comparison is paired."""
    stays: ClassVar[str] = ""
    """Why a model that it trained cannot be a source of transfer; empty where it can."""
    steps_alike: ClassVar[bool] = True
    """Whether all steps of a task do the same on the device, but for what `at_branch` changes: no number in
    them is drawn or counted on the host. Only then can a step be captured once and replayed. A class with an
    `around_step` or `trained` of its own says so itself, or its steps run as ordinary ones."""

    class Options(Exact):
        """The options of the method: its keywords, and what may stand beside the settings of `train`."""

    options: Options

    def __init__(self, **options: Any) -> None:
        self.options = checked(self.Options, options)
        self.heads: dict[str, HeadSet] = {}

    def settings(self, settings: Train) -> Train:
        """The settings this method trains with."""
        return settings

    def prepare(self, run: "TrainingRun") -> None:
        """Before the optimizer is made: freeze, wrap or add modules."""

    @classmethod
    def restore(cls, model: Any, record: Any, folder: Path) -> None:
        """Gives a model that is opened from `folder` what `prepare` or `finish` gave it: `record` is the
        method's entry in the model's `notes`. Weights of the modules that are put into `model.adapters` here
        are read afterwards."""

    def trained(self, run: "TrainingRun") -> "nn.Module":
        """The module whose `forward(task name, batch)` gives the losses of a step; its parameters are what is
        trained."""
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
        return {"heads": to_json(self.heads)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what `state_dict` gave."""
        self.heads = from_json(state["heads"])

    def describe(self) -> dict[str, Any]:
        """Name and options, for results."""
        options = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in self.options.decides().items()
        }
        plain = {
            name: value
            for name, value in options.items()
            if isinstance(value, str | int | float | bool | list | None)
        }
        return {"method": self.name, **plain}

    def decides(self) -> dict[str, Any]:
        """Name and options, as far as a result depends on them; objects too, which count by their content."""
        return {"method": self.name, **self.options.decides()}

    def branch_step(self, steps: int) -> int | None:
        """The step before which `at_branch` is called; None if there is no branch."""
        return None

    def plain_until(self, steps: int) -> int | None:
        """Until which of `steps` it is plain multi-task training; None if it never is."""
        if not self.shared_beginning:
            return None
        branch = self.branch_step(steps)
        if branch is None:
            return steps
        return branch


class MultiTask(Method):
    """Plain multi-task training, which methods with a shared beginning start from."""

    shared_beginning: ClassVar[bool] = True


class ScoredHeads(Method):
    """Plain multi-task training until the last `delta` of the steps, at whose beginning heads are scored once
    per task (Eq. 4)."""

    shared_beginning: ClassVar[bool] = True

    class Options(Scoring, Method.Options):
        alpha: float = option(0.3, "Share of all heads that are chosen for a task (α).", ge=0, le=1)
        delta: float = option(
            0.1, "Fraction of training, at the end, in which they are treated apart (δ).", ge=0, le=1
        )

    options: Options

    def branch_step(self, steps: int) -> int | None:
        return last_share(self.options.delta, steps)


class OneTaskAtATime:
    """Hooks in a shared encoder that do what the task in use asks for; `using(task)` is its context in
    `model.contexts`."""

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
            f"method {method!r} needs an encoder with one decoder per task, but {name} has its own head: "
            "pass the bare encoder"
        )
    if len(model.adapters):
        raise HeadwiseError(
            f"method {method!r} adds adapters to an encoder without any, but this model has adapters: pass "
            "the bare encoder"
        )
    return model


def stay_behind(method: type[Method], encoder: Any) -> None:
    """The `carry` of a model whose method has nothing for a new task.

    Raises:
        HeadwiseError: always, with the reason.
    """
    raise HeadwiseError(
        f"a model trained by {method.name} cannot be a source of transfer: {method.stays}; train the new "
        "task together with the others, or use a source trained by another method"
    )


def last_share(delta: float, steps: int) -> int | None:
    """The step at which the last `delta` of the steps begins; None if there is no such step."""
    last = int(round(delta * steps, 6))
    if last == 0:
        return None
    return steps - last
