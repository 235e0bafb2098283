"""One model asked one task: what every estimator works on."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headwise._base.progress import track
from headwise._passes.products import quick_products
from headwise._passes.settings import Reading
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet
from headwise.models._decoders.output import DecoderOutput
from headwise.models._memory import LENGTH, as_trained, length_of
from headwise.models._model import MultiTaskModel
from headwise.models._opening import open_model
from headwise.models._plain import TaskModel
from headwise.settings import operation
from headwise.tasks._batches import BUSY, MOST, Batch, Batches, batches
from headwise.tasks._encoding import Encoded, encode
from headwise.tasks._prefetch import on_device
from headwise.tasks._task import Task


@dataclass(frozen=True)
class Subject:
    """One model asked one task.

    Attributes:
        model: answers `model(task.name, batch)` with one loss and one prediction per example.
        heads: of its encoder.
        task: the task.
        encoded: the examples, tokenised.
        batch_size: examples at a time.
        seed: for estimators that draw.
        base: (layers, heads), 1 for a head that takes part, 0 for one that stays silenced or does not exist.
        quiet: show no progress.
        precision: of the arithmetic of all passes, "float32", "tf32" or "bf16".
        most_tokens: of a batch; None: as many as `batch_size` examples have.
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

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def scored(self) -> Tensor:
        """(layers, heads) bool: heads that exist and are not silenced from the start."""
        return self.base.bool()

    def plan(self) -> Batches:
        """All examples once, sorted by length, so that little is spent on padding; the longest come first."""
        return batches(self.encoded, self.batch_size, enough=BUSY.get(self.device.type), most=self.most_tokens)

    def plan_in_order(self) -> Batches:
        """All examples once, in the order of the data: for the one published variant whose result depends on the batches."""
        size = self.batch_size
        order = [np.arange(i, min(i + size, len(self.encoded))) for i in range(0, len(self.encoded), size)]
        return Batches(self.encoded, order, None, 0, 0.15)

    def shuffled(self, epoch: int) -> Batches:
        """All examples once, in random order: for estimators that learn."""
        return batches(self.encoded, self.batch_size, seed=self.seed, epoch=epoch)

    def read(self, plan: Iterable[Batch], description: str = "") -> Iterator[Batch]:
        """The batches of `plan` on the model's device, with a progress bar if it has a description."""
        shown = track(plan, description, quiet=self.quiet or not description)
        return on_device(shown, self.device)

    def forward(self, batch: Batch, gates: Tensor | None = None) -> DecoderOutput:
        """The task's losses and predictions with head outputs multiplied by gates.

        Args:
            batch: n examples in r rows.
            gates: (layers, heads), (n, layers, heads) or (r, tokens, layers, heads); default: 0 for the silenced heads, 1 else.
        """
        gates = self.base if gates is None else gates
        if gates.ndim == 3 and len(batch.owner) != len(batch):
            gates = gates[batch.owner]  # an example's gates hold for all its rows
        with self.heads.gated(gates):
            return self.plain(batch)

    def plain(self, batch: Batch) -> DecoderOutput:
        """The task's losses and predictions of the model as it is now."""
        with computing(self.precision, self.device):
            output: DecoderOutput = self.model(self.task.name, batch)
        return output

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
            **settings,
        }


def weights_type(model: Any) -> dict[str, str]:
    """For the settings of a result: the data type of a model's weights, where it is not float32."""
    types = {str(weight.dtype).removeprefix("torch.") for weight in model.parameters() if weight.is_floating_point()}
    return {"weights": ", ".join(sorted(types))} if types - {"float32"} else {}


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
            f"precision='tf32' is arithmetic of NVIDIA GPUs, and the model is on {device.type}: choose float32 or bf16"
        )
    return _tf32()


@contextmanager
def _tf32() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def opened(model: Any, tasks: Iterable[Task], settings: Reading) -> MultiTaskModel | TaskModel:
    """A model that answers the tasks."""
    options = {name: getattr(settings, name) for name in ("tokenizer", "dtype", "trust_remote_code")}
    return open_model(model, tasks, device=settings.device or "auto", **options)


def prepare(model: Any, task: Task, settings: Reading) -> Subject:
    """Prepares one model and one task for an estimator: heads found, examples drawn and tokenised."""
    answering = opened(model, [task], settings)
    (task,) = as_trained(answering, [task])
    heads = settings.heads or Heads(answering.encoder)
    examples = task.split(settings.split)
    if not examples.labelled:
        raise HeadwiseError(f"task {task.name!r}: its {settings.split!r} split has no labels; choose another with split=")
    if settings.examples is not None:
        examples = examples.sample(settings.examples, settings.seed)
    if len(examples) == 0:
        raise HeadwiseError(f"task {task.name!r}: there are no examples to read in its {settings.split!r} split")
    silenced = torch.as_tensor((settings.silenced or HeadSet()).to_mask(heads.shape))
    base = (heads.valid.cpu() & ~silenced).to(device=answering.device, dtype=torch.float32)  # (layers, heads)
    return Subject(
        model=answering,
        heads=heads,
        task=task,
        encoded=encode(examples, answering.tokenizer, length_of(answering, task.name, settings.max_length) or LENGTH),
        batch_size=settings.batch_size or (32 if answering.device.type == "cpu" else 256),
        seed=settings.seed,
        base=base,
        quiet=settings.quiet,
        precision=settings.precision,
        most_tokens=MOST.get(answering.device.type) if settings.batch_size is None else None,
    )


open_subject = operation(Reading)(prepare)
