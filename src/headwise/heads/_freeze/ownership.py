"""Which parameters belong to a head: its rows of W_Q, W_K and W_V with their biases, and its columns of W_O.

They are found from gradients, not from names (`tracing`). Grouped queries share the keys and values of their
group, so those rows have several owners. Parts that heads reach only through another projection (the
compressed states of latent attention) and parts that serve all heads alike (a norm of queries) belong to no
head.
"""

import sys
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from headwise.heads._errors import UnsupportedModel
from headwise.heads._find.dependence import Dependence, trace, weight_axes
from headwise.heads._headset import HeadSet
from headwise.heads._sites import Site

if TYPE_CHECKING:
    from headwise.heads._heads import Heads


@dataclass(frozen=True, eq=False)
class Owned:
    """A parameter whose entries along one axis belong to heads.

    Attributes:
        name: as in `model.get_parameter(name)`.
        dim: the axis.
        output: whether it belongs to the output projection; else it makes queries, keys, values or a position
            bias.
        owners: for each site that uses it (several where layers share weights) who owns which entry,
            (entries, heads) bool.
        jointly: whether an entry with several owners learns only if all of them do (adapted projections), not
            if any does.
    """

    name: str
    dim: int
    output: bool
    owners: dict[int, Tensor]
    jointly: bool = False

    def frozen(self, head_set: HeadSet) -> Tensor:
        """Entries that stay as they are while only the heads of the set learn, (entries,) bool."""
        if self.jointly:
            return self.touched(self.users - head_set)
        return self.touched(self.users) & ~self.touched(head_set)

    @property
    def users(self) -> HeadSet:
        """All heads of the sites that use the parameter."""
        heads: list[tuple[int, int]] = []
        for site, marks in self.owners.items():
            heads += [(site, head) for head in range(marks.shape[1])]
        return HeadSet(heads)

    def touched(self, heads: Set[tuple[int, int]]) -> Tensor:
        """Entries that belong, alone or with others, to a head of the set, (entries,) bool."""
        rows = []
        for site, marks in self.owners.items():
            member = torch.tensor([(site, head) in heads for head in range(marks.shape[1])])  # (heads,)
            rows.append((marks & member).any(1))
        return torch.stack(rows).any(0)


_OWNERSHIP: "WeakKeyDictionary[Heads, tuple[tuple[str, ...], tuple[Owned, ...]]]" = WeakKeyDictionary()


def ownership(heads: "Heads") -> tuple[Owned, ...]:
    """Every parameter of which some entries belong to a head; found once for each `Heads`, and again if PEFT
    has wrapped other layers."""
    heads = heads.original or heads  # twins come and go
    wrapped = tuple(adapted_layers(heads.model))
    if heads not in _OWNERSHIP or _OWNERSHIP[heads][0] != wrapped:
        dependences = trace(heads.model, heads.sites, heads.example)
        _OWNERSHIP[heads] = wrapped, owned_parameters(heads.model, heads.sites, dependences)
    return _OWNERSHIP[heads][1]


def adapted_layers(model: nn.Module) -> dict[str, Any]:
    """The layers that PEFT has put adapters around, by their paths."""
    if "peft" not in sys.modules:
        return {}
    from peft.tuners.tuners_utils import BaseTunerLayer

    return {path: module for path, module in model.named_modules() if isinstance(module, BaseTunerLayer)}


