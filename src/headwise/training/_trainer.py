"""Important-head training inside a Hugging Face `Trainer`, for those who have one already.

data = TrainerData(tasks, tokenizer, batch_size=32, epochs=3)
model = TrainerModel(multi_task_model)
choose = lambda: {task.name: top_heads(score(multi_task_model, task), fraction=0.3) for task in tasks}
callback = HeadTrainingCallback(Heads(multi_task_model.encoder), choose, delta=0.1)
trainer = Trainer(model, args, train_dataset=data, data_collator=data.collate, callbacks=[callback])
data.feed(trainer)
trainer.train()
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler
from transformers import TrainerCallback

from headwise._base.parsing import read_json
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet, check_adapters
from headwise.models import MultiTaskModel, check_fit
from headwise.store import write_text
from headwise.tasks import Batch, Task, collate, encode, shuffled_plan
from headwise.training._masks import from_json, to_json
from headwise.training._samplers import plan
from headwise.training._trainer_losses import TrainerLosses
from headwise.training.methods.base import last_share

SETS = "head_sets.json"


class SingleTaskBatches(Sampler[list[int]]):
    """A batch sampler whose batches, and groups of batches, hold one task each.

    Args:
        task_of: the task of every row of the data set (names or numbers).
        batch_size: rows per batch.
        epochs: how many there will be; annealed sampling needs to know.
        group: consecutive batches of one task: processes × gradient accumulation steps, so that an optimizer
            step has one task.
        lengths: tokens of every row; rows of similar length share batches. None: no regard to length.
        sampling: see `headwise.training._samplers`.
        seed: of tasks and order.
    """

    def __init__(
        self,
        task_of: Sequence[Any] | NDArray[Any],
        batch_size: int,
        *,
        epochs: int = 1,
        group: int = 1,
        lengths: Sequence[int] | NDArray[np.int64] | None = None,
        sampling: str = "proportional",
        seed: int = 0,
    ) -> None:
        names = list(dict.fromkeys(task_of))
        numbers = np.array([names.index(task) for task in task_of])
        self.rows = [np.flatnonzero(numbers == number) for number in range(len(names))]
        if lengths is None:
            lengths = np.zeros(len(task_of), np.int64)
        all_lengths = np.asarray(lengths)
        self.lengths = [all_lengths[rows] for rows in self.rows]
        self.batch_size, self.group, self.seed, self.epoch, self.epochs = batch_size, group, seed, 0, epochs
        self.counts = [-(-len(rows) // batch_size) for rows in self.rows]
        groups = [-(-count // group) for count in self.counts]
        self.plan = plan(sampling, [len(rows) for rows in self.rows], groups, epochs, seed).reshape(
            epochs, -1
        )

    def __len__(self) -> int:
        return int(self.plan.shape[1]) * self.group

    def set_epoch(self, epoch: int) -> None:
        """The epoch the next iteration is for, from 0."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        if self.epoch >= self.epochs:
            raise HeadwiseError(
                f"the sampler was made for {self.epochs} epochs but epoch {self.epoch + 1} was requested"
            )
        used = np.bincount(self.plan[: self.epoch].ravel(), minlength=len(self.rows)) * self.group
        passes: dict[int, tuple[int, list[NDArray[np.int64]]]] = {}
        for task in self.plan[self.epoch]:
            for _ in range(self.group):
                pass_number, batch_in_pass = divmod(int(used[task]), self.counts[task])
                if passes.get(task, (-1, []))[0] != pass_number:
                    order = np.random.default_rng([self.seed + int(task), pass_number])
                    passes[task] = (pass_number, shuffled_plan(self.lengths[task], self.batch_size, order))
                used[task] += 1
                yield self.rows[task][passes[task][1][batch_in_pass]].tolist()
        self.epoch += 1


