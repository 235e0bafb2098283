"""`attention-attribution`: how much of the answer flows along each attention edge (Hao et al. 2021)."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import xarray as xr
from torch import Tensor, nn

from headwise._passes.entrances import Entrances, find_entrances
from headwise._passes.frozen import frozen, with_gradients
from headwise._passes.subject import TaskSubject, prepare
from headwise.errors import HeadwiseError
from headwise.heads import Site, Watcher, eager
from headwise.models import real_columns
from headwise.scoring._integrated import unit_interval
from headwise.scoring._result import as_scores
from headwise.scoring._settings import Reading
from headwise.settings import operation, option
from headwise.tasks import Batch, Task


class AttentionAttribution(Reading):
    """Settings of `attention_attribution`."""

    examples: int | None = option(
        200, "At most this many examples of the split, drawn at random; None: all.", ge=1
    )
    steps: int = option(16, "Nodes of the Gauss-Legendre quadrature: passes per layer and example.", ge=1)


@operation(AttentionAttribution)
def attention_attribution(model: Any, task: Task, settings: AttentionAttribution) -> xr.DataArray:
    """Attr(A) = A ⊙ ∫₀¹ ∂F(αA)/∂A dα of each layer's attention maps; a head's score is the mean over examples
    of its maximum.

    F is exp(−loss), which for classes is the probability of the gold class, as in the paper. One layer's maps
    are scaled at a time. Attention runs eagerly while scoring (other kernels never hold the maps) and is
    switched back afterwards.

    Returns:
        (layer, head): mean of the largest attribution of one token to another.
    """
    steps = settings.steps
    subject = prepare(model, task, settings)
    for site in subject.heads.sites:
        if site.head_order is None:
            raise HeadwiseError(
                f"attention-attribution needs one attention map per head, and layer {site.index} "
                f"({site.path}) has none: its heads are made of several softmaxes, or in an unknown order; "
                "choose another method, for instance 'gate-gradient'"
            )
    total = torch.zeros_like(subject.base, dtype=torch.float64)
    with frozen(subject.model), _eager(subject):
        example = subject.shortest()
        with torch.no_grad():
            entrances = find_entrances(
                subject.heads,
                lambda times, opened: subject.forward(example.repeated(times), opened(subject.scored)).loss,
            )
        for batch in subject.read(subject.plan(), f"attributing attention, {task.name}"):
            with torch.no_grad(), entrances.recording() as outputs:
                subject.answers.keep(batch, subject.forward(batch))
            for site in subject.heads.sites:
                below = _Below(entrances, entrances.begin(site.index), outputs)
                largest = _largest(subject, batch, site, steps, below)  # (examples, heads)
                total[site.index, : site.n_heads] += largest.sum(dim=0, dtype=torch.float64)
    return as_scores(total / len(subject.encoded), subject, "attention-attribution", "magnitude", steps=steps)


@dataclass(frozen=True)
class _Below:
    """What passes that begin in a block start from.

    Attributes:
        entrances: the blocks in which passes may begin.
        block: in which these do; 0: they are whole.
        outputs: what blocks returned in the plain pass.
    """

    entrances: Entrances
    block: int
    outputs: dict[int, Any]

    @property
    def lowest(self) -> int:
        """The lowest layer that runs."""
        stack = self.entrances.stack
        if stack is None or not self.block:
            return 0
        return stack.block_of.index(self.block)

    def entered(self) -> AbstractContextManager[None]:
        return self.entrances.entered(self.block, self.outputs)


def attributions(
    subject: TaskSubject, batch: Batch, site: Site, steps: int, below: _Below | None = None
) -> Tensor:
    """Attr of one layer's maps, (rows, heads, queries, keys); over heads and edges it sums to F(whole) −
    F(layer silenced)."""
    total: Any = 0.0
    maps = None
    for level, weight in zip(*unit_interval(steps), strict=True):
        gates = subject.base.clone()
        gates[site.index] *= level  # scaling a layer's maps scales its head outputs, which are linear in them
        if below is not None:
            gates = below.entrances.open_gates(below.block, gates)
        edges = _Edges(site)
        lowest = 0 if below is None else below.lowest
        with (
            with_gradients(subject.model),
            below.entered() if below else nullcontext(),
            edges.watching(subject),
        ):
            answer = torch.exp(-subject.forward(batch, gates, lowest).loss).sum()
            # the maps stand before the gate, so their derivative has the level as a factor that the integrand
            # has not
            (slope,) = torch.autograd.grad(answer, edges.zeros(subject))
        total = total + weight / level * slope
        maps = edges.maps
    assert maps is not None
    attr = maps * total
    attr = attr.reshape(-1, site.n_heads, *attr.shape[-2:])  # (rows, heads, queries, keys)
    assert site.head_order is not None
    return attr[:, list(site.head_order)]


def _largest(subject: TaskSubject, batch: Batch, site: Site, steps: int, below: _Below) -> Tensor:
    """Each example's largest attribution per head, (examples, heads), over its real tokens."""
    attr = attributions(subject, batch, site, steps, below)  # (rows, heads, queries, keys)
    real = real_columns(subject.model.encoder, batch.inputs)  # (rows, tokens)
    if attr.shape[-2:] == (real.shape[1], real.shape[1]):
        attr = attr.masked_fill(~(real[:, None, :, None] & real[:, None, None, :]), -torch.inf)
    by_row = attr.amax(dim=(2, 3))  # (rows, heads)
    largest = by_row.new_full((len(batch), site.n_heads), -torch.inf)
    owner = batch.owner[:, None].expand_as(by_row)
    return largest.scatter_reduce_(0, owner, by_row, "amax").where(
        subject.scored[site.index, : site.n_heads], 0
    )


class _Edges:
    """Adds zero to one site's attention maps, so that the answer has a derivative by them.

    The maps of a layer are made just before its projection is called, so the last ones seen when the site's
    turn comes are its own.
    """

    def __init__(self, site: Site) -> None:
        self.site = site
        self.maps: Tensor | None = None
        self.added: Tensor | None = None

    @contextmanager
    def watching(self, subject: TaskSubject) -> Iterator[None]:
        last: list[tuple[Tensor, Tensor]] = []
        calls = 0

        def add_zero(probabilities: Tensor) -> Tensor:
            added = torch.zeros_like(probabilities, requires_grad=True)
            last[:] = [(probabilities.detach(), added)]
            return probabilities + added

        def claim(module: nn.Module, args: Any) -> None:
            nonlocal calls
            if calls == self.site.call and last:
                self.maps, self.added = last[0]
            calls += 1

        handle = subject.heads.model.get_submodule(self.site.path).register_forward_pre_hook(claim)
        try:
            with Watcher(on_probabilities=add_zero):
                yield
        finally:
            handle.remove()

    def zeros(self, subject: TaskSubject) -> Tensor:
        """What was added to the maps."""
        if self.added is None or self.maps is None or self.maps.numel() % self.site.n_heads:
            name = type(subject.model.encoder).__name__
            raise HeadwiseError(
                f"attention-attribution needs the attention maps of layer {self.site.index} "
                f"({self.site.path}), and {name} never holds them, even with eager attention; choose another "
                "method, for instance 'gate-gradient'"
            )
        return self.added


@contextmanager
def _eager(subject: TaskSubject) -> Iterator[None]:
    try:
        with eager(subject.model.encoder):
            yield
    except ValueError as error:
        name = type(subject.model.encoder).__name__
        raise HeadwiseError(
            f"attention-attribution needs eager attention, and {name} does not have it: {error}"
        ) from error
