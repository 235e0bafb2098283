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
        tables: {module: (embedding or "", place, heads, heads that stay)}, for a position bias that the
            module makes for all layers (of zeros if no embedding is named) and returns at `place`.
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
    done: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None and names[id(parameter)] in surgery.slices:
                if id(parameter) not in done:  # tied parameters stay tied
                    done[id(parameter)] = _kept(parameter, *surgery.slices[names[id(parameter)]])
                module._parameters[name] = done[id(parameter)]
                _tell_shape(module)
    set_numbers(model, surgery)
    for path, arguments in surgery.arguments.items():
        OwnPart(arguments).attach(model.get_submodule(path))
    for path, (table, place, heads, keep) in surgery.tables.items():
        SharedBias(place, heads, keep).attach(model.get_submodule(path), table)
    for path, (projection, container, returns) in surgery.headless.items():
        Headless.take_over(model.get_submodule(path), projection, container, returns)


def set_numbers(model: nn.Module, surgery: Surgery) -> None:
    """Tells attention modules how many heads they have now."""
    for path, attributes in surgery.attributes.items():
        vars(model.get_submodule(path)).update(attributes)
    for path, changes in surgery.config.items():
        module: Any = model.get_submodule(path)
        config = module.config
        module.config = ConfigView(config.base if isinstance(config, ConfigView) else config, changes)


def _kept(parameter: nn.Parameter, dim: int, ranges: list[tuple[int, int]]) -> nn.Parameter:
    parts = [parameter.detach().narrow(dim, start, stop - start) for start, stop in ranges]
    kept = torch.cat(parts, dim) if parts else parameter.detach().narrow(dim, 0, 0)
    return nn.Parameter(kept.clone(), requires_grad=parameter.requires_grad)


def _tell_shape(module: nn.Module) -> None:
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


class OwnPart:
    """Hooks for tensors that hold something for every head: the module sees the part of its own heads, and
    hands on the whole."""

    def __init__(self, arguments: dict[str, tuple[int, int, list[int]]]) -> None:
        self.arguments = arguments
        self.whole: list[tuple[Tensor, Tensor]] = []  # (part, whole), while the module runs

    def attach(self, module: nn.Module) -> None:
        """Sets the hooks."""
        module.register_forward_pre_hook(self.narrow, with_kwargs=True)
        module.register_forward_hook(self.widen, prepend=True)  # a second removal is undone before the first

    def narrow(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Before the module."""
        self.whole = []
        names = [*inspect.signature(module.forward).parameters][: len(args)]
        given = {**dict(zip(names, args, strict=True)), **kwargs}
        for name, (axis, heads, keep) in self.arguments.items():
            if isinstance(given.get(name), Tensor):
                part = keep_heads(given[name], axis, heads, keep)
                self.whole.append((part, given[name]))
                given[name] = part
        return tuple(given[name] for name in names), {name: given[name] for name in kwargs}

    def widen(self, module: nn.Module, args: Any, output: Any) -> Any:
        """After the module."""
        pairs, self.whole = self.whole, []
        if not isinstance(output, tuple):
            return None
        return tuple(next((whole for part, whole in pairs if part is item), item) for item in output)


class SharedBias:
    """Hooks for attention that makes a position bias (1, heads, queries, keys): it works with its own heads'
    part, and hands on all."""

    def __init__(self, place: int, heads: int, keep: list[int]) -> None:
        self.place, self.heads, self.keep = place, heads, keep
        self.whole: Tensor | None = None  # (queries, keys, heads), while the module runs

    def attach(self, module: nn.Module, table: str) -> None:
        """Sets the hooks."""
        if table:
            module.get_submodule(table).register_forward_hook(self.narrow)
        module.register_forward_hook(self.widen, prepend=True)

    def narrow(self, table: nn.Module, args: Any, output: Tensor) -> Tensor:
        """After the embedding of positions."""
        self.whole = output
        return keep_heads(output, output.ndim - 1, self.heads, self.keep)

    def widen(self, module: nn.Module, args: Any, output: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """After the module."""
        bias = output[self.place]
        if self.whole is not None:
            bias, self.whole = self.whole.permute(2, 0, 1)[None], None
        # Made here, of zeros; else it came as an argument and is whole again
        elif bias.shape[1] == len(self.keep):
            bias = bias.new_zeros(1, self.heads, *bias.shape[2:])
        return (*output[: self.place], bias, *output[self.place + 1 :])


def keep_heads(tensor: Tensor, axis: int, heads: int, keep: list[int]) -> Tensor:
    """The entries of heads `keep` along an axis that runs over heads, or over batch × heads; broadcast axes
    stay."""
    if tensor.shape[axis] == 1:
        return tensor
    index = torch.tensor(keep, device=tensor.device)
    return tensor.unflatten(axis, (-1, heads)).index_select(axis + 1, index).flatten(axis, axis + 1)  # type: ignore[no-untyped-call]
