"""`patching` and `attribution-patching`: how much of an answer one head carries, on clean and corrupted
prompts."""

from contextlib import nullcontext
from itertools import chain
from typing import Any, Literal

import torch
import xarray as xr
from torch import Tensor, nn
from torch.nn.functional import softplus

from headwise._passes.entrances import Entrances, find_entrances
from headwise._passes.frozen import frozen, with_gradients
from headwise._passes.subject import TaskSubject, computing, prepare
from headwise.errors import HeadwiseError
from headwise.heads import HeadSet, Pass, Site, read_pass, with_rows
from headwise.models import DecoderOutput, answer_differences, real_columns
from headwise.scoring._last_token import LastTokens, can_continue, long_enough
from headwise.scoring._result import as_scores
from headwise.scoring._settings import Reading
from headwise.settings import operation, option
from headwise.tasks import KINDS, Batch, Task

ROWS = 512  # patched rows of one pass, at most
TOKENS = {"cpu": 1 << 11, "cuda": 1 << 17}  # and their tokens


class Contrasting(Reading):
    """What both take."""

    direction: Literal["denoise", "noise"] = option(
        "denoise",
        "Patch clean outputs into the corrupted prompt (denoise), or corrupted ones into the clean prompt "
        "(noise).",
    )
    tokens: Literal["all", "last"] = option(
        "all", "Patch every token, for prompts with equal numbers of tokens; or only the last one."
    )


class Patching(Contrasting):
    """Settings of `patching`."""

    examples: int | None = option(
        256, "At most this many examples of the split, drawn at random; None: all.", ge=1
    )


class AttributionPatching(Contrasting):
    """Settings of `attribution_patching`."""


