"""What cuts heads out of a model that was just built: functions of a model and of JSON values, with torch and
transformers alone.

A folder that plain transformers opens carries the source of those that its cuts need (see `portable`), so
that nothing here may use anything of headwise.
"""

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D


def cut_parameters(model: nn.Module, slices: dict[str, Any]) -> None:
    """Keeps of each parameter the entries (axis, [(start, stop), ...]); tied parameters stay tied."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    cut: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is None or names[id(parameter)] not in slices:
                continue
            if id(parameter) not in cut:
                cut[id(parameter)] = narrowed(parameter, *slices[names[id(parameter)]])
            module._parameters[name] = cut[id(parameter)]
            update_shape(module)


def narrowed(parameter: nn.Parameter, axis: int, ranges: list[Any]) -> nn.Parameter:
    """The entries of a parameter that stay, as one of its own."""
    pieces = [parameter.detach().narrow(axis, start, stop - start) for start, stop in ranges]
    joined = torch.cat(pieces, axis) if pieces else parameter.detach().narrow(axis, 0, 0)
    return nn.Parameter(joined.clone(), requires_grad=parameter.requires_grad)


def update_shape(module: nn.Module) -> None:
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


def set_attributes(model: nn.Module, attributes: dict[str, Any]) -> None:
    """Tells attention modules how many heads they have now."""
    for path, values in attributes.items():
        vars(model.get_submodule(path)).update(values)


def set_configs(model: nn.Module, config: dict[str, Any]) -> None:
    """The same for modules that read the model's configuration."""
    for path, changes in config.items():
        module: Any = model.get_submodule(path)
        before = module.config
        module.config = ConfigView(before.base if isinstance(before, ConfigView) else before, changes)


class ConfigView:
    """A configuration with some values changed for one module; everything else is read from the model's, as
    it is then."""

    def __init__(self, config: Any, changes: dict[str, int]) -> None:
        self.base, self.changes = config, changes

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # copying asks for such names before there is anything to look in
        if name in self.changes:
            return self.changes[name]
        return getattr(self.base, name)


def narrow_arguments(model: nn.Module, arguments: dict[str, Any]) -> None:
    """Modules see the part of their own heads of what is made elsewhere for all heads."""
    for path, heads in arguments.items():
        NarrowedArguments(heads).attach(model.get_submodule(path))


class NarrowedArguments:
    """Hooks for tensors that hold something for every head: the module sees the part of its own heads, and
    hands on the whole."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        self.tensors: list[tuple[Tensor, Tensor]] = []  # (narrowed, whole), while the module runs

    def attach(self, module: nn.Module) -> None:
        """Sets the hooks."""
        module.register_forward_pre_hook(self.narrow, with_kwargs=True)
        module.register_forward_hook(self.widen, prepend=True)  # a second removal is undone before the first

    def narrow(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Before the module."""
        self.tensors = []
        names = [*inspect.signature(module.forward).parameters][: len(args)]
        values = {**dict(zip(names, args, strict=True)), **kwargs}
        for name, (axis, heads, keep) in self.arguments.items():
            if isinstance(values.get(name), Tensor):
                smaller = keep_heads(values[name], axis, heads, keep)
                self.tensors.append((smaller, values[name]))
                values[name] = smaller
        return tuple(values[name] for name in names), {name: values[name] for name in kwargs}

    def widen(self, module: nn.Module, args: Any, output: Any) -> Any:
        """After the module."""
        pairs, self.tensors = self.tensors, []
        if not isinstance(output, tuple):
            return None
        widened = list(output)
        for narrow, whole in pairs:
            widened = [whole if element is narrow else element for element in widened]
        return tuple(widened)


def share_biases(model: nn.Module, tables: dict[str, Any]) -> None:
    """Modules that make a position bias for all layers work with their own heads' part of it."""
    for path, (table, position, heads, keep) in tables.items():
        SharedBias(position, heads, keep).attach(model.get_submodule(path), table)


class SharedBias:
    """Hooks for attention that makes a position bias (1, heads, queries, keys): it works with its own heads'
    part, and hands on all."""

    def __init__(self, position: int, heads: int, keep: list[int]) -> None:
        self.position, self.heads, self.keep = position, heads, keep
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

    def widen(self, module: nn.Module, args: Any, output: Any) -> Any:
        """After the module."""
        bias = output[self.position]
        if self.whole is not None:
            bias, self.whole = self.whole.permute(2, 0, 1)[None], None
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
