"""Evaluating many lesions of one model on one task, as cheaply as can be without changing the result.

Three ways, mixed as it pays: lesions that touch only upper layers start from the intact model's lower layers;
lesions of many heads run in a smaller model; the rest are gated, several in one batch while the batch is
small.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise._base.progress import track
from headwise._passes.entrances import Entrances, find_entrances
from headwise._passes.frozen import frozen
from headwise._passes.stack import Stack, find_stack
from headwise._passes.subject import TaskSubject
from headwise.heads import HeadSet
from headwise.models import check_answers

# Rows × tokens up to which several lesions share one batch: below it a pass costs its overhead, not its
# arithmetic.
TOKENS_AT_ONCE = {"cpu": 512, "cuda": 32768}
# Removal copies the model and checks the copy, on the CPU the work of about 500 tokens; above this many bytes
# nothing is copied.
WORTH_REMOVING_TOKENS = 800
MAX_COPY_BYTES = 2_000_000_000


@dataclass(frozen=True)
class Outcome:
    """What became of every example under every lesion.

    Attributes:
        predictions: (lesions, examples), or (lesions, examples, columns) for kinds whose rows hold counts.
        losses: (lesions, examples).
        ways: how the lesions were run: {"shared": 120, "removed": 0, "gated": 24, "intact": 1}, and why not
            otherwise.
    """

    predictions: NDArray[Any]
    losses: NDArray[np.float32]
    ways: dict[str, Any]


@dataclass
class Plan:
    """Which way each lesion is run; numbers of lesions.

    Attributes:
        intact: lesions of nothing.
        shared: by block, lesions whose lowest head lies in it or above, run from there on.
        removed, gated: the others.
        entrances: the blocks in which passes may begin.
        note: why lower layers are not shared, where they are not.
    """

    intact: list[int] = field(default_factory=list)
    shared: dict[int, list[int]] = field(default_factory=dict)
    removed: list[int] = field(default_factory=list)
    gated: list[int] = field(default_factory=list)
    entrances: Entrances = field(default_factory=Entrances)
    note: str = ""

    def ways(self) -> dict[str, Any]:
        counts: dict[str, Any] = {name: len(getattr(self, name)) for name in ("intact", "removed", "gated")}
        counts["shared"] = sum(len(lesions) for lesions in self.shared.values())
        if self.note:
            counts["note"] = self.note
        return counts


def evaluate(
    subject: TaskSubject,
    sets: Sequence[HeadSet],
    description: str = "",
    way: str = "auto",
    how: str = "zero",
    reference: Any = None,
) -> Outcome:
    """Every example's prediction and loss under every lesion; beside it, the subject's own silenced heads
    stay silenced.

    Args:
        subject: the model and the task.
        sets: the heads each lesion silences; an empty set is the intact model.
        description: for the progress bar.
        way: "auto", or one way for all: "gated", "shared", "removed", "one by one" (one full gated pass per
            lesion and batch).
        how: what a silenced head puts out: "zero", its "mean", or that of another example ("resample").
        reference: for "mean" and "resample", as `Heads.silenced` takes it.
    """
    for head_set in sets:
        subject.heads.check(head_set)
    numbers = {head_set: number for number, head_set in enumerate(dict.fromkeys(sets))}
    if len(numbers) < len(sets):  # equal lesions are run once
        once = evaluate(subject, list(numbers), description, way, how, reference)
        again = [numbers[head_set] for head_set in sets]
        return Outcome(once.predictions[again], once.losses[again], once.ways)
    store = _Store(subject, len(sets))
    if how != "zero":
        with frozen(subject.model), torch.inference_mode():
            for lesion, head_set in enumerate(
                track(sets, description, quiet=subject.quiet or not description)
            ):
                with (
                    subject.heads.silenced(head_set, how, reference, subject.seed)
                    if head_set
                    else nullcontext()
                ):
                    _run_all(subject, lesion, store)
        return Outcome(*store.arrays(), {"replaced": len(sets)})
    with frozen(subject.model), torch.inference_mode():
        plan = make_plan(subject, sets, way)
        if plan.shared:
            _find_entrances(subject, sets, plan)
        gates = _gates(subject, sets)  # (lesions, layers, heads)
        _run_on_the_model(subject, plan, gates, store, description, way)
        smaller = f"{description}, smaller models"
        for lesion in track(
            plan.removed, smaller, quiet=subject.quiet or not description or not plan.removed
        ):
            with _smaller(subject, sets[lesion]):
                _run_all(subject, lesion, store, gated=False)
    return Outcome(*store.arrays(), plan.ways())


def make_plan(subject: TaskSubject, sets: Sequence[HeadSet], way: str = "auto") -> Plan:
    """Chooses by counting, never by timing, so that the same call runs the same way."""
    plan = Plan()
    stack = find_stack(subject.heads)
    if isinstance(stack, str):
        plan.note = f"lower layers are not shared: {stack}"
    possible = not isinstance(stack, str) and way in ("auto", "shared")
    lowest = (
        {i: stack.block_of[min(s)[0]] for i, s in enumerate(sets) if s} if isinstance(stack, Stack) else {}
    )
    # the lower layers must be run once more to be kept, unless the intact model is asked for anyway
    saved = sum(stack.share(block) for block in lowest.values()) if isinstance(stack, Stack) else 0.0
    share = possible and saved > (0 if any(not s for s in sets) else 1)
    for i, head_set in enumerate(sets):
        if not head_set:
            plan.intact.append(i)
        elif share and lowest[i] > 0:
            plan.shared.setdefault(lowest[i], []).append(i)
        elif way == "removed" or (way == "auto" and _removal_pays(subject, head_set)):
            plan.removed.append(i)
        else:
            plan.gated.append(i)
    return plan


def _find_entrances(subject: TaskSubject, sets: Sequence[HeadSet], plan: Plan) -> None:
    """Moves lesions whose passes may not begin in their own block to the highest below it where they may, or
    to whole passes."""
    highest = plan.shared[max(plan.shared)][0]
    # (1, layers, heads), which change nothing below any block that is tried
    gates = _gates(subject, [sets[highest]])
    batch = subject.shortest()
    entrances = find_entrances(
        subject.heads,
        lambda times, opened: subject.forward(batch.repeated(times), opened(gates).repeat(times, 1, 1)).loss,
        plan.shared,
    )
    plan.entrances, plan.note = entrances, entrances.note
    shared, plan.shared = plan.shared, {}
    for block, lesions in shared.items():
        begin = entrances.begins[block]
        (plan.shared.setdefault(begin, []) if begin else plan.gated).extend(lesions)
    if not plan.shared:
        warnings.warn(f"{plan.note}; full passes are used instead, which takes longer", stacklevel=3)


def _removal_pays(subject: TaskSubject, head_set: HeadSet) -> bool:
    heads, encoder = subject.heads, subject.model.encoder
    if subject.device.type != "cpu":
        return False  # passes are quick there, and the copy is not
    if subject.model.contexts or subject.silenced:
        return False  # contexts hold on to the modules of the model as it is
    counts = {layer: len(in_layer) for layer, in_layer in head_set.layers().items()}
    if any(
        counts.get(site.index, 0) == site.n_heads or site.n_groups != site.n_heads or site.n_calls > 1
        for site in heads.sites
    ):
        return False  # a whole layer, grouped keys, or shared layers: gating is always right
    share = len(head_set) / heads.total
    tokens = int(subject.encoded.row_lengths.sum())
    size = sum(weight.numel() * weight.element_size() for weight in encoder.parameters())
    # attention is about 40 % of a block's work
    return 0.4 * share * tokens > WORTH_REMOVING_TOKENS and size <= MAX_COPY_BYTES


def _gates(subject: TaskSubject, sets: Sequence[HeadSet]) -> Tensor:
    masks = np.stack([head_set.to_mask(subject.heads.shape) for head_set in sets])
    # truth values: a silenced head need not put out a number
    return subject.scored & ~torch.as_tensor(masks, device=subject.device)


def _run_on_the_model(
    subject: TaskSubject, plan: Plan, gates: Tensor, store: "_Store", description: str, way: str
) -> None:
    """Everything that runs on the whole model: batch by batch, so that kept layers are those of one batch."""
    if not (plan.intact or plan.shared or plan.gated):
        return
    batches = subject.plan()
    budget = 0 if way == "one by one" else TOKENS_AT_ONCE.get(subject.device.type, TOKENS_AT_ONCE["cuda"])
    for number, batch in enumerate(subject.read(batches, description)):
        examples = batches.plan[number]
        outputs: dict[int, Any] = {}
        together = plan.gated
        if not plan.shared and budget and subject.device.type != "cpu":
            # with nothing to keep, the intact model is a lesion like any other
            together = [*plan.intact, *plan.gated]
        elif plan.intact or plan.shared:
            with plan.entrances.recording() as outputs:
                output = subject.forward(batch)
            for lesion in plan.intact:
                store.put([lesion], examples, output)
        size = batch.inputs["input_ids"].numel()
        at_once = max(1, budget // size)
        for block, lesions in {**plan.shared, 0: together}.items():
            for start in range(0, len(lesions), at_once):
                group = lesions[start : start + at_once]
                wide = batch.repeated(len(group))
                with plan.entrances.entered(block, outputs, len(group)):
                    opened = plan.entrances.open_gates(block, gates[group])
                    rows = opened.repeat_interleave(len(examples), dim=0)
                    store.put(group, examples, subject.forward(wide, rows))


@contextmanager
def _smaller(subject: TaskSubject, head_set: HeadSet) -> Iterator[None]:
    """Inside, the model's encoder is a smaller one without these heads."""
    model, encoder = subject.model, subject.model.encoder
    with torch.inference_mode(False):  # removal finds a head's parameters by their gradients
        model.encoder = subject.heads.remove(head_set).eval()
    try:
        yield
    finally:
        model.encoder = encoder