@operation(Patching)
def patching(model: Any, task: Task, settings: Patching) -> xr.DataArray:
    """Activation patching, one head at a time: (P − T) ÷ (S − T), mean logit differences over all examples.

    S is that of the source prompts, T that of the target prompts, and P that of the target prompts while the
    head puts out what it put out in the source. So 1 is a head that carries the whole difference by itself,
    and 0 one that carries nothing.

    Args:
        model: a causal language model.
        task: a task of kind "contrast".

    Returns:
        (layer, head).
    """
    subject = _subject(model, task, settings)
    patched = torch.zeros(subject.heads.shape, dtype=torch.float64)
    ends = torch.zeros(2, dtype=torch.float64)
    with frozen(subject.model), torch.no_grad(), subject.lesioned():
        entrances = _entrances(subject, settings)
        for batch in subject.read(subject.plan(), f"patching heads, {task.name}"):
            source, target = _sides(batch, settings.direction, settings.tokens)
            with subject.heads.recorded("all") as tape:
                carried = _differences(subject, source)
            ends[0] += carried.sum().double().cpu()
            with entrances.recording() as outputs:
                unpatched = _differences(subject, target)
            ends[1] += unpatched.sum().double().cpu()
            clean = carried if settings.direction == "denoise" else unpatched
            _keep(subject, batch, clean)
            rows, tokens = target.inputs["input_ids"].shape
            most_tokens = TOKENS.get(subject.device.type, TOKENS["cuda"])
            at_once = max(1, min(ROWS // rows, most_tokens // (rows * tokens)))
            for block, heads in _by_block(subject, entrances).items():
                for start in range(0, len(heads), at_once):
                    group = heads[start : start + at_once]
                    sets = list(chain.from_iterable([HeadSet([head])] * rows for head in group))
                    sources = list(range(rows)) * len(group)
                    with (
                        entrances.entered(block, outputs, len(group)),
                        subject.heads.patched(sets, tape, settings.tokens, rows=sources),
                    ):
                        differences = _differences(subject, target.repeated(len(group)))
                    by_head = differences.view(len(group), rows).sum(1).double().cpu()
                    for head, value in zip(group, by_head, strict=True):
                        patched[head] += value
    values = (patched - ends[1]) / _span(ends, len(subject.encoded), task)
    return as_scores(
        values, subject, "patching", "signed", direction=settings.direction, tokens=settings.tokens
    )


@operation(AttributionPatching)
def attribution_patching(model: Any, task: Task, settings: AttributionPatching) -> xr.DataArray:
    """The first order of `patching`: Σ (z_source − z_target) · ∂D/∂z at the target, over S − T; z is a head's
    output, D the logit difference.

    One pass of the source, one of the target and one backward pass give every head; at the last token only,
    the backward pass is that of one token.

    Args:
        model: a causal language model.
        task: a task of kind "contrast".

    Returns:
        (layer, head).
    """
    subject = _subject(model, task, settings)
    summed = torch.zeros(subject.heads.shape, dtype=torch.float64)
    ends = torch.zeros(2, dtype=torch.float64)
    encoder = subject.model.encoder
    alone = None if settings.tokens == "last" else False  # whether last tokens can be read by themselves
    with frozen(subject.model), subject.lesioned():
        for batch in subject.read(subject.plan(), f"attributing heads, {task.name}"):
            source, target = _sides(batch, settings.direction, settings.tokens)
            there, here = _Outputs(), _Outputs()
            with torch.no_grad(), subject.heads.edited(there):
                carried = _differences(subject, source)
            ends[0] += carried.sum().double().cpu()
            if alone is None:
                alone = can_continue(subject, source, carried)
            last = LastTokens(subject, target) if alone and long_enough(target) else None
            with with_gradients(subject.model), subject.heads.edited(here):
                unpatched = _differences(subject, target) if last is None else last.differences()
                total = unpatched.sum()
            ends[1] += total.detach().double().cpu()
            clean = carried if settings.direction == "denoise" else unpatched
            _keep(subject, batch, clean)
            leaves = [here.leaves[site.index] for site in subject.heads.sites]
            slopes = torch.autograd.grad(total, leaves, allow_unused=True)
            for site, slope in zip(subject.heads.sites, slopes, strict=True):
                if slope is None:
                    continue
                carrying = _at_tokens(encoder, there.outputs[site.index], source, settings.tokens)
                before = here.outputs[site.index]
                if last is None:
                    before = _at_tokens(encoder, before, target, settings.tokens)
                    slope = _at_tokens(encoder, slope, target, settings.tokens)
                change = ((carrying - before) * slope).sum(dim=(0, 1, 3), dtype=torch.float64)  # (heads,)
                summed[site.index, : site.n_heads] += change.cpu()
    values = summed / _span(ends, len(subject.encoded), task)
    return as_scores(
        values,
        subject,
        "attribution-patching",
        "signed",
        direction=settings.direction,
        tokens=settings.tokens,
    )


class _Outputs:
    """An edit that keeps head outputs, and adds a zero to each that can be derived by."""

    def __init__(self) -> None:
        self.passed = Pass()
        self.outputs: dict[int, Tensor] = {}
        self.leaves: dict[int, Tensor] = {}

    def start(self, arguments: dict[str, Any]) -> None:
        self.passed = read_pass(arguments)

    def apply(self, site: Site, x: Tensor) -> Tensor:
        rows = self.passed.rows(site, x)  # (batch, tokens, heads, head_dim)
        self.outputs[site.index] = rows.detach()
        if not torch.is_grad_enabled():
            return x
        leaf = self.leaves[site.index] = torch.zeros_like(rows).requires_grad_()
        return with_rows(site, x, rows + leaf)


def _subject(model: Any, task: Task, settings: Reading) -> TaskSubject:
    if KINDS[task.kind].reads != "contrast":
        raise HeadwiseError(
            f"task {task.name!r} is of kind {task.kind!r}; patching compares clean and corrupted prompts: "
            "give a task of kind 'contrast'"
        )
    return prepare(model, task, settings)


def _sides(batch: Batch, direction: str, tokens: str) -> tuple[Batch, Batch]:
    """The source prompts and the target prompts of a batch, one row an example."""
    lengths = batch.inputs["attention_mask"].sum(1).view(-1, 2)
    differ = (lengths[:, 0] != lengths[:, 1]).nonzero()[:, 0]
    if tokens == "all" and len(differ):
        number = int(differ[0])
        raise HeadwiseError(
            f"example {int(batch.index[number])} has {int(lengths[number, 0])} tokens in its clean prompt "
            f"and {int(lengths[number, 1])} in its corrupted one: all tokens can be patched only if both "
            "have equally many; make them equal, or set tokens='last'"
        )
    clean, corrupted = _side(batch, 0), _side(batch, 1)
    return (clean, corrupted) if direction == "denoise" else (corrupted, clean)


def _side(batch: Batch, side: int) -> Batch:
    """The clean (0) or the corrupted (1) prompts of a batch."""
    inputs = {name: value[side::2] for name, value in batch.inputs.items()}
    return Batch(inputs, batch.labels, batch.index, batch.owner[side::2], batch.kind)


def _differences(subject: TaskSubject, side: Batch) -> Tensor:
    """Logit differences after each row, (rows,)."""
    model: Any = subject.model
    with model.contexts.get(subject.task.name, nullcontext)(), computing(subject.precision, subject.device):
        logits = model.token_logits(subject.task.kind, side)
    return answer_differences(logits, side)


def _keep(subject: TaskSubject, batch: Batch, clean: Tensor) -> None:
    """Keeps what the intact model says after the clean prompts of a batch: logit differences, (rows,)."""
    subject.answers.keep(batch, DecoderOutput(softplus(-clean), clean.detach(), clean))


def _at_tokens(encoder: nn.Module, values: Tensor, side: Batch, tokens: str) -> Tensor:
    """Values (rows, tokens, ...) at the tokens that are patched: real ones in order, padding aside, or the
    last."""
    real = real_columns(encoder, side.inputs)  # (rows, tokens)
    if tokens == "last":
        last = real.shape[1] - 1 - real.int().flip(1).argmax(1)
        return values[torch.arange(len(values), device=values.device), last][:, None]
    return values * real[:, :, None, None]


def _span(ends: Tensor, count: int, task: Task) -> Tensor:
    span = ends[0] - ends[1]
    if float(span.abs()) / count < 1e-6:
        raise HeadwiseError(
            f"task {task.name!r}: clean and corrupted prompts have the same mean logit difference, so there "
            "is nothing to restore"
        )
    return span


def _entrances(subject: TaskSubject, settings: Contrasting) -> Entrances:
    """Where passes with a patched head may begin; nowhere while other heads stay silenced."""
    if subject.silenced:
        return Entrances()
    _, target = _sides(subject.shortest(), settings.direction, settings.tokens)
    return find_entrances(subject.heads, lambda times, opened: _differences(subject, target.repeated(times)))


def _by_block(subject: TaskSubject, entrances: Entrances) -> dict[int, list[tuple[int, int]]]:
    """The heads to score by the block in which their passes begin, 0 for whole passes."""
    heads: dict[int, list[tuple[int, int]]] = {}
    for head in subject.heads.all():
        if bool(subject.scored[head]):
            heads.setdefault(entrances.begin(head[0]), []).append(head)
    return heads