class TrainerData(Dataset[tuple[int, int]]):
    """The training examples of several tasks as one data set for a `Trainer`, with sampler and collator.

    Args:
        tasks: of kinds "classes" and "number".
        tokenizer, max_length: as for `headwise.tasks.encode`.
        batch_size, epochs, group, sampling, seed: of the batches, see `SingleTaskBatches`.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        tokenizer: Any,
        *,
        batch_size: int = 32,
        epochs: int = 3,
        group: int = 1,
        max_length: int = 256,
        sampling: str = "proportional",
        seed: int = 0,
    ) -> None:
        self.names, self.tokenizer = [task.name for task in tasks], tokenizer
        self.encoded = [encode(task.split("train"), tokenizer, max_length) for task in tasks]
        # the first row of each task, and the number of all
        self.begins = np.cumsum([0, *map(len, self.encoded)])
        lengths = np.concatenate([data.lengths for data in self.encoded])
        options: Any = {
            "epochs": epochs,
            "group": group,
            "lengths": lengths,
            "sampling": sampling,
            "seed": seed,
        }
        self.batches = SingleTaskBatches(
            np.repeat(np.arange(len(tasks)), np.diff(self.begins)), batch_size, **options
        )

    def __len__(self) -> int:
        return int(self.begins[-1])

    def __getitem__(self, index: int) -> tuple[int, int]:
        index = range(len(self))[index]
        number = int(np.searchsorted(self.begins, index, side="right")) - 1
        return number, index - int(self.begins[number])

    def collate(self, rows: Sequence[tuple[int, int]]) -> dict[str, Any]:
        """One batch: the model's inputs, "labels", and "task", the name of the task of all its rows."""
        tasks = {task for task, _ in rows}
        if len(tasks) > 1:
            raise HeadwiseError(
                f"a batch mixes the tasks {sorted(self.names[t] for t in tasks)}: use data.feed(trainer)"
            )
        number = tasks.pop()
        batch = collate(self.encoded[number], np.array([i for _, i in rows]))
        return {**batch.inputs, "labels": batch.labels, "task": self.names[number], "classes": batch.classes}

    def feed(self, trainer: Any) -> None:
        """Makes a `Trainer` draw its training batches from here; number tasks of its model learn the scale of
        their targets.

        Raises:
            HeadwiseError: the texts are longer than the model reads, or the tokenizer does not fit it.
        """
        if isinstance(trainer.model, TrainerModel):
            for name, data in zip(self.names, self.encoded, strict=True):
                check_fit(trainer.model.model.encoder, self.tokenizer, data)
                trainer.model.model.standardise(name, data.examples.labels)

        def get_train_dataloader() -> Any:
            loader: Any = DataLoader(self, batch_sampler=self.batches, collate_fn=self.collate)
            return trainer.accelerator.prepare(loader)

        trainer.get_train_dataloader = get_train_dataloader


class TrainerModel(nn.Module):
    """A MultiTaskModel with the forward pass a `Trainer` expects: `model(task=..., labels=..., **inputs)`
    gives loss and logits."""

    def __init__(self, model: MultiTaskModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, task: str, labels: Tensor, classes: tuple[str, ...] = (), **inputs: Any
    ) -> dict[str, Any]:
        rows = torch.arange(len(labels), device=labels.device)
        output = self.model(
            task, Batch(inputs, labels, rows, rows, self.model.tasks[task].kind, classes=classes)
        )
        return {"loss": output.loss.mean(), "logits": output.logits}


