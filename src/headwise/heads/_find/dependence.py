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

from headwise.heads._inputs import root_of
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
    """Whether a module is a layer norm of some kind: by its class, since norms may have no parameters at all."""
    return "norm" in type(module).__name__.lower() and not any(True for _ in module.children())


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


def on_device(model: nn.Module, example: Mapping[str, Any]) -> dict[str, Any]:
    """The same keyword arguments where the model is now."""
    root: Any = root_of(model)
    return {
        name: value.to(root.device) if isinstance(value, Tensor) else value for name, value in example.items()
    }


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
            output, *others = returned if isinstance(returned, tuple) else (returned,)
            if not isinstance(output, Tensor) or not output.is_floating_point():
                return None
            given = args[0] if args and isinstance(args[0], Tensor) else None
            sites = [site for site, carrier in self.carriers if given is not None and _same(given, carrier)]
            for site in sites:
                if path not in self.readers[site]:
                    self.readers[site].append(path)
            if is_norm(module):
                if given is None or given.shape != output.shape:
                    return None
                onward = _elementwise(module, given)
                self.carriers += [(site, onward) for site in sites]
            else:
                axis = 1 if isinstance(module, nn.Conv1d | nn.Conv2d) else -1
                leaf = torch.randn(output.shape, generator=self.generator).to(output).requires_grad_()
                self.cuts.append((path, axis, leaf))
                onward = leaf.clone()  # some models work in place, which a leaf forbids
            return (onward, *others) if isinstance(returned, tuple) else onward

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
            return tuple(leaf(i, arg) for i, arg in enumerate(args)), {
                name: leaf(name, arg) for name, arg in kwargs.items()
            }

        return hook

    def dependence(self, site: Site) -> Dependence:
        """Backpropagates from each head of a site alone."""
        output = self.outputs[site.index]
        if not output.requires_grad:
            # A pass without gradients, inside the model's own code
            return Dependence(readers=self.readers[site.index])
        direct = [
            (name, parameter)
            for name, parameter in self.model.named_parameters()
            if parameter.is_floating_point()
        ]
        leaves = (
            [leaf for *_, leaf in self.cuts]
            + [leaf for _, leaf in self.arguments]
            + [parameter for _, parameter in direct]
        )
        weights = torch.randn(output.shape, generator=self.generator).to(output)
        product = output * weights
        reached = [
            i
            for i, grad in enumerate(_gradients(product.sum(), leaves))
            if grad is not None and bool(grad.any())
        ]
        per_head = [
            _gradients(product[..., site.columns(head)].sum(), [leaves[i] for i in reached])
            for head in range(site.n_heads)
        ]
        found = Dependence(readers=self.readers[site.index])
        for place, i in enumerate(reached):
            grads = [
                torch.zeros_like(leaves[i]) if given is None else given
                for given in (row[place] for row in per_head)
            ]
            marks = torch.stack(grads).ne(0).cpu()  # (heads, *shape)
            if i < len(self.cuts):
                path, axis, _ = self.cuts[i]
                # (features, heads)
                rows = marks.movedim(axis if axis < 0 else axis + 1, -1).flatten(1, -2).any(1).T
                found.features[path] = found.features.get(path, torch.zeros_like(rows)) | rows
            elif i < len(self.cuts) + len(self.arguments):
                found.arguments[self.arguments[i - len(self.cuts)][0]] = marks
            else:
                found.parameters[direct[i - len(self.cuts) - len(self.arguments)][0]] = marks
        return found


def _gradients(value: Tensor, leaves: list[Tensor]) -> Sequence[Tensor | None]:
    return torch.autograd.grad(value, leaves, retain_graph=True, allow_unused=True)


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.data_ptr() == other.data_ptr()


def _elementwise(norm: nn.Module, given: Tensor) -> Tensor:
    """A norm without its statistics: scale and shift of each feature by itself."""
    output = given.clone()
    for name, parameter in norm.named_parameters(recurse=False):
        if parameter.shape == given.shape[-1:]:
            output = output + parameter if name == "bias" else output * (1 + parameter)
    return output
