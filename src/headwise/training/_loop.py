"""The one training loop."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor, nn

from headwise._base.progress import track
from headwise.errors import HeadwiseError
from headwise.heads import Heads
from headwise.models import MultiTaskModel, TaskModel, memory, read_examples
from headwise.store import Checkpoint
from headwise.tasks import Task
from headwise.training._casting import cast_while_captured
from headwise.training._data import Step, Stream, Throughput, steps
from headwise.training._devices import gather_random_state, make_accelerator, put_random_state
from headwise.training._evaluation import evaluate, token_limit
from headwise.training._graphs import PAD, StepGraphs, captured_steps, shapes_to_come
from headwise.training._importance import score_tasks
from headwise.training._interrupts import stops_noted
from headwise.training._losses import Losses
from headwise.training._optimizer import LossBalance, build_optimizer, build_schedule
from headwise.training._portions import STOPPING, portion_of
from headwise.training._samplers import plan
from headwise.training._settings import Train
from headwise.training.methods.base import Method


class TrainingRun:
    """Trains one model on some tasks by one method: one task per optimizer step, on all micro-batches and
    processes of it.

    Args:
        model: a MultiTaskModel, or a TaskModel whose own head answers the tasks; trained in place.
        tasks: what it learns; the model answers each.
        method: what a step updates; default: plain multi-task training.
        settings: of the loop; the method may change them.
        folder: where checkpoints are kept; None: nowhere, then the training cannot be resumed.
        start: a checkpoint of another run to begin from (one that its `branches` left).
        branches: step number to folder: before that step a checkpoint is left there, for other methods to
            start from.

    Attributes:
        plan: (steps,) the task of every step.
        losses: (steps,) the mean loss of every step; NaN where it was not read yet.
        trained: the module whose parameters the steps update: the model, or what a method has put around it.
        evaluations: one row per evaluation during the training and task: step, task, split, score.
        keep_gradients: let the next step add to the gradients that are there, once; for methods that put
            some.
    """

    def __init__(
        self,
        model: MultiTaskModel | TaskModel,
        tasks: Sequence[Task],
        method: Method | None = None,
        settings: Train | None = None,
        *,
        folder: str | Path | None = None,
        start: str | Path | None = None,
        branches: Mapping[int, Path] | None = None,
    ) -> None:
        self.method = method or Method()
        self.settings = self.method.settings(settings or Train())
        self.model, self.tasks, self.names = model, list(tasks), [task.name for task in tasks]
        self.folder = Path(folder) if folder is not None else None
        self._start, self._branches = start, dict(branches or {})
        self.accelerator = make_accelerator(self.settings, self.folder)
        self.max_length = token_limit(model, self.settings.max_length)
        memory.remember(model, self.tasks, self.max_length)
        portions = [portion_of(task, self.settings) for task in self.tasks]
        self.encoded = [
            read_examples(model.encoder, model.tokenizer, portion.train, self.max_length)
            for portion in portions
        ]
        self._aside = [
            task.with_splits(stopping=portion.stopping)
            for task, portion in zip(tasks, portions, strict=True)
            if portion.stopping
        ]
        if isinstance(model, MultiTaskModel):
            for name, data in zip(self.names, self.encoded, strict=True):
                model.standardise(name, data.examples.labels)
        self.streams = [
            Stream(data, self.settings.batch_size, self.settings.seed + i)
            for i, data in enumerate(self.encoded)
        ]
        self.plan = plan(
            self.settings.sampling,
            [len(data) for data in self.encoded],
            [stream.n_batches for stream in self.streams],
            self.settings.epochs,
            self.settings.seed,
            temperature=self.settings.temperature,
            power=self.settings.power,
        )
        self.losses: NDArray[np.float32] = np.full(len(self.plan), np.nan, dtype=np.float32)
        self.evaluations: list[dict[str, Any]] = []
        self.step = self.began = 0  # the next step, and the first one that this run computes
        self.keep_gradients = False
        self._record = Losses(self)
        self._best: dict[str, Any] = {}
        self.graphs: StepGraphs | None = None
        self.not_captured = ""
        self._setup()

    def _setup(self) -> None:
        """Puts model, method, optimizer and schedule together on the device."""
        settings = self.settings
        # each process its own dropout
        torch.manual_seed(settings.seed + 1_000_003 * self.accelerator.process_index)
        self.model.to(self.accelerator.device)
        self.method.prepare(self)
        if settings.gradient_checkpointing:
            self.model.encoder.gradient_checkpointing_enable({"use_reentrant": False})
        trained = self.trained = self.method.trained(self)
        self.optimizer = build_optimizer(trained, self.model, settings)
        self.parameters: list[nn.Parameter] = []
        for group in self.optimizer.param_groups:
            self.parameters += group["params"]
        self.schedule = build_schedule(self.optimizer, len(self.plan), settings)
        self.balance: LossBalance | None = None
        if settings.balance:
            self.balance = LossBalance(len(self.tasks), settings.balance, self.accelerator.device)
        self.wrapped, self._stepper = self.accelerator.prepare(trained, self.optimizer)
        self._saved: dict[str, Any] = {
            "model": trained,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "method": self.method,
        }
        if self.balance is not None:
            self._saved["balance"] = self.balance
        if self.accelerator.scaler is not None:
            self._saved["scaler"] = self.accelerator.scaler

    @cached_property
    def heads(self) -> Heads:
        """The heads of the encoder."""
        return Heads(self.model.encoder)

    @property
    def epoch_steps(self) -> int:
        """Steps in an epoch: as many as all tasks together have batches."""
        return sum(stream.n_batches for stream in self.streams)

    def score_tasks(self, examples: int | None = 10_000, variant: str = "eq4") -> dict[str, xr.DataArray]:
        """Each task's gate-gradient scores (Eq. 4) on its training data, (layer, head); the processes share
        the tasks.

        Args:
            examples: most examples of a task to score on.
            variant: a published code's form of it, see `headwise.scoring.gate_gradient`.
        """
        return score_tasks(self, examples, variant)

    def train(self) -> None:
        """Runs all steps that are left; afterwards, and after an error, the model is in eval mode and in its
        own precision again."""
        try:
            self._run()
            self._record.record()  # what came after the last record of a training that stopped early
            self.method.finish(self)
            if self._best:
                self._saved["model"].load_state_dict(self._best["model"])
            self._record.check_weights()
        finally:
            if self.graphs:
                self.graphs.release()
            self.model.eval()
            self.accelerator.unwrap_model(self.wrapped, keep_fp32_wrapper=False)
            # not end_training(), which would also part the processes before the evaluation
            for tracker in self.accelerator.trackers:
                tracker.finish()

    def _run(self) -> None:
        settings = self.settings
        checkpoint = None
        if self.folder:
            checkpoint = Checkpoint(self.folder / "checkpoint", settings.checkpoint_minutes)
        self._resume(checkpoint)
        self.began = self.step
        branch = self.method.branch_step(len(self.plan))
        a = self.accelerator
        self.graphs, self.not_captured = captured_steps(self)
        feed = steps(
            self.plan,
            self.streams,
            self.step,
            rank=a.process_index,
            world=a.num_processes,
            micro=settings.micro_batch_size,
            device=a.device,
            pad=self._pad(),
        )
        quiet = settings.quiet or not a.is_main_process
        self.wrapped.train()
        speed = Throughput()
        # several processes would each stop at a step of their own
        with stops_noted(checkpoint is not None and a.num_processes == 1) as stop_asked:
            for step in track(feed, self._label(), len(self.plan) - self.step, quiet=quiet, note=speed.note):
                if self._stopped():
                    break
                speed.add(step.size)
                if self.step in self._branches:
                    self._save(Checkpoint(self._branches[self.step]))
                if self.step == branch:
                    self._record.fetch()
                    self.method.at_branch(self)
                    if self.graphs:
                        self.graphs.expect(shapes_to_come(self))
                if self.graphs:
                    loss = self.graphs.run(step)
                else:
                    loss = self.optimizer_step(step)
                self._record.unrecorded.append(loss)
                self.schedule.step()
                self.step += 1
                if len(self._record.unrecorded) == settings.log_every or self.step == len(self.plan):
                    self._record.record()
                if self.step % self.epoch_steps == 0 and settings.evaluate == "epoch":
                    self._evaluate()
                if checkpoint and (stop_asked() or self._due(checkpoint)):
                    self._save(checkpoint)
                if stop_asked():
                    raise KeyboardInterrupt

    def _pad(self) -> int | None:
        """Tokens are padded to a multiple of this: few shapes for graphs, and tensor cores work in eights."""
        if self.graphs:
            return PAD
        if self.accelerator.device.type == "cuda":
            return 8
        return None

    def optimizer_step(self, step: Step) -> Tensor:
        """One optimizer step; returns this process's part of its mean loss, unread."""
        a, name = self.accelerator, self.names[step.task]
        total = torch.zeros((), device=a.device)
        with self.method.around_step(self, name):
            if not self.keep_gradients:
                self.optimizer.zero_grad(set_to_none=True)
            self.keep_gradients = False
            for i, (batch, weight) in enumerate(step.micro, 1):
                with nullcontext() if i == len(step.micro) else a.no_sync(self.wrapped):
                    # processes average their gradients: the sum over this one's examples, times processes,
                    # over all examples
                    with cast_while_captured(self.model, self.settings.precision):
                        losses = self.wrapped(name, batch).loss
                    loss = losses.sum() * (weight * a.num_processes / step.size)
                    a.backward(loss)
                total += loss.detach()
            total /= a.num_processes
            if self.balance is not None:
                mean = total
                if a.num_processes > 1:
                    mean = a.reduce(total, "sum")
                torch._foreach_mul_(
                    [p.grad for p in self.parameters if p.grad is not None],
                    self.balance.scale(step.task, mean),
                )
            if self.settings.clip is not None:
                a.clip_grad_norm_(self.parameters, self.settings.clip)
            self._stepper.step()
        return total

    def _stopped(self) -> bool:
        """Whether the best evaluation lies too far back (a resumed training asks this again)."""
        patience = self.settings.early_stopping
        return (
            patience is not None
            and bool(self._best)
            and self.step - self._best["step"] >= patience * self.epoch_steps
        )

    def _evaluate(self) -> None:
        """Evaluates all tasks; keeps the weights if they are the best so far and training may stop early,
        which is decided on training examples set aside for it (see `portion_of`)."""
        self._record.fetch()
        tasks, split = self.tasks, "validation"
        if self._aside:
            tasks, split = self._aside, STOPPING
        options: Any = {
            "max_length": self.max_length,
            "accelerator": self.accelerator,
            "quiet": self.settings.quiet,
        }
        scores = {task.name: evaluate(self.model, task, split, **options).score for task in tasks}
        self.evaluations += [
            {"step": self.step, "task": name, "split": split, "score": score}
            for name, score in scores.items()
        ]
        if self.settings.trackers:
            self.accelerator.log({f"score/{name}": score for name, score in scores.items()}, step=self.step)
        if self.settings.early_stopping is None:
            return
        gains = [
            score if task.higher_is_better else -score
            for task, score in zip(self.tasks, scores.values(), strict=True)
        ]
        mean = float(np.mean(gains))
        if not self._best or mean > self._best["score"]:
            weights = {
                name: value.detach().cpu().clone()
                for name, value in self._saved["model"].state_dict().items()
            }
            self._best = {"score": mean, "step": self.step, "model": weights}

    def _due(self, checkpoint: Checkpoint) -> bool:
        """Whether to save now; several processes ask one another only when the losses are read anyway."""
        a = self.accelerator
        if a.num_processes == 1:
            return checkpoint.due()
        if self._record.unrecorded:
            return False
        due = torch.tensor(float(a.is_main_process and checkpoint.due()), device=a.device)
        return bool(a.reduce(due, "sum") > 0)

    def _save(self, checkpoint: Checkpoint) -> None:
        self._record.record()
        random = gather_random_state(self.accelerator)
        state = {
            "step": self.step,
            "losses": self.losses,
            "evaluations": self.evaluations,
            "best": self._best,
            "processes": random,
        }
        if self.accelerator.is_main_process:
            checkpoint.save(self._saved, state)
        self.accelerator.wait_for_everyone()

    def _resume(self, checkpoint: Checkpoint | None) -> None:
        state = checkpoint.restore(self._saved) if checkpoint else None
        if state is None and self._start is not None:
            state = Checkpoint(self._start).restore(self._saved)
            if state is None:
                raise HeadwiseError(f"there is no checkpoint in {self._start} to start from")
        if state is None:
            return
        if len(state["losses"]) != len(self.plan):
            raise HeadwiseError(
                f"the checkpoint is of a training with {len(state['losses'])} steps, this one has "
                f"{len(self.plan)}"
            )
        self.step, self.losses = int(state["step"]), np.asarray(state["losses"])
        self.evaluations, self._best = list(state["evaluations"]), dict(state["best"])
        put_random_state(self.accelerator, state["processes"])
        self.method.resumed(self)

    def _label(self) -> str:
        label = f"{self.method.name}: {', '.join(self.names)}"
        if self.step:
            label += f" from step {self.step}"
        return label
