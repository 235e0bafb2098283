"""Cutting heads out of a live model: what to cut, as JSON-ready values, and the one function that does it.

A removed model and a reloaded one are made by the same `operate`, so what was verified once is what comes
back.
"""

import inspect
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from headwise.heads._remove.headless import Headless


@dataclass
class Surgery:
    """What is cut out of a model, and how its attention code learns of it. Names and paths are those of the
    model.

    Attributes:
        removed: (layer, head) pairs, by the sites of the model before.
        slices: {parameter: (axis, [(start, stop), ...])}, the entries that stay.
        attributes: {module: {attribute: value}}, where the module keeps numbers of heads and widths.
        config: {module: {name: value}}, the same where it reads them from the model's configuration.
        arguments: {module: {argument: (axis, heads, heads that stay)}}, for position biases made elsewhere
            for all heads.
        tables: {module: (embedding or "", position, heads, heads that stay)}, for a position bias that the
            module makes for all layers (of zeros if no embedding is named) and returns at `position`.
        headless: {module: (output projection or "", container, what is in it)}, for attention with no head
            left (see `Headless`).
    """

    removed: list[tuple[int, int]] = field(default_factory=list)
    slices: dict[str, tuple[int, list[tuple[int, int]]]] = field(default_factory=dict)
    attributes: dict[str, dict[str, int]] = field(default_factory=dict)
    config: dict[str, dict[str, int]] = field(default_factory=dict)
    arguments: dict[str, dict[str, tuple[int, int, list[int]]]] = field(default_factory=dict)
    tables: dict[str, tuple[str, int, int, list[int]]] = field(default_factory=dict)
    headless: dict[str, tuple[str, str, list[str]]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Values for a manifest; `Surgery(**values)` reads them back."""
        return asdict(self)


def operate(model: nn.Module, surgery: Surgery) -> None:
    """Cuts in place."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    smaller: dict[str, nn.Parameter] = {}  # by the first name: tied parameters stay tied
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is None or names[id(parameter)] not in surgery.slices:
                continue
            first_name = names[id(parameter)]
            if first_name not in smaller:
                smaller[first_name] = _narrowed(parameter, *surgery.slices[first_name])
            module._parameters[name] = smaller[first_name]
            _update_shape(module)
    set_numbers(model, surgery)
    for path, arguments in surgery.arguments.items():
        NarrowedArguments(arguments).attach(model.get_submodule(path))
    for path, (table, position, heads, keep) in surgery.tables.items():
        SharedBias(position, heads, keep).attach(model.get_submodule(path), table)
    for path, (projection, container, returns) in surgery.headless.items():
        Headless.take_over(model.get_submodule(path), projection, container, returns)


def set_numbers(model: nn.Module, surgery: Surgery) -> None:
    """Tells attention modules how many heads they have now."""
    for path, attributes in surgery.attributes.items():
        vars(model.get_submodule(path)).update(attributes)
    for path, changes in surgery.config.items():
        module: Any = model.get_submodule(path)
        base = module.config.base if isinstance(module.config, ConfigView) else module.config
        module.config = ConfigView(base, changes)


def _narrowed(parameter: nn.Parameter, dim: int, ranges: list[tuple[int, int]]) -> nn.Parameter:
    tensor = parameter.detach()
    stretches = [tensor.narrow(dim, start, stop - start) for start, stop in ranges]
    entries = torch.cat(stretches or [tensor.narrow(dim, 0, 0)], dim).clone()
    return nn.Parameter(entries, requires_grad=parameter.requires_grad)


def _update_shape(module: nn.Module) -> None:
    """Sets the attributes in which a layer repeats the shape of its weight."""
    weight = module._parameters.get("weight")
    if weight is None:
        return
    shape = tuple(weight.shape)
    if isinstance(module, nn.Linear):
        module.out_features, module.in_features = shape
    elif isinstance(module, Conv1D):
        module.nx, module.nf = shape
    elif isinstance(module, nn.Embedding):
        module.num_embeddings, module.embedding_dim = shape
    elif isinstance(module, nn.Conv1d | nn.Conv2d) and module.groups > 1 and shape[1] == 1:
        module.groups = module.in_channels = module.out_channels = shape[0]
    elif isinstance(module, nn.LayerNorm | nn.RMSNorm):
        module.normalized_shape = shape


class ConfigView:
    """A configuration with some values changed for one module; everything else is read from the model's, as
    it is then."""

    def __init__(self, config: Any, changes: dict[str, int]) -> None:
        self.base, self.changes = config, changes

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # copying asks for such names before there is anything to look in
        return self.changes[name] if name in self.changes else getattr(self.base, name)


class NarrowedArguments:
    """Hooks for tensors that hold something for every head: the module sees the part of its own heads, and
    hands on the whole."""

    def __init__(self, arguments: dict[str, tuple[int, int, list[int]]]) -> None:
        self.arguments = arguments
        self.tensors: list[tuple[Tensor, Tensor]] = []  # (narrowed, for every head), while the module runs

    def attach(self, module: nn.Module) -> None:
        """Sets the hooks."""
        module.register_forward_pre_hook(self.narrow, with_kwargs=True)
        module.register_forward_hook(self.widen, prepend=True)  # a second removal is undone before the first

    def narrow(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Before the module."""
        self.tensors = []
        names = [*inspect.signature(module.forward).parameters][: len(args)]
        passed = {**dict(zip(names, args, strict=True)), **kwargs}
        for name, (axis, heads, keep) in self.arguments.items():
            tensor = passed.get(name)
            if isinstance(tensor, Tensor):
                passed[name] = keep_heads(tensor, axis, heads, keep)
                self.tensors.append((passed[name], tensor))
        return tuple(passed[name] for name in names), {name: passed[name] for name in kwargs}

    def widen(self, module: nn.Module, args: Any, output: Any) -> Any:
        """After the module."""
        tensors, self.tensors = self.tensors, []
        if not isinstance(output, tuple):
            return None
        widened = list(output)
        for narrowed, tensor in tensors:
            widened = [tensor if member is narrowed else member for member in widened]
        return tuple(widened)


class SharedBias:
    """Hooks for attention that makes a position bias (1, heads, queries, keys): it works with its own heads'
    part, and hands on all."""

    def __init__(self, position: int, heads: int, keep: list[int]) -> None:
        self.position, self.heads, self.keep = position, heads, keep
        self.all_heads: Tensor | None = None  # (queries, keys, heads), while the module runs

    def attach(self, module: nn.Module, table: str) -> None:
        """Sets the hooks."""
        if table:
            module.get_submodule(table).register_forward_hook(self.narrow)
        module.register_forward_hook(self.widen, prepend=True)

    def narrow(self, table: nn.Module, args: Any, output: Tensor) -> Tensor:
        """After the embedding of positions."""
        self.all_heads = output
        return keep_heads(output, output.ndim - 1, self.heads, self.keep)

    def widen(self, module: nn.Module, args: Any, output: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """After the module."""
        bias = output[self.position]
        if self.all_heads is not None:
            bias, self.all_heads = self.all_heads.permute(2, 0, 1)[None], None
        # Made here, of zeros; else it came as an argument and is whole again
        elif bias.shape[1] == len(self.keep):
            bias = bias.new_zeros(1, self.heads, *bias.shape[2:])
        return (*output[: self.position], bias, *output[self.position + 1 :])


def keep_heads(tensor: Tensor, axis: int, heads: int, keep: list[int]) -> Tensor:
    """The entries of heads `keep` along an axis that runs over heads, or over batch × heads; broadcast axes
    stay."""
    if tensor.shape[axis] == 1:
        return tensor
    index = torch.tensor(keep, device=tensor.device)
    by_head: Tensor = tensor.unflatten(axis, (-1, heads))  # type: ignore[no-untyped-call]
    return by_head.index_select(axis + 1, index).flatten(axis, axis + 1)
