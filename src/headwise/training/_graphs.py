"""Optimizer steps as CUDA graphs.

Small encoders on short texts are bound by launching kernels, not by arithmetic. A graph holds a whole step
(zeroed gradients, forward and backward passes, the method's masks, clipping, update) and launches it at once.
Steps of one task with equally many rows, padded to equally many tokens, share a graph; shapes that are rare,
and steps that cannot be captured, run as ordinary ones.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.tasks import BATCH_FIELDS, Batch, room_of_labels
from headwise.training._data import Step, Stream, shares

if TYPE_CHECKING:
    from headwise.training._loop import TrainingRun

PAD = 16  # tokens: rows are padded to multiples of this, so that few shapes serve all steps
WARM = 2  # ordinary steps of a task before its first graph: they make its optimizer state
FEWEST = 4  # steps that a shape must have for its graph to pay: capturing costs about two ordinary steps
MOST = 96  # graphs held at once
# to capture steps of a task: a capture may fail for a reason that is gone some steps later (seen with DeBERTa
# in bf16)
TRIES = 2

Key = tuple[Any, ...]


@dataclass
class Graph:
    """A captured step.

    Attributes:
        graph: what is replayed.
        step: the tensors it reads.
        loss: the tensor it writes.
    """

    graph: Any
    step: Step
    loss: Tensor

    def replay(self, step: Step) -> Tensor:
        """Runs the captured step on other data."""
        targets: list[Tensor] = []
        sources: list[Tensor] = []
        for (captured, _), (new, _) in zip(self.step.micro, step.micro, strict=True):
            for target, source in _pairs(captured, new):
                targets.append(target)
                sources.append(source)
        torch._foreach_copy_(targets, sources)
        self.graph.replay()
        return self.loss.clone()


class StepGraphs:
    """Runs steps by replaying graphs where that pays.

    Args:
        compute: one ordinary step; returns its loss.
        clear: drops all gradients.
        counts: how many steps of each shape are to come.

    Attributes:
        notes: why steps of a task run as ordinary ones, by task number.
        seconds: spent on capturing.
        captured: graphs that were made.
        replayed: steps that ran as graphs.
    """

    def __init__(
        self, compute: Callable[[Step], Tensor], clear: Callable[[], None], counts: Counter[Key]
    ) -> None:
        self.compute, self.clear = compute, clear
        self.notes: dict[int, str] = {}
        self.seconds, self.captured, self.replayed = 0.0, 0, 0
        self.bytes = 0
        self._tried: Counter[int] = Counter()  # captures that failed, by task
        self.expect(counts)

    def expect(self, counts: Counter[Key]) -> None:
        """Forgets all graphs: from here on steps do something else (a branch), and these shapes are to come.

        The next step is an ordinary one, so that what only it does (gradients it was left, another mode) is
        in no graph.
        """
        self.graphs: dict[Key, Graph] = {}
        # a pool whose graphs are all gone cannot be used again
        self.pool = torch.cuda.graph_pool_handle()
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.warm: Counter[int] = Counter()  # by task
        self.wanted = {key for key, count in counts.most_common(MOST) if count >= FEWEST}

    def run(self, step: Step) -> Tensor:
        """One optimizer step; returns its loss, unread."""
        key = shape_of(step)
        if key in self.graphs:
            self.replayed += 1
            return self.graphs[key].replay(step)
        if key not in self.wanted or step.task in self.notes:
            return self.compute(step)
        if self.warm[step.task] < WARM:
            self.warm[step.task] += 1
            return self.compute(step)
        graph = self._captured(step)
        if graph is None:
            return self.compute(step)
        self.graphs[key] = graph
        self.captured += 1
        self.replayed += 1
        return graph.replay(step)

    def release(self) -> None:
        """Lets go of all graphs and their memory; what was counted stays."""
        self.graphs, self.wanted = {}, set()

    def _captured(self, step: Step) -> Graph | None:
        static = Step(step.task, step.size, [(_copied(batch), weight) for batch, weight in step.micro])
        drawn = _host_draws()
        graph = self._recorded(static)
        if graph is not None and drawn != _host_draws():
            # a replay would repeat the numbers of the capture for ever
            self.notes[step.task] = "its steps draw random numbers on the host"
            _set_host_draws(drawn)
            return None
        return graph

    def _recorded(self, static: Step) -> Graph | None:
        """The graph of a step; None, with a note, if it cannot be captured."""
        began, before = time.perf_counter(), torch.cuda.memory_reserved()
        graph = torch.cuda.CUDAGraph()
        self.clear()
        torch.cuda.synchronize()
        state = torch.cuda.get_rng_state()
        try:
            with torch.cuda.stream(self.stream):
                # the thread that makes batches may allocate meanwhile
                graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
                try:
                    loss = self.compute(static)
                finally:
                    graph.capture_end()
        except Exception as error:
            self._recover(state)
            root = error.__context__ or error  # ending a capture that failed fails too
            self._failed(static.task, next(iter(str(root).splitlines()), type(root).__name__))
            return None
        self.seconds += time.perf_counter() - began
        self.bytes += torch.cuda.memory_reserved() - before
        return Graph(graph, static, loss)

    def _failed(self, task: int, reason: str) -> None:
        """After the last try steps of the task stay ordinary ones, for this reason; before, some ordinary
        steps and another try follow."""
        self._tried[task] += 1
        self.warm[task] = 0
        if self._tried[task] == TRIES:
            self.notes[task] = reason

    def _recover(self, state: Tensor) -> None:
        """After a failed capture torch's generator still counts as captured: another one takes its place, and
        with it new graphs."""
        torch.cuda.synchronize()
        fresh = torch.Generator("cuda")
        fresh.set_state(state)
        torch.cuda.default_generators[torch.cuda.current_device()].graphsafe_set_state(fresh)
        self.pool = torch.cuda.graph_pool_handle()
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.graphs = {}
        self.clear()


def shape_of(step: Step) -> Key:
    """What steps that share a graph have in common."""
    micro_shapes = (
        (tuple(batch.inputs["input_ids"].shape), len(batch), weight, batch.room)
        for batch, weight in step.micro
    )
    return (step.task, step.size, *micro_shapes)


def shapes_to_come(run: "TrainingRun") -> Counter[Key]:
    """How many steps of each shape are still to come."""
    plan, streams, start, micro = run.plan, run.streams, run.step, run.settings.micro_batch_size
    used = np.bincount(plan[:start], minlength=len(streams))
    counts: Counter[Key] = Counter()
    lengths = [stream.encoded.lengths for stream in streams]  # of each example's longest row
    for task in plan[start:].tolist():
        stream = streams[task]
        rows, _ = stream.rows_of_batch(int(used[task]))
        used[task] += 1
        micro_shapes = (
            _micro_shape(stream, lengths[task], micro_rows, weight)
            for micro_rows, weight in shares(rows, 0, 1, micro)
        )
        counts[(task, len(rows), *micro_shapes)] += 1
    return counts


def _micro_shape(stream: Stream, lengths: NDArray[np.int64], rows: NDArray[np.int64], weight: float) -> Key:
    first, last = stream.encoded.rows[rows], stream.encoded.rows[rows + 1]
    width = -(-int(lengths[rows].max(initial=1)) // PAD) * PAD
    return ((int((last - first).sum()), width), len(rows), weight, room_of_labels(stream.encoded, rows, PAD))


def why_not(run: "TrainingRun") -> str:
    """The reason why no step of a training can be captured; empty if they can."""
    settings = run.settings
    reasons = {
        "graphs are turned off": not settings.graphs,
        f"training runs on {run.accelerator.device.type}": run.accelerator.device.type != "cuda",
        "several processes train": run.accelerator.num_processes > 1,
        "gradient checkpointing recomputes activations": settings.gradient_checkpointing,
        "fp16 skips steps depending on the gradients": run.accelerator.scaler is not None,
        f"{settings.optimizer} reads values from the device": settings.optimizer not in ("adamw", "adamax"),
        f"{run.method.name} does not declare that all its steps are alike (`steps_alike`)": not _alike(
            type(run.method)
        ),
        "the model is spread over devices": len(set(getattr(run.model.encoder, "hf_device_map", {}).values()))
        > 1,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _alike(method: type) -> bool:
    """Whether a method says that its steps are alike: a class that changes steps has to say it itself, not
    inherit it."""
    for cls in method.__mro__:
        if "steps_alike" in vars(cls):
            return bool(vars(cls)["steps_alike"])
        if vars(cls).keys() & {"around_step", "trained"}:
            return False
    return False


def captured_steps(run: "TrainingRun") -> tuple[StepGraphs | None, str]:
    """What runs a training's steps as graphs; or None, and why they run as ordinary ones."""
    if reason := why_not(run):
        for group in run.optimizer.param_groups:  # a checkpoint may be of a training with graphs
            group["lr"] = float(group["lr"])
            if "capturable" in group:
                group["capturable"] = False
        return None, reason
    on_device(run.optimizer, run.accelerator.device)
    return StepGraphs(
        run.optimizer_step, lambda: run.optimizer.zero_grad(set_to_none=True), shapes_to_come(run)
    ), ""


