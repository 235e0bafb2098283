"""Cutting heads out of a live model: what to cut, as JSON-ready values, and the one function that does it.

A removed model and a reloaded one are made by the same `operate`, so what was verified once is what comes back.
"""

import inspect
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from headwise.heads.headless import Headless


@dataclass
class Surgery:
    """What is cut out of a model, and how its attention code learns of it. Names and paths are those of the model.

    Attributes:
        removed: (layer, head) pairs, by the sites of the model before.
        slices: {parameter: (axis, [(start, stop), ...])}, the entries that stay.
        attributes: {module: {attribute: value}}, where the module keeps numbers of heads and widths.
        config: {module: {name: value}}, the same where it reads them from the model's configuration.
        arguments: {module: {argument: (axis, heads, heads that stay)}}, for position biases made elsewhere for all heads.
        tables: {module: (embedding, heads that stay, place)}, for a position bias that the module makes for all layers and
            returns at `place`.
        headless: {module: (output projection or "", what it returns)}, for attention with no head left (see `Headless`).
    """

    removed: list[tuple[int, int]] = field(default_factory=list)
    slices: dict[str, tuple[int, list[tuple[int, int]]]] = field(default_factory=dict)
    attributes: dict[str, dict[str, int]] = field(default_factory=dict)
    config: dict[str, dict[str, int]] = field(default_factory=dict)
    arguments: dict[str, dict[str, tuple[int, int, list[int]]]] = field(default_factory=dict)
    tables: dict[str, tuple[str, list[int], int]] = field(default_factory=dict)
    headless: dict[str, tuple[str, list[str] | None]] = field(default_factory=dict)

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
        model.get_submodule(path).register_forward_pre_hook(KeepHeads(arguments), with_kwargs=True)
    for path, (table, keep, place) in surgery.tables.items():
        bias = SharedBias(keep, place)
        model.get_submodule(f"{path}.{table}").register_forward_hook(bias.narrow)
        model.get_submodule(path).register_forward_hook(bias.widen)
    for path, (projection, returns) in surgery.headless.items():
        empty = [
            name.removeprefix(f"{path}.")
            for name, (_, kept) in surgery.slices.items()
            if name.startswith(f"{path}.") and not kept
        ]
        Headless.take_over(model.get_submodule(path), projection, returns, empty)


def set_numbers(model: nn.Module, surgery: Surgery) -> None:
    """Tells attention modules how many heads they have now."""
    for path, attributes in surgery.attributes.items():
        vars(model.get_submodule(path)).update(attributes)
    for path, changes in surgery.config.items():
        module: Any = model.get_submodule(path)
        config = module.config
        module.config = ConfigView(config._config if isinstance(config, ConfigView) else config, changes)


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
    elif isinstance(module, nn.LayerNorm | nn.RMSNorm):
        module.normalized_shape = shape


class ConfigView:
    """A configuration with some values changed for one module; everything else is read from the model's, as it is then."""

    def __init__(self, config: Any, changes: dict[str, int]) -> None:
        self._config, self._changes = config, changes

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # copying asks for such names before there is anything to look in
        return self._changes[name] if name in self._changes else getattr(self._config, name)


class KeepHeads:
    """A forward pre-hook: of tensors that hold something for every head, the module sees the part of its own."""

    def __init__(self, arguments: dict[str, tuple[int, int, list[int]]]) -> None:
        self.arguments = arguments

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        places = {name: i for i, name in enumerate(inspect.signature(module.forward).parameters)}
        values = list(args)
        for name, (axis, heads, keep) in self.arguments.items():
            if isinstance(kwargs.get(name), Tensor):
                kwargs = {**kwargs, name: keep_heads(kwargs[name], axis, heads, keep)}
            elif places[name] < len(values) and isinstance(values[places[name]], Tensor):
                values[places[name]] = keep_heads(values[places[name]], axis, heads, keep)
        return tuple(values), kwargs


class SharedBias:
    """Hooks on an attention module that makes a position bias (1, heads, queries, keys) for itself and for later layers.

    It works with the heads it has left, and hands on the bias of all heads.
    """

    def __init__(self, keep: list[int], place: int) -> None:
        self.keep, self.place = keep, place
        self.full: Tensor | None = None  # (queries, keys, heads), between the two hooks

    def narrow(self, table: nn.Module, args: Any, output: Tensor) -> Tensor:
        """After the embedding of positions."""
        self.full = output
        return keep_heads(output, output.ndim - 1, output.shape[-1], self.keep)

    def widen(self, attention: nn.Module, args: Any, output: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """After the attention module."""
        if self.full is None:
            return None  # the bias came as an argument
        bias, self.full = self.full.permute(2, 0, 1)[None], None
        return (*output[: self.place], bias, *output[self.place + 1 :])


def keep_heads(tensor: Tensor, axis: int, heads: int, keep: list[int]) -> Tensor:
    """The entries of heads `keep` along an axis that runs over heads, or over batch × heads; broadcast axes stay."""
    if tensor.shape[axis] == 1:
        return tensor
    index = torch.tensor(keep, device=tensor.device)
    return tensor.unflatten(axis, (-1, heads)).index_select(axis + 1, index).flatten(axis, axis + 1)  # type: ignore[no-untyped-call]
