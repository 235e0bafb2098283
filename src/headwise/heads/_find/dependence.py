"""What a head's output depends on, and through which projections.

In one small forward pass the output of every projection is cut off and replaced by random numbers. Whatever
reaches a head's output from a cut by backpropagation ran through no other projection, so the cut features
that have a gradient are the head's own rows of W_Q, W_K and W_V, in whatever layout they are stored. Norms
are made elementwise meanwhile: their statistics tie all heads together, their weights do not.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from headwise.heads._inputs import on_device
from headwise.heads._reading import undisturbed
from headwise.heads._sites import Site

Key = tuple[str, int | str]  # module path; number or name of an argument of its forward


@dataclass
class Dependence:
    """What the heads of one site depend on.

    Attributes:
        features: for each projection that makes queries, keys, values, ...: which output features reach which
            head, (features, heads).
        parameters: for each parameter used directly, not through a projection's call: which entries reach
            which head, (heads, *shape).
        arguments: the same for tensor arguments of the watched modules.
        readers: modules that read the heads' outputs: the output projection, with what wraps it.
    """

    features: dict[str, Tensor] = field(default_factory=dict)
    parameters: dict[str, Tensor] = field(default_factory=dict)
    arguments: dict[Key, Tensor] = field(default_factory=dict)
    readers: list[str] = field(default_factory=list)


def weight_axes(module: nn.Module) -> tuple[int, int] | None:
    """Axes of a projection's weight that run over its output and its input; None if the module is not a
    projection."""
    if isinstance(module, Conv1D | nn.Embedding):
        return 1, 0
    weight = module._parameters.get("weight")
    if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d) or (weight is not None and weight.ndim == 2):
        return 0, 1  # also what families make of nn.Linear
    return None


def is_norm(module: nn.Module) -> bool:
    """Whether a module is a layer norm of some kind, by its class: norms may have no parameters at all."""
    return "norm" in type(module).__name__.lower() and next(module.children(), None) is None


def trace(
    model: nn.Module, sites: Sequence[Site], example: Mapping[str, Any], watched: Collection[str] = ()
) -> list[Dependence]:
    """Finds for each site what its heads depend on.

    Args:
        model: the model; nothing of it changes.
        sites: where its heads are.
        example: keyword arguments of one small forward pass, of at least two tokens.
        watched: paths of modules whose tensor arguments are followed too.
    """
    with undisturbed(model) as (twin,), torch.enable_grad():
        tracer = _Tracer(twin, sites, watched)
        with tracer.hooked():
            twin(**on_device(twin, example))
            return [tracer.dependence(site) for site in sites]


class _Tracer:
    def __init__(self, model: nn.Module, sites: Sequence[Site], watched: Collection[str]) -> None:
        self.model, self.watched = model, watched
        self.by_path: dict[str, dict[int, int]] = {}  # path -> call -> site index
        for site in sites:
            self.by_path.setdefault(site.path, {})[site.call] = site.index
        self.calls: dict[str, int] = dict.fromkeys(self.by_path, 0)
        self.outputs: dict[int, Tensor] = {}  # site index -> heads' outputs, (..., heads × head_dim)
        self.carriers: list[tuple[int, Tensor]] = []  # (site index, a tensor that holds its heads' outputs)
        self.readers: dict[int, list[str]] = {site.index: [] for site in sites}
        self.cuts: list[tuple[str, int, Tensor]] = []  # (module path, axis of features, leaf)
        self.arguments: list[tuple[Key, Tensor]] = []
        self.generator = torch.Generator().manual_seed(0)

    @contextmanager
    def hooked(self) -> Iterator[None]:
        handles = []
        required = [(parameter, parameter.requires_grad) for parameter in self.model.parameters()]
        try:
            for path, module in self.model.named_modules():
                if path in self.watched:
                    handles.append(module.register_forward_pre_hook(self._watch(path), with_kwargs=True))
                if path in self.by_path:
                    handles.append(module.register_forward_pre_hook(self._arrive(path)))
                if weight_axes(module) or is_norm(module):
                    handles.append(module.register_forward_hook(self._pass(path), prepend=True))
            for parameter, _ in required:
                parameter.requires_grad_(parameter.is_floating_point())
            yield
        finally:
            for handle in handles:
                handle.remove()
            for parameter, requires in required:
                parameter.requires_grad_(requires)

    def _arrive(self, path: str) -> Callable[..., None]:
        """Keeps what arrives at a site."""

        def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
            site = self.by_path[path].get(self.calls[path])
            self.calls[path] += 1
            if site is not None:
                self.outputs[site] = args[0]
                self.carriers.append((site, args[0]))

        return hook

    def _pass(self, path: str) -> Callable[..., Any]:
        """Cuts a projection's output off; makes a norm elementwise; notes who reads the heads' outputs."""

        def hook(module: nn.Module, args: tuple[Any, ...], returned: Any) -> Any:
            output = returned[0] if isinstance(returned, tuple) else returned
            if not isinstance(output, Tensor) or not output.is_floating_point():
                return None
            x = args[0] if args and isinstance(args[0], Tensor) else None
            sites = []
            if x is not None:
                sites = [site for site, carrier in self.carriers if _is_same_memory(x, carrier)]
            for site in sites:
                if path not in self.readers[site]:
                    self.readers[site].append(path)
            if is_norm(module):
                if x is None or x.shape != output.shape:
                    return None
                onward = _elementwise(module, x)
                self.carriers += [(site, onward) for site in sites]
            else:
                axis = 1 - output.ndim if isinstance(module, nn.Conv1d | nn.Conv2d) else -1
                leaf = torch.randn(output.shape, generator=self.generator).to(output).requires_grad_()
                self.cuts.append((path, axis, leaf))
                onward = leaf.clone()  # some models work in place, which a leaf forbids
            return (onward, *returned[1:]) if isinstance(returned, tuple) else onward

        return hook

    def _watch(self, path: str) -> Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]:
        """Makes every tensor argument of a module a leaf of its own."""

        def leaf(key: int | str, value: Any) -> Any:
            if not isinstance(value, Tensor) or not value.is_floating_point():
                return value
            cut = value.detach().clone().requires_grad_()
            self.arguments.append(((path, key), cut))
            return cut.clone()

        def hook(
            module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> tuple[tuple[Any, ...], dict[str, Any]]:
            leaves = tuple(map(leaf, range(len(args)), args))
            return leaves, {name: leaf(name, arg) for name, arg in kwargs.items()}

        return hook

    def dependence(self, site: Site) -> Dependence:
        """Backpropagates from each head of a site alone."""
        output = self.outputs[site.index]
        if not output.requires_grad:
            # A pass without gradients, inside the model's own code
            return Dependence(readers=self.readers[site.index])
        direct = [pair for pair in self.model.named_parameters() if pair[1].is_floating_point()]
        leaves: list[Tensor] = [leaf for *_, leaf in self.cuts]
        leaves += [leaf for _, leaf in (*self.arguments, *direct)]
        weights = torch.randn(output.shape, generator=self.generator).to(output)
        product = output * weights
        reached = [
            i
            for i, gradient in enumerate(_gradients(product.sum(), leaves))
            if gradient is not None and bool(gradient.any())
        ]
        reached_leaves = [leaves[i] for i in reached]
        by_head = [
            _gradients(product[..., site.columns(head)].sum(), reached_leaves) for head in range(site.n_heads)
        ]
        dependence = Dependence(readers=self.readers[site.index])
        for i, leaf, gradients in zip(reached, reached_leaves, zip(*by_head, strict=True), strict=True):
            zeros = torch.zeros_like(leaf)
            dense = [zeros if gradient is None else gradient for gradient in gradients]
            marks = torch.stack(dense).ne(0).cpu()  # (heads, *shape)
            if i < len(self.cuts):
                path, axis, _ = self.cuts[i]
                rows = marks.movedim(axis, -1).flatten(1, -2).any(1).T  # (features, heads)
                dependence.features[path] = dependence.features.get(path, torch.zeros_like(rows)) | rows
                continue
            i -= len(self.cuts)
            if i < len(self.arguments):
                dependence.arguments[self.arguments[i][0]] = marks
            else:
                dependence.parameters[direct[i - len(self.arguments)][0]] = marks
        return dependence


def _gradients(value: Tensor, leaves: list[Tensor]) -> Sequence[Tensor | None]:
    return torch.autograd.grad(value, leaves, retain_graph=True, allow_unused=True)


def _is_same_memory(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and first.data_ptr() == second.data_ptr()


def _elementwise(norm: nn.Module, x: Tensor) -> Tensor:
    """A norm without its statistics: scale and shift of each feature by itself."""
    output = x.clone()
    for name, parameter in norm.named_parameters(recurse=False):
        if parameter.shape == x.shape[-1:]:
            output = output + parameter if name == "bias" else output * (1 + parameter)
    return output