def how_run(run: "TrainingRun") -> str:
    """How a training's steps ran, in words."""
    graphs = run.graphs
    if graphs is None:
        return f"ordinary steps: {run.not_captured}"
    steps = f"{run.step - run.began} steps"
    if run.began:
        steps += f" from step {run.began} on"
    summary = f"{graphs.replayed} of {steps} as CUDA graphs, captured in {graphs.seconds:.1f} s"
    return "; ".join(
        [
            summary,
            *(f"ordinary steps of {run.names[task]}: {reason}" for task, reason in graphs.notes.items()),
        ]
    )


def on_device(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Keeps learning rates and counts of steps on the device, where a graph reads them in each replay."""
    for group in optimizer.param_groups:
        group["capturable"] = True
        group["lr"] = torch.tensor(float(group["lr"]), device=device)
    for state in optimizer.state.values():  # of a checkpoint of ordinary steps, which count on the host
        if isinstance(state.get("step"), Tensor):
            state["step"] = state["step"].to(device)


def _tensors(batch: Batch) -> dict[str, Tensor]:
    """What a batch has beside the model's inputs."""
    return {name: value for name in BATCH_FIELDS if (value := getattr(batch, name)) is not None}


def _pairs(mine: Batch, theirs: Batch) -> Iterator[tuple[Tensor, Tensor]]:
    for name, value in mine.inputs.items():
        yield value, theirs.inputs[name]
    for name, value in _tensors(mine).items():
        yield value, getattr(theirs, name)


def _copied(batch: Batch) -> Batch:
    fields: dict[str, Any] = {name: value.clone() for name, value in _tensors(batch).items()}
    return replace(batch, inputs={name: value.clone() for name, value in batch.inputs.items()}, **fields)


def _host_draws() -> tuple[Any, ...]:
    """Where the random generators of Python, NumPy and torch stand on the host."""
    numbers: Any = np.random.get_state()  # noqa: NPY002
    name, keys, *position = numbers
    return random.getstate(), (name, keys.tobytes(), *position), torch.get_rng_state().numpy().tobytes()


def _set_host_draws(draws: tuple[Any, ...]) -> None:
    python_state, (name, keys, *position), device = draws
    random.setstate(python_state)
    np.random.set_state((name, np.frombuffer(keys, np.uint32), *position))  # noqa: NPY002
    torch.set_rng_state(torch.frombuffer(bytearray(device), dtype=torch.uint8))
