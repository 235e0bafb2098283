"""Finding the sites of a model by watching one small forward pass.

Every attention result becomes a fresh leaf of the autograd graph. When a projection is called with an input that depends
on such leaves, gradients tell which slice of the input comes from which head: a site is a projection whose input splits into
slices of equal width, each from heads of its own. That needs no table of names, and proves order and width.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from headwise.heads.errors import UnsupportedModel
from headwise.heads.inputs import DECODER_TOKENS, root_of, tiny_inputs
from headwise.heads.quiet import unchanged
from headwise.heads.sites import Site, projection_weight
from headwise.heads.watching import AttentionResult, Watcher


@dataclass
class Pending:
    """An attention result on its way to a projection."""

    result: AttentionResult
    leaf: Tensor
    where: str  # path of the innermost module running when it appeared


@dataclass
class Findings:
    """What one watched pass showed.

    Attributes:
        sites: in the order of the pass.
        missed: {module path: reason} for attention that no site covers.
        inputs: the keyword arguments of the pass.
    """

    sites: list[Site] = field(default_factory=list)
    missed: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, Any] = field(default_factory=dict)


def find_sites(model: nn.Module, example: Mapping[str, Any] | None = None) -> Findings:
    """Watches one forward pass of `model` in evaluation mode, and leaves the model as it was.

    Args:
        model: any model that `example` (default: a tiny input made for it) can be passed to.
        example: keyword arguments of the model's forward pass.

    Raises:
        UnsupportedModel: the pass failed.
    """
    problem: Exception | None = None
    for batch in (2, 1):  # some classifiers take a batch only if a padding token is set
        watch = _Watch(model)
        try:
            inputs = dict(example) if example is not None else tiny_inputs(model, batch)
            with unchanged(model), torch.no_grad():
                return watch.run(inputs)
        except Exception as error:
            problem = problem or error
    raise UnsupportedModel(
        f"{type(root_of(model)).__name__}: looked for its heads by watching one small forward pass, which failed with "
        f"{type(problem).__name__}: {problem}. Pass an input it accepts: Heads(model, example={{'input_ids': ...}})"
    ) from problem


class _Watch:
    """The state of one watched pass."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.names = {module: name for name, module in model.named_modules()}
        self.running: list[str] = []  # paths of the modules being called, outermost first
        self.executed: list[str] = []
        self.pending: list[Pending] = []
        self.calls: dict[str, int] = {}
        self.findings = Findings()
        self.decoder_tokens = DECODER_TOKENS

    def run(self, inputs: dict[str, Any]) -> Findings:
        if isinstance(inputs.get("decoder_input_ids"), Tensor):
            self.decoder_tokens = inputs["decoder_input_ids"].shape[1]
        handles = [module.register_forward_pre_hook(self._enter, with_kwargs=True) for module in self.names]
        handles += [module.register_forward_hook(self._leave, always_call=True) for module in self.names]
        try:
            with Watcher(on_result=self._result, on_functional=self._functional):
                self.model(**inputs)
        finally:
            for handle in handles:
                handle.remove()
        self.findings.inputs = inputs
        self._count_calls()
        for lost in self.pending:
            self._miss(lost.where, "its attention result reaches no projection module whose input splits into heads")
        return self.findings

    def _result(self, result: AttentionResult) -> Tensor:
        with torch.enable_grad():
            leaf = result.value.detach().requires_grad_()
        self.pending.append(Pending(result, leaf, self.running[-1] if self.running else ""))
        torch.set_grad_enabled(True)  # from here to the projection; unchanged outside by the caller's no_grad
        return leaf

    def _functional(self, name: str) -> None:
        self._miss(self.running[-1], f"it projects inside torch's {name}, where no module is called that could be hooked")

    def _miss(self, path: str, reason: str) -> None:
        self.findings.missed.setdefault(path, reason)

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        path = self.names[module]
        self.running.append(path)
        self.executed.append(path)
        self.calls[path] = self.calls.get(path, 0) + 1
        if self.pending and projection_weight(module) is not None and args and isinstance(args[0], Tensor):
            self._try_site(module, path, args[0])

    def _leave(self, module: nn.Module, args: Any, output: Any) -> Any:
        path = self.running.pop()
        if self.findings.sites and self.findings.sites[-1].path == path and isinstance(output, Tensor):
            return output.detach()
        return None

    def _try_site(self, module: nn.Module, path: str, x: Tensor) -> None:
        weight = projection_weight(module)
        if not x.requires_grad or weight is None or x.shape[-1] not in weight.shape:
            return
        feeding = [p for p, g in zip(self.pending, _gradients(x, torch.ones_like(x), self.pending), strict=True) if g is not None]
        if not feeding:
            return
        for n_heads in _head_counts(x, feeding):
            members = _members(x, n_heads, feeding)
            if members is not None:
                self._add_site(path, x, n_heads, members, feeding)
                break
        else:
            for lost in feeding:
                self._miss(lost.where, f"the input of {path}, {tuple(x.shape)}, does not split into slices of one head each")
        self.pending = [p for p in self.pending if p not in feeding]
        torch.set_grad_enabled(False)

    def _add_site(self, path: str, x: Tensor, n_heads: int, members: list[tuple[int, ...]], feeding: list[Pending]) -> None:
        first = feeding[0].result
        groups = first.value_heads if len(feeding) == 1 and first.value_heads is not None else n_heads
        single = len(feeding) == 1 and all(len(m) == 1 for m in members)
        self.findings.sites.append(
            Site(
                index=len(self.findings.sites),
                kind=self._kind(first, path),
                path=path,
                n_heads=n_heads,
                head_dim=x.shape[-1] // n_heads,
                n_groups=groups if n_heads % groups == 0 else n_heads,
                call=self.calls[path] - 1,
                layer_path=_block(self.model, path),
                batch_first=not (x.ndim == 3 and x.shape[1] < x.shape[0] and x.shape[1] <= 2),
                head_order=tuple(m[0] for m in members) if single else None,
            )
        )

    def _kind(self, result: AttentionResult, path: str) -> str:
        config = root_of(self.model).config
        if result.queries != result.keys:
            return "cross"
        if config.is_encoder_decoder and (result.queries == self.decoder_tokens or "decoder" in path.split(".")):
            return "decoder"
        return "self"

    def _count_calls(self) -> None:
        totals: dict[str, int] = {}
        for site in self.findings.sites:
            totals[site.path] = max(totals.get(site.path, 0), site.call + 1)
        self.findings.sites = [replace(site, n_calls=totals[site.path]) for site in self.findings.sites]


