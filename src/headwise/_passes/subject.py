"""One model asked one task: what every estimator works on."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headwise._base.progress import track
from headwise._base.switches import Switch
from headwise._passes.answers import Answers, judged
from headwise._passes.products import quick_products
from headwise._passes.settings import Reading
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet, twins_of
from headwise.models import (
    DecoderOutput,
    MultiTaskModel,
    TaskModel,
    as_trained,
    check_gradients,
    no_answers,
    open_model,
    read_examples,
    reading_length,
)
from headwise.settings import operation
from headwise.tasks import (
    BUSY_TOKENS,
    MOST_TOKENS,
    Batch,
    Batches,
    Encoded,
    Task,
    batches,
    collate,
    on_device,
)


@dataclass(frozen=True)
class Subject:
    """A model that a call opened: opened, checked and moved once, then handed from step to step.

    Attributes:
        model: answers `model(task.name, batch)` with one loss and one prediction per example; a live one is
            the user's own.
        users_heads: its heads, if the user found them already.
    """

    model: MultiTaskModel | TaskModel
    users_heads: Heads | None = None

    @cached_property
    def heads(self) -> Heads:
        """Those of the model's encoder."""
        return self.users_heads or Heads(self.model.encoder)

    @cached_property
    def twins(self) -> tuple[MultiTaskModel | TaskModel, Heads]:
        """Frozen twins of the model and its heads, which passes run; themselves where they can have none."""
        check_gradients(self.model.encoder)
        return twins_of(self.model, self.heads, frozen=True) or (self.model, self.heads)


def open_subject(model: Any, tasks: Iterable[Task], settings: Reading) -> Subject:
    """A model that answers the tasks; one that a call opened already is that one."""
    if isinstance(model, Subject):
        return model
    options = {name: getattr(settings, name) for name in ("tokenizer", "dtype", "trust_remote_code")}
    answering = open_model(model, tasks, device=settings.device or "auto", **options)
    return Subject(answering, settings.heads)


@dataclass(frozen=True)
class TaskSubject:
    """One model asked one task: what every estimator and every lesion works on.

    Attributes:
        model: that of a `Subject`, or its twin.
        heads: of its encoder.
        task: the task.
        encoded: the examples, tokenised.
        batch_size: examples at a time.
        seed: for estimators that draw.
        base: (layers, heads), 1 for a head that takes part, 0 for one that stays silenced or does not exist.
        quiet: show no progress.
        precision: of the arithmetic of all passes, "float32", "tf32" or "bf16".
        most_tokens: of a batch; None: as many as `batch_size` examples have.
        silenced: the heads that stay silenced.
        nan_losses: how many losses of each pass were NaN, left on the device: see `check_losses`.
    """

    model: MultiTaskModel | TaskModel
    heads: Heads
    task: Task
    encoded: Encoded
    batch_size: int
    seed: int
    base: Tensor
    quiet: bool
    precision: str = "float32"
    most_tokens: int | None = None
    silenced: HeadSet = field(default_factory=HeadSet)
    nan_losses: list[Tensor] = field(default_factory=list, repr=False, compare=False)

    @property
    def device(self) -> torch.device:
        return self.model.device

    @cached_property
    def answers(self) -> Answers:
        """Those of the intact model, from passes that read it: an estimator keeps what it comes by."""
        return Answers(len(self.encoded))

    @cached_property
    def judged(self) -> dict[str, Any]:
        """How good the intact model is on these examples, for the attributes of a result."""
        return judged(self)

    @property
    def scored(self) -> Tensor:
        """(layers, heads) bool: heads that exist and are not silenced from the start."""
        return self.base.bool()

    def plan(self) -> Batches:
        """All examples once, sorted by length, so that little is spent on padding; the longest come first."""
        return batches(
            self.encoded, self.batch_size, enough=BUSY_TOKENS.get(self.device.type), most=self.most_tokens
        )

    def plan_in_order(self) -> Batches:
        """All examples once, in the order of the data: for the one published variant whose result depends on
        the batches."""
        size = self.batch_size
        order = [np.arange(i, min(i + size, len(self.encoded))) for i in range(0, len(self.encoded), size)]
        return Batches(self.encoded, order, None, 0, 0.15)

    def shortest(self) -> Batch:
        """The shortest example, as a batch on the model's device: to try something on."""
        return collate(self.encoded, self.plan().plan[-1][:1]).to(self.device)

    def shuffled(self, epoch: int) -> Batches:
        """All examples once, in random order: for estimators that learn."""
        return batches(self.encoded, self.batch_size, seed=self.seed, epoch=epoch)

    def read(self, plan: Iterable[Batch], description: str = "") -> Iterator[Batch]:
        """The batches of `plan` on the model's device, with a progress bar if it has a description."""
        shown = track(plan, description, quiet=self.quiet or not description)
        return on_device(shown, self.device)

    def forward(self, batch: Batch, gates: Tensor | None = None, lowest: int = 0) -> DecoderOutput:
        """The task's losses and predictions with head outputs multiplied by gates, or selected by gates of
        truth values.

        Args:
            batch: n examples in r rows.
            gates: (layers, heads), (n, layers, heads) or (r, tokens, layers, heads); default: only the
                silenced heads are closed. They stay silenced under gates of numbers; those of truth values
                name them too.
            lowest: layers under this one do not run.
        """
        if gates is None or gates.is_floating_point():
            with self.lesioned(lowest), nullcontext() if gates is None else self._gated(batch, gates):
                return self.plain(batch)
        with self._gated(batch, gates):
            return self.plain(batch)

    def _gated(self, batch: Batch, gates: Tensor) -> AbstractContextManager[None]:
        if gates.ndim == 3 and len(batch.owner) != len(batch):
            gates = gates[batch.owner]  # an example's gates hold for all its rows
        return self.heads.gated(gates)

    def lesioned(self, lowest: int = 0) -> AbstractContextManager[None]:
        """Passes inside run without the heads that stay silenced, of layers from `lowest` on; what these put
        out need not be numbers."""
        heads = HeadSet(head for head in self.silenced if head[0] >= lowest)
        if not heads:
            return nullcontext()
        return self.heads.silenced(heads)

    def plain(self, batch: Batch) -> DecoderOutput:
        """The task's losses and predictions of the model as it is now."""
        with computing(self.precision, self.device):
            output: DecoderOutput = self.model(self.task.name, batch)
        self.nan_losses.append(output.loss.detach().isnan().sum())
        return output

    def check_losses(self) -> None:
        """Refuses what was computed from passes with losses that are NaN, whose gradients may be numbers all
        the same.

        Raises:
            HeadwiseError: there were such losses.
        """
        if self.nan_losses and bool(torch.stack(self.nan_losses).any()):
            raise no_answers(self.task.name, "some", len(self.encoded))

    def describe(self, method: str, **settings: Any) -> dict[str, Any]:
        """The attributes of a result: what was scored, and how."""
        return {
            "method": method,
            "task": self.task.name,
            "split": self.encoded.examples.name,
            "examples": len(self.encoded),
            "seed": self.seed,
            **({} if self.precision == "float32" else {"precision": self.precision}),
            **weights_type(self.model),
            **self.judged,
            **settings,
        }


