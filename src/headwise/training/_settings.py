"""What a training can be told, with the paper's recipe as the default."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from headwise._base.names import shown
from headwise.errors import HeadwiseError, did_you_mean

OPTIMIZERS = ("adamw", "adamax", "sgd", "adafactor")
SCHEDULES = ("linear", "constant")
PRECISIONS = ("no", "bf16", "fp16")


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of the loop, the same for every method (functional-specialization, appendix A: Adam 0.9/0.999, 2e-5, 5 epochs).

    Attributes:
        epochs: an epoch is as many steps as all tasks have batches; each step is one batch of one task.
        batch_size: examples per optimizer step, over all processes and micro-batches together.
        micro_batch_size: most examples per forward pass of one process; None: the whole share of that process.
        learning_rate: of the encoder, and of all else unless told otherwise.
        decoder_learning_rate, gate_learning_rate: of the decoders, and of parameters a method adds.
        weight_decay, betas, eps, optimizer: of the optimizer.
        warmup: share of the steps with a rising learning rate.
        schedule: "linear" decay to 0 after the warm-up, or "constant".
        clip: largest gradient norm; None: no clipping.
        sampling: see `headwise.training._samplers`.
        temperature: T of "temperature" sampling, p ∝ N^(1/T).
        power: of "power" sampling, p ∝ batches^power.
        balance: scale each task's loss by (sum of all tasks' mean losses) ÷ (its own), over the last `balance` steps of each; 0: off.
        max_length: tokens per text or pair.
        precision: "no" (float32), "bf16" or "fp16" (automatic mixed precision).
        device: "cpu" to keep off a GPU; None: whatever there is.
        gradient_checkpointing: recompute activations in the backward pass.
        graphs: on a GPU, run steps of frequent shapes as CUDA graphs, which launches a step at once.
        early_stopping: stop after this many evaluations without a better mean score; None: never. The best weights are kept.
        stopping_split: what early stopping chooses on: "train", a tenth of each task's training examples, set aside by the seed, of
            every class its share; or "validation", the split that is reported, whose scores are then too good: results say so.
        evaluate: "end", or "epoch" for an evaluation after each epoch too.
        max_examples: use at most this many training examples of each task, drawn by the seed, the same for all methods; None: all.
        random_weights: a control: the encoder's weights are drawn anew by the seed.
        decoder_options: by task name, settings of its decoder, e.g. {"dep": {"tree": "projective"}}.
        seed: of order, dropout and new weights.
        log_every: steps between records of the loss; the loss is read from the device only then.
        checkpoint_minutes: between checkpoints, where the training has a folder.
        trackers: names of accelerate's trackers ("tensorboard", "wandb", ...).
        progress: whether to show a progress bar.
    """

    epochs: int = 5
    batch_size: int = 32
    micro_batch_size: int | None = None
    learning_rate: float = 2e-5
    decoder_learning_rate: float | None = None
    gate_learning_rate: float | None = None
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    optimizer: str = "adamw"
    warmup: float = 0.1
    schedule: str = "linear"
    clip: float | None = None
    sampling: str = "proportional"
    temperature: float = 5.0
    power: float = 0.8
    balance: int = 0
    max_length: int = 256
    precision: str = "no"
    device: str | None = None
    gradient_checkpointing: bool = False
    graphs: bool = True
    early_stopping: int | None = None
    stopping_split: str = "train"
    evaluate: str = "end"
    max_examples: int | None = None
    random_weights: bool = False
    decoder_options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    log_every: int = 50
    checkpoint_minutes: float = 10.0
    trackers: tuple[str, ...] = ()
    progress: bool = True

    def __post_init__(self) -> None:
        from headwise.training._samplers import SAMPLINGS

        check_types(type(self), vars(self))
        _among("sampling", self.sampling, SAMPLINGS)
        _among("optimizer", self.optimizer, OPTIMIZERS)
        _among("schedule", self.schedule, SCHEDULES)
        _among("precision", self.precision, PRECISIONS)
        _among("stopping_split", self.stopping_split, ("train", "validation"))
        _among("evaluate", self.evaluate, ("end", "epoch"))
        if self.device not in (None, "cpu"):
            raise HeadwiseError(f"device is {self.device!r}; it is 'cpu' or None (a GPU if there is one)")
        for name in ("epochs", "batch_size", "max_length", "log_every"):
            if getattr(self, name) < 1:
                raise HeadwiseError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("micro_batch_size", "early_stopping", "max_examples"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise HeadwiseError(f"{name} is {value}; it must be at least 1, or None")
        for name in ("learning_rate", "eps", "temperature"):
            if not getattr(self, name) > 0:
                raise HeadwiseError(f"{name} is {getattr(self, name)}; it must be greater than 0")
        if not 0 <= self.warmup <= 1:
            raise HeadwiseError(f"warmup is {self.warmup}; it is a share of the steps, from 0 to 1")
        if self.early_stopping is not None and self.evaluate != "epoch":
            raise HeadwiseError("early_stopping needs evaluations to compare: set evaluate='epoch'")

    def with_changes(self, **changes: Any) -> "TrainingSettings":
        """A copy with some settings changed.

        Raises:
            HeadwiseError: a name is not a setting.
        """
        known = [field.name for field in fields(self)]
        for name in changes:
            if name not in known:
                hint = did_you_mean(name, known) or f"; settings are: {', '.join(known)}"
                raise HeadwiseError(f"{name!r} is not a training setting{hint}")
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "TrainingSettings":
        return cls().with_changes(**{name: tuple(value) if isinstance(value, list) else value for name, value in record.items()})


def check_types(owner: type, values: Mapping[str, Any]) -> None:
    """Refuses values of another type than a dataclass says its fields have, before anything compares them.

    Raises:
        HeadwiseError: by name and value.
    """
    hints = get_type_hints(owner)
    for name, value in values.items():
        choices = get_args(hints[name]) if isinstance(hints[name], UnionType) else (hints[name],)
        if Any not in choices and not any(_is(value, kind) for kind in choices):
            words = " or ".join(_WORDS.get(get_origin(kind) or kind, "a list of numbers or names") for kind in choices)
            raise HeadwiseError(f"{name} is {shown(value)}; expected {words}")


_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    dict: "a table by name",
    NoneType: "nothing (None)",
}


def _is(value: Any, kind: Any) -> bool:
    if kind is int or kind is float:
        return isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    if isinstance(kind, type):
        return isinstance(value, kind)
    if get_origin(kind) is dict:
        return isinstance(value, Mapping)
    inner = [one for one in get_args(kind) if one is not Ellipsis]  # of a tuple
    return isinstance(value, tuple | list) and all(any(_is(one, wanted) for wanted in inner) for one in value)


def _among(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise HeadwiseError(f"{name} {value!r} is unknown{did_you_mean(value, choices)}; choose from: {', '.join(choices)}")