def _gradients(x: Tensor, cotangent: Tensor, pending: list[Pending]) -> tuple[Tensor | None, ...]:
    return torch.autograd.grad(x, [p.leaf for p in pending], cotangent, retain_graph=True, allow_unused=True)


def _head_counts(x: Tensor, feeding: list[Pending]) -> list[int]:
    """How many heads the last axis of `x` may hold: by the width of a result first, then by its number of heads."""
    value = feeding[0].result.value
    counts = [x.shape[-1] // value.shape[-1] if x.shape[-1] % value.shape[-1] == 0 else 0]
    if value.ndim == 4:
        counts.append(value.shape[1])
    return [n for n in dict.fromkeys(counts) if n > 0 and x.shape[-1] % n == 0]


def _members(x: Tensor, n_heads: int, feeding: list[Pending]) -> list[tuple[int, ...]] | None:
    """The attention heads behind each of `n_heads` slices of `x`; None if some head feeds two slices, or a slice has none.

    Heads are numbered over the axes of the results before (queries, head_dim), with the batch in front.
    """
    width = x.shape[-1] // n_heads
    owners: list[set[int]] = []
    for head in range(n_heads):
        cotangent = torch.zeros_like(x)
        cotangent[..., head * width : (head + 1) * width] = 1.0
        found: set[int] = set()
        offset = 0
        for gradient, source in zip(_gradients(x, cotangent, feeding), feeding, strict=True):
            leading = source.leaf.flatten(0, -3) if source.leaf.ndim > 2 else source.leaf[None]
            if gradient is not None:
                touched = gradient.reshape(leading.shape).flatten(1).ne(0).any(1)
                found |= {offset + int(i) for i in touched.nonzero()[:, 0]}
            offset += leading.shape[0]
        owners.append(found)
    if any(not found for found in owners) or sum(map(len, owners)) != len(set().union(*owners)):
        return None
    if len(set(map(len, owners))) != 1:
        return None
    rows = _rows(owners, n_heads)
    return [tuple(sorted(rows[head])) for head in range(n_heads)]


def _rows(owners: list[set[int]], n_heads: int) -> list[set[int]]:
    """Owners with the batch (and windows) folded away where heads repeat with period `n_heads`: one number per head."""
    folded = [{i % n_heads for i in found} for found in owners]
    return folded if all(len(found) == 1 for found in folded) else owners


def _block(model: nn.Module, path: str) -> str:
    """The layer a site belongs to: its nearest ancestor in a `ModuleList` of layers.

    A list whose members are of one class is a list of layers; T5 also lists the parts of one layer, which differ in class.
    """
    parts = path.split(".")
    ends = [e for e in range(len(parts) - 1, 0, -1) if isinstance(model.get_submodule(".".join(parts[: e - 1])), nn.ModuleList)]
    alike = [e for e in ends if len({type(child) for child in model.get_submodule(".".join(parts[: e - 1])).children()}) == 1]
    return ".".join(parts[: (alike or ends or [0])[0]])
