"""One model asked one task: what every estimator works on."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor

from headwise import manifest
from headwise.decoders.memory import LENGTH, as_trained, length_of
from headwise.decoders.model import MultiTaskModel
from headwise.decoders.output import DecoderOutput
from headwise.decoders.plain import AUTO, TaskModel, as_task_model
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet
from headwise.opener import open_weights, tokenizer_beside, trusting
from headwise.places import model_place
from headwise.runs.progress import track
from headwise.tasks.batching import BUSY, Batch, Batches, batches
from headwise.tasks.encoding import Encoded, encode
from headwise.tasks.feeding import on_device
from headwise.tasks.kinds import KINDS
from headwise.tasks.task import Task


class Reading(TypedDict, total=False):
    """What every estimator accepts beside its own options.

    Attributes:
        examples: at most so many examples of the split, drawn by seed; None takes all.
        split: the split to score on; estimators read training data, lesions are judged on held-out data.
        batch_size: examples at a time; results do not depend on it. Default: 32, on an accelerator 256.
        max_length: tokens at which texts are cut; default: as the model was trained on the task, else 256.
        seed: of the sample, and of whatever else is random.
        silenced: heads that stay silenced while the others are scored.
        tokenizer: for plain transformers models; default: the one beside the model's weights.
        trust_remote_code: run code that a folder or hub id brings along; read it first.
        heads: the model's `Heads`, if it was made already.
        quiet: show no progress.
    """

    examples: int | None
    split: str
    batch_size: int | None
    max_length: int | None
    seed: int
    silenced: HeadSet
    tokenizer: Any
    trust_remote_code: bool
    heads: Heads | None
    quiet: bool


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
    """

    model: MultiTaskModel | TaskModel
    heads: Heads
    task: Task
    encoded: Encoded
    batch_size: int
    seed: int
    base: Tensor
    quiet: bool

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def scored(self) -> Tensor:
        """(layers, heads) bool: heads that exist and are not silenced from the start."""
        return self.base.bool()

    def plan(self) -> Batches:
        """All examples once, sorted by length, so that little is spent on padding; the longest come first."""
        return batches(self.encoded, self.batch_size, enough=BUSY.get(self.device.type))

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
        shown = track(plan, description, silent=self.quiet or not description)
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
            **settings,
        }


def as_subject_model(
    model: Any, tasks: Task | list[Task], tokenizer: Any = None, trust_remote_code: bool = False
) -> MultiTaskModel | TaskModel:
    """Whatever a user brings, as a model that answers tasks by name.

    Args:
        model: a multi-task model, a plain transformers model with a head, a folder that headwise saved, or the folder or hub id of
            a plain transformers model whose head can answer the tasks.
        tasks: what it will be asked.
        tokenizer: for a plain transformers model; default: the one beside its weights.
        trust_remote_code: run code that a folder or hub id brings along.
    """
    with trusting(trust_remote_code):
        if isinstance(model, str | Path):
            model = _opened(model, tasks)
        if isinstance(model, MultiTaskModel | TaskModel):
            return model
        if tokenizer is None:
            tokenizer = tokenizer_beside(model)
    return as_task_model(model, tokenizer, tasks)


def _opened(place: str | Path, tasks: Task | list[Task]) -> Any:
    """A model from a folder that headwise saved; otherwise from transformers, with the head the tasks call for."""
    place = model_place(place)
    if (Path(place) / manifest.NAME).is_file():
        from headwise.loading import load

        model = load(place)
        if not isinstance(model, MultiTaskModel | TaskModel):
            raise HeadwiseError(f"{place} holds a {type(model).__name__}, not a model that answers tasks")
        return model
    kinds = {task.kind for task in (tasks if isinstance(tasks, list) else [tasks])}
    heads = {AUTO.get(KINDS[kind].head) for kind in kinds}
    head = heads.pop() if len(heads) == 1 else None
    if head is None:
        raise HeadwiseError(
            f"{place} is a plain transformers model, which has no head for tasks of kind {', '.join(sorted(kinds))} together; "
            "train decoders for them first: headwise.train(model, tasks)"
        )
    return open_weights(head, place)


def open_subject(model: Any, task: Task, **reading: Unpack[Reading]) -> Subject:
    """Prepares one model and one task for an estimator: heads found, examples drawn and tokenised."""
    answering = as_subject_model(model, task, reading.get("tokenizer"), reading.get("trust_remote_code", False))
    (task,) = as_trained(answering, [task])
    heads = reading.get("heads") or Heads(answering.encoder)
    seed = reading.get("seed", 0)
    split = reading.get("split", "train")
    examples = task.split(split)
    if not examples.labelled:
        raise HeadwiseError(f"task {task.name!r}: its {split!r} split has no labels; choose another with split=")
    limit = reading.get("examples", 10_000)
    if limit is not None:
        examples = examples.sample(limit, seed)
    if len(examples) == 0:
        raise HeadwiseError(f"task {task.name!r}: there are no examples to read in its {split!r} split")
    silenced = torch.as_tensor(reading.get("silenced", HeadSet()).to_mask(heads.shape))
    base = (heads.valid.cpu() & ~silenced).to(device=answering.device, dtype=torch.float32)  # (layers, heads)
    size = reading.get("batch_size") or (32 if answering.device.type == "cpu" else 256)
    return Subject(
        model=answering,
        heads=heads,
        task=task,
        encoded=encode(examples, answering.tokenizer, length_of(answering, task.name, reading.get("max_length")) or LENGTH),
        batch_size=size,
        seed=seed,
        base=base,
        quiet=reading.get("quiet", False),
    )