def parameters_per_head(heads: "Heads") -> list[int]:
    """See `Heads.parameters_per_head`."""
    counts = [torch.zeros(site.n_heads, dtype=torch.long) for site in heads.sites]
    for owned in ownership(heads):
        shape = heads.model.get_parameter(owned.name).shape
        for site, marks in owned.owners.items():
            counts[site] += marks.sum(0) * (shape.numel() // shape[owned.dim])
    return [int(count.max()) for count in counts]


def tied_layers(heads: "Heads") -> tuple[tuple[int, ...], ...]:
    """See `Heads.tied_layers`."""
    groups = list(range(len(heads.sites)))  # the number of each layer's group
    for owned in ownership(heads):
        first, *sites = owned.owners
        for site in sites:
            if torch.equal(owned.owners[first], owned.owners[site]):
                merged = groups[site]
                groups = [groups[first] if group == merged else group for group in groups]
    layers: dict[int, list[int]] = {}
    for layer, group in enumerate(groups):
        layers.setdefault(group, []).append(layer)
    return tuple(tuple(members) for members in layers.values() if len(members) > 1)


def owned_parameters(
    model: nn.Module, sites: Sequence[Site], dependences: Sequence[Dependence]
) -> tuple[Owned, ...]:
    """Turns what each site depends on into slices of parameters.

    Raises:
        UnsupportedModel: a projection's weight is not stored with one row for each of its outputs (as after
            quantization).
    """
    owned = _OwnedParameters(model)
    for site, dependence in zip(sites, dependences, strict=True):
        for path, marks in dependence.features.items():
            projection = model.get_submodule(path)
            axes = weight_axes(projection)
            assert axes is not None  # only projections have features
            for name, parameter in projection.named_parameters(recurse=False):
                # A bias follows its weight
                owned.add(parameter, axes[0] if name == "weight" else 0, False, site, marks)
        columns = torch.eye(site.n_heads, dtype=torch.bool).repeat_interleave(site.head_dim, 0)
        # (features, heads)
        marks = torch.cat([columns, torch.zeros(site.rest, site.n_heads, dtype=torch.bool)])
        for path in dependence.readers:
            reader = model.get_submodule(path)
            axes = weight_axes(reader)
            for name, parameter in reader.named_parameters(recurse=False):
                if axes is None:  # a norm before the projection
                    owned.add(parameter, 0, True, site, marks)
                elif name == "weight":
                    owned.add(parameter, axes[1], True, site, marks)
        for name, entries in dependence.parameters.items():
            # A bias of keys has a true gradient of zero and an arbitrary one in floating point: biases follow
            # their weights.
            weight = dependence.parameters.get(name.replace("bias", "weight"))
            if weight is not None and weight.shape == entries.shape:
                entries = weight
            dim = head_axis(entries)
            if dim is not None:
                owned.add(model.get_parameter(name), dim, False, site, owners_along(entries, dim))
    return tuple(owned.by_name.values())


class _OwnedParameters:
    """The parameters of heads, as they are found.

    Attributes:
        by_name: the parameters, each by its first name if it is tied.
    """

    def __init__(self, model: nn.Module) -> None:
        self.by_name: dict[str, Owned] = {}
        self._names = {parameter: name for name, parameter in model.named_parameters()}

    def add(self, parameter: nn.Parameter, dim: int, output: bool, site: Site, marks: Tensor) -> None:
        """Notes that entries along an axis belong to heads of a site, (entries, heads) bool."""
        name = self._names[parameter]
        if parameter.shape[dim] != marks.shape[0]:
            raise UnsupportedModel(
                f"{name} has shape {tuple(parameter.shape)}, but its projection has {marks.shape[0]} "
                "features: the parameters of one head cannot be separated (are the weights quantized? load "
                "them in full precision)"
            )
        if site.n_groups > 1:
            marks = marks & ~marks.all(1, keepdim=True)  # what serves all heads alike belongs to none of them
        if not marks.any():
            return
        owned = self.by_name.setdefault(name, Owned(name, dim, output, {}))
        if owned.dim != dim:
            raise UnsupportedModel(
                f"{name} is used both by rows and by columns, so its parts cannot be separated by head"
            )
        owned.owners[site.index] = owned.owners.get(site.index, torch.zeros_like(marks)) | marks


def head_axis(marks: Tensor) -> int | None:
    """The axis along which entries belong to different heads, equally many to each; None if they serve all
    heads alike, or are mixed.

    Args:
        marks: which entries reach which head, (heads, *shape) bool.
    """
    for dim in range(marks.ndim - 1):
        owners = owners_along(marks, dim)  # (entries, heads)
        shape = [marks.shape[0]] + [1] * (marks.ndim - 1)
        shape[dim + 1] = marks.shape[dim + 1]
        alike = torch.equal(marks, owners.T.reshape(shape) & marks.any(0))
        if alike and not owners.all(1).any() and owners.sum(0).min() == owners.sum(0).max() > 0:
            return dim
    return None


def owners_along(marks: Tensor, dim: int) -> Tensor:
    """Which entry along `dim` reaches which head, (entries, heads) bool."""
    if marks.ndim > 2:
        marks = marks.movedim(dim + 1, 1).flatten(2).any(2)
    return marks.T