class HeadTrainingCallback(TrainerCallback):
    """In the last `delta` of a Trainer's steps, a batch of a task updates only that task's heads.

    The task of a batch is read by a forward pre-hook; gradients are masked as they come, before clipping (the
    Trainer's pre-step event comes after it); frozen slices of weights and optimizer state are put back after
    the step.

    Args:
        heads: of the encoder inside the Trainer's model.
        head_sets: {task: heads}, or a function that gives it, called once when the last `delta` begins.
        delta: share of the steps, at the end; 1: all.
        key: the argument of the model's forward pass that holds the task: one name, or one per row.
        output_projection: whether a head's columns of W_O are its own too.
        nonfinite_steps: stop with an error after this many steps in a row whose loss is NaN or infinite.
    """

    def __init__(
        self,
        heads: Heads,
        head_sets: Mapping[str, HeadSet] | Callable[[], Mapping[str, HeadSet]],
        *,
        delta: float = 0.1,
        key: str = "task",
        output_projection: bool = True,
        nonfinite_steps: int = 1,
    ) -> None:
        if nonfinite_steps < 1:
            raise HeadwiseError(
                f"nonfinite_steps is {nonfinite_steps}; 1 stops at the first loss that is no number"
            )
        self.nonfinite_steps = nonfinite_steps
        self.heads, self.head_sets, self.delta = heads, head_sets, delta
        self.key, self.output_projection = key, output_projection
        self.chosen: dict[str, HeadSet] | None = None
        self._task: str | None = None
        self._optimizer: Any = None
        self._open = ExitStack()
        self._hook: Any = None
        self._losses: TrainerLosses | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        from accelerate.optimizer import AcceleratedOptimizer

        self._close()  # an earlier training may have ended with an error
        check_adapters(self.heads)  # now, not when the heads are chosen
        self._optimizer = kwargs["optimizer"]
        if isinstance(self._optimizer, AcceleratedOptimizer):
            self._optimizer = self._optimizer.optimizer
        self._branch = last_share(self.delta, state.max_steps)
        self._hook = kwargs["model"].register_forward_pre_hook(self._before_forward, with_kwargs=True)
        self._losses = TrainerLosses(kwargs["model"], self._optimizer, self.nonfinite_steps)
        # resumed: the sets were chosen before
        if self._branch is not None and state.global_step > self._branch:
            self.chosen = from_json(read_json(Path(args.output_dir) / SETS))

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._look(state.global_step == self._branch)
        if self._losses is not None:
            self._losses.begin(state.global_step)
        if state.global_step == self._branch:
            head_sets = self.head_sets
            if callable(head_sets):
                head_sets = head_sets()
            self.chosen = dict(head_sets)
            if state.is_world_process_zero:
                Path(args.output_dir).mkdir(parents=True, exist_ok=True)
                write_text(Path(args.output_dir) / SETS, json.dumps(to_json(self.chosen)))

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._open.close()
        self._task = None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._look(
            control.should_log or control.should_evaluate or control.should_save
        )  # before a checkpoint is written

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._look(True)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        losses = self._losses
        self._close()
        if losses is not None:
            losses.finish()

    def _look(self, due: bool) -> None:
        """Looks at the losses; after one too many that is no number the model is left without hooks of
        ours."""
        if self._losses is None:
            return
        try:
            self._losses.look(due)
        except HeadwiseError:
            self._close()
            raise

    def _close(self) -> None:
        self._open.close()
        self._task = None
        if self._hook is not None:
            self._hook.remove()
        if self._losses is not None:
            self._losses.remove()
            self._losses = None

    def _before_forward(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        if not module.training:
            return
        if self.key not in kwargs:
            raise HeadwiseError(
                f"the model's batch has no {self.key!r}: head training must know each batch's task"
            )
        task = one_task(kwargs[self.key])
        if self._losses is not None:
            self._losses.name(task)
        if self._task is not None and task != self._task:
            raise HeadwiseError(
                f"one optimizer step accumulates batches of {self._task!r} and {task!r}: give the sampler "
                "group=processes × gradient_accumulation_steps"
            )
        if self._task is None and self.chosen is not None:
            if task not in self.chosen:
                raise HeadwiseError(
                    f"no heads were chosen for task {task!r}, only for {', '.join(self.chosen)}"
                )
            only = self.heads.training_only(
                self.chosen[task], self._optimizer, output_projection=self.output_projection
            )
            self._open.enter_context(only)
        self._task = task


def one_task(value: Any) -> str:
    """The task of a batch, given as one name, or as one name or number per row.

    Raises:
        HeadwiseError: the rows have different tasks.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Tensor):
        value = value.tolist()
    names = sorted({str(name) for name in value})
    if len(names) != 1:
        raise HeadwiseError(
            f"a batch mixes the tasks {', '.join(names)}: head training needs batches of one task "
            "(SingleTaskBatches)"
        )
    return names[0]