def _run_all(subject: TaskSubject, lesion: int, store: "_Store", gated: bool = True) -> None:
    """One lesion that holds for whole passes over the data."""
    batches = subject.plan()
    for number, batch in enumerate(subject.read(batches)):
        output = subject.forward(batch) if gated else subject.plain(batch)
        store.put([lesion], batches.plan[number], output)


class _Store:
    """Predictions and losses as they come, in the order of the examples."""

    def __init__(self, subject: TaskSubject, lesions: int) -> None:
        self.task, self.shape = subject.task.name, (lesions, len(subject.encoded))
        self.passes: list[tuple[list[int], NDArray[np.int64], Tensor, Tensor]] = []

    def put(self, lesions: list[int], examples: NDArray[np.int64], output: Any) -> None:
        """Keeps one pass: its rows are whole batches of these examples, one lesion after the other."""
        # kept on the device until the end: fetching each batch would make a GPU wait for every pass
        self.passes.append((lesions, examples, output.prediction.detach(), output.loss.detach().float()))

    def arrays(self) -> tuple[NDArray[Any], NDArray[np.float32]]:
        columns = self.passes[0][2].shape[1:]
        # all in one transfer
        flat = (
            torch.cat([prediction.reshape(-1, *columns) for _, _, prediction, _ in self.passes]).cpu().numpy()
        )
        lost = torch.cat([loss.reshape(-1) for *_, loss in self.passes]).cpu().numpy()
        predictions, losses = (
            np.empty((*self.shape, *columns), dtype=flat.dtype),
            np.empty(self.shape, dtype=np.float32),
        )
        start = 0
        for lesions, examples, _, _ in self.passes:
            stop = start + len(lesions) * len(examples)
            cells = np.ix_(np.array(lesions), examples)
            predictions[cells] = flat[start:stop].reshape(len(lesions), len(examples), *columns)
            losses[cells] = lost[start:stop].reshape(len(lesions), len(examples))
            start = stop
        check_answers(self.task, predictions, losses)
        return predictions, losses