def weights_type(model: Any) -> dict[str, str]:
    """For the settings of a result: the data type of a model's weights, where it is not float32."""
    dtypes = {weight.dtype for weight in model.parameters() if weight.is_floating_point()}
    names = sorted(str(dtype).removeprefix("torch.") for dtype in dtypes)
    return {"weights": ", ".join(names)} if dtypes - {torch.float32} else {}


def computing(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """Passes inside compute in this precision.

    Raises:
        HeadwiseError: the device does not have it.
    """
    if precision == "bf16":
        return torch.autocast(device.type, torch.bfloat16)
    if precision == "float32":
        return quick_products(device)
    if device.type != "cuda":
        raise HeadwiseError(
            f"precision='tf32' is arithmetic of NVIDIA GPUs, and the model is on {device.type}: choose "
            "float32 or bf16"
        )
    return _tf32()


def _allow_tf32() -> Callable[[], object]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    return lambda: torch.set_float32_matmul_precision(before)


_tf32 = Switch(_allow_tf32)


def prepare(model: Any, task: Task, settings: Reading) -> TaskSubject:
    """Prepares one model, or a `Subject`, and one task for an estimator: examples drawn and tokenised."""
    subject = open_subject(model, [task], settings)
    (task,) = as_trained(subject.model, [task])
    answering, heads = subject.twins
    silenced = heads.check(settings.silenced or HeadSet())
    scored = heads.valid.cpu() & ~torch.as_tensor(silenced.to_mask(heads.shape))  # (layers, heads)
    device = answering.device
    return TaskSubject(
        model=answering,
        heads=heads,
        task=task,
        encoded=drawn(answering, task, settings),
        batch_size=settings.batch_size or size_of_batches(device),
        seed=settings.seed,
        base=scored.to(device=device, dtype=torch.float32),
        quiet=settings.quiet,
        precision=settings.precision,
        most_tokens=MOST_TOKENS.get(device.type) if settings.batch_size is None else None,
        silenced=silenced,
    )


def drawn(model: MultiTaskModel | TaskModel, task: Task, settings: Reading) -> Encoded:
    """The examples that an operation reads, drawn and tokenised.

    Raises:
        HeadwiseError: there are none, they have no labels, or the tokenizer does not fit the model.
    """
    examples = task.split(settings.split)
    if not examples.labelled:
        raise HeadwiseError(
            f"task {task.name!r}: its {settings.split!r} split has no labels; choose another with split="
        )
    if settings.examples is not None:
        examples = examples.sample(settings.examples, settings.seed)
    if len(examples) == 0:
        raise HeadwiseError(
            f"task {task.name!r}: there are no examples to read in its {settings.split!r} split"
        )
    return read_examples(
        model.encoder, model.tokenizer, examples, reading_length(model, task.name, settings.max_length)
    )


def size_of_batches(device: torch.device) -> int:
    """Examples of a batch, where nobody says."""
    return 32 if device.type == "cpu" else 256


task_subject = operation(Reading)(prepare)  # with settings as keywords
