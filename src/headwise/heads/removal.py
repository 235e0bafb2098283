"""Removing heads for good: a smaller model that computes what the silenced one does.

Nothing here knows families by name. `ownership` says which rows and columns go; what remains is to tell the attention code
its new numbers of heads, and to hand it its own part of position biases that are made for all heads. The result
is compared with the silenced model before it is given out.
"""

from collections.abc import Sequence
from copy import deepcopy
from inspect import isfunction, signature, unwrap
from posixpath import commonpath
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.heads.errors import UnsupportedModel
from headwise.heads.headset import HeadSet
from headwise.heads.inputs import root_of
from headwise.heads.ownership import Owned, head_axis, ownership
from headwise.heads.quiet import unchanged
from headwise.heads.sites import Site
from headwise.heads.surgery import Surgery, operate, set_numbers
from headwise.heads.tracing import is_norm, on_device, trace, weight_axes

if TYPE_CHECKING:
    from headwise.heads.heads import Heads

# Attributes that hold the width of all heads together; the second set is used for the width of hidden states as well, so it is
# changed only where the model does not work without.
WIDTHS = {"all_head_size", "inner_dim", "split_size", "attention_dim", "kv_dim", "q_dim", "total_head_dim"}
SHARED_WIDTHS = WIDTHS | {"embed_dim", "hidden_size", "d_model", "d_model_size", "dim", "n_embd", "nx", "output_dim"}


def remove(heads: "Heads", head_set: HeadSet) -> nn.Module:
    """A copy of the model without the heads of `head_set`: smaller, and equal to the silenced model up to rounding.

    `Heads(smaller)` counts what is left: heads are numbered anew within each layer, and layers without heads are no sites.

    Raises:
        HeadwiseError: a group of grouped queries would lose only some of its heads, or layers that share weights
            would lose different ones.
        UnsupportedModel: this family's attention cannot do without these heads; says why.
    """
    if heads._taps.edits:
        raise HeadwiseError("remove() copies the model, gates and all: call it outside the `with heads. ...` block")
    surgery = plan(heads, head_set)
    installed = heads._taps.installed
    heads.uninstall()  # hooks are not to be copied
    try:
        model = deepcopy(heads.model)
    finally:
        if installed:
            heads.install()
    operate(model, surgery)
    verify(heads, head_set, model, surgery)
    history: list[Surgery] = getattr(heads.model, "headwise_removed", [])
    model.headwise_removed = [*history, surgery]  # type: ignore[assignment]
    return model


def plan(heads: "Heads", head_set: HeadSet) -> Surgery:
    """Works out what to cut."""
    model, owned, cut = heads.model, ownership(heads), head_set.layers()
    surgery = Surgery(removed=list(head_set))
    cores = {site.index: core_of(model, site, heads.sites, owned) for site in heads.sites}
    touched = [site for site in heads.sites if site.index in cut]
    tables = [
        entry for entry in owned if not entry.output and any(not entry.name.startswith(f"{cores[i]}.") for i in entry.owners)
    ]
    for site in touched:
        _check_groups(site, owned, head_set)
    for entry in owned:
        if entry in tables:
            continue  # a table of position biases for all layers stays whole: each layer takes its part
        gone = _gone(entry, head_set)  # (entries,)
        _check_shared(entry, gone, head_set)
        if gone.any():
            if not gone.all() and is_norm(model.get_submodule(entry.name.rpartition(".")[0])):
                raise UnsupportedModel(
                    f"{entry.name} normalizes all heads of a layer together, so removing one would change the others: "
                    "heads of this model can be silenced, not removed"
                )
            surgery.slices[entry.name] = (entry.dim, _ranges(~gone))
    found = trace(model, heads.sites, heads.example, watched=set(cores.values()))
    observed = _observe(heads, {cores[site.index] for site in touched})
    for site in touched:
        core = cores[site.index]
        arguments, output = observed[core]
        keep = [head for head in range(site.n_heads) if head not in cut[site.index]]
        if not keep:
            projection = site.path.removeprefix(f"{core}.") if site.path.startswith(f"{core}.") else ""
            surgery.headless[core] = (projection, _returns(output, arguments, site))
            continue
        count(surgery, model, core, site, keep, WIDTHS)
        for (path, key), marks in found[site.index].arguments.items():
            axis = head_axis(marks)
            if path == core and axis is not None:
                name = key if isinstance(key, str) else list(arguments)[key]
                surgery.arguments.setdefault(core, {})[name] = (axis, site.n_heads, keep)
        returns = _returns(output, arguments, site) or []
        if "bias" in returns:
            inside = [entry.name.removeprefix(f"{core}.") for entry in tables if entry.name.startswith(f"{core}.")]
            surgery.tables[core] = ("".join(inside).rpartition(".")[0], returns.index("bias"), site.n_heads, keep)
    return surgery


def core_of(model: nn.Module, site: Site, sites: Sequence[Site], owned: Sequence[Owned]) -> str:
    """Path of the module whose forward is the attention of a site: the innermost one with all of its projections but the output's."""
    parents = []
    for entry in owned:
        if not entry.output and {sites[index].path for index in entry.owners} == {site.path}:
            path = entry.name.rpartition(".")[0]
            module = model.get_submodule(path)
            if isinstance(module, nn.Embedding):
                continue  # position biases may be made in another layer
            parents.append(path.rpartition(".")[0] if weight_axes(module) or is_norm(module) else path)
    if not parents:
        raise UnsupportedModel(f"no parameters were found that belong to the heads of {site.path} alone, so none can be removed")
    core = commonpath([path.replace(".", "/") for path in parents]).split("/")
    while "base_layer" in model.get_submodule(".".join(core))._modules:
        core.pop()  # an adapter around a projection is not the attention
    return ".".join(core)


def _gone(entry: Owned, head_set: HeadSet) -> Tensor:
    """Entries that have owners, all of which are removed, (entries,) bool."""
    everyone = HeadSet((site, head) for site, marks in entry.owners.items() for head in range(marks.shape[1]))
    return entry.touched(everyone) & ~entry.touched(everyone - head_set)


def _check_groups(site: Site, owned: Sequence[Owned], head_set: HeadSet) -> None:
    shared = torch.eye(site.n_heads, dtype=torch.bool)  # which heads share parameters, (heads, heads)
    for entry in owned:
        if site.index in entry.owners:
            marks = entry.owners[site.index].to(torch.uint8)
            shared |= (marks.T @ marks).bool()
    groups = [row.nonzero()[:, 0].tolist() for row in torch.unique(shared, dim=0).flip(0)]
    halved = [group for group in groups if 0 < sum((site.index, head) in head_set for head in group) < len(group)]
    if halved:
        raise HeadwiseError(
            f"layer {site.index} ({site.path}) shares keys and values among groups of heads, and only whole groups can be removed: "
            f"its groups are {groups}, and the set has only some heads of {halved}. Add the others, or silence them instead"
        )


def _check_shared(entry: Owned, gone: Tensor, head_set: HeadSet) -> None:
    if bool((entry.touched(head_set) & ~gone).any()):
        raise HeadwiseError(
            f"layers {list(entry.owners)} share {entry.name}, so a head can only be removed from all of them: "
            "name the same heads in each of these layers, or silence them instead"
        )


def _ranges(keep: Tensor) -> list[tuple[int, int]]:
    """Runs of True, as (start, stop)."""
    edges = torch.cat([torch.zeros(1), keep.float(), torch.zeros(1)]).diff()
    return list(zip(edges.eq(1).nonzero()[:, 0].tolist(), edges.eq(-1).nonzero()[:, 0].tolist(), strict=True))


def count(surgery: Surgery, model: nn.Module, core: str, site: Site, keep: list[int], widths: set[str]) -> None:
    """Notes the numbers of heads and widths that attention module `core` keeps, or reads from its configuration."""

    def new(name: str, value: Any) -> int | None:
        of_keys = "kv" in name or "key_value" in name
        old, left = (site.n_groups, len(keep) // site.group_size) if of_keys else (site.n_heads, len(keep))
        if "head" in name and not any(word in name for word in ("dim", "size", "group")) and value == old:
            return left
        return left * site.head_dim if name in widths and value == old * site.head_dim else None

    module: Any = model.get_submodule(core)
    numbers = {name: new(name, value) for name, value in vars(module).items() if type(value) is int}
    surgery.attributes[core] = {name: value for name, value in numbers.items() if value is not None}
    used = {name for function in vars(type(module)).values() for name in _names_in(function)}
    if "config" in used and "config" in vars(module):
        values = {name: new(name, getattr(module.config, name, None)) for name in used}
        surgery.config[core] = {name: value for name, value in values.items() if value is not None}


def _names_in(function: Any) -> tuple[str, ...]:
    """Attributes a function's own code speaks of."""
    function = unwrap(function)
    return function.__code__.co_names if isfunction(function) else ()


def _observe(heads: "Heads", cores: set[str]) -> dict[str, tuple[dict[str, Any], Any]]:
    """What each module is called with, by the names of its forward, and what it returns."""
    seen: dict[str, tuple[dict[str, Any], Any]] = {}

    def hook(path: str) -> Any:
        def note(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            seen.setdefault(path, ({**dict(zip(signature(module.forward).parameters, args, strict=False)), **kwargs}, output))

        return note

    handles = [
        heads.model.get_submodule(path).register_forward_hook(hook(path), with_kwargs=True, prepend=True) for path in cores
    ]
    try:
        run(heads.model, heads.example)
    finally:
        for handle in handles:
            handle.remove()
    return seen


def _returns(output: Any, arguments: dict[str, Any], site: Site) -> list[str] | None:
    """What an attention module returns, as `Headless.take_over` wants it."""
    if isinstance(output, Tensor):
        return None
    if not isinstance(output, tuple):
        raise UnsupportedModel(
            f"the attention around {site.path} returns a {type(output).__name__}; expected a tensor or a tuple"
        )
    names = {id(value): f"argument {name}" for name, value in arguments.items() if isinstance(value, Tensor)}
    result = ["output"]
    for value in output[1:]:
        made = isinstance(value, Tensor) and value.ndim == 4 and value.shape[:2] == (1, site.n_heads)
        result.append(names.get(id(value), "bias" if made else "none"))
    return result


def run(model: nn.Module, example: dict[str, Any]) -> Any:
    """One pass without gradients, which leaves no trace; random parts of it come out alike each time."""
    with unchanged(model), torch.no_grad():
        torch.manual_seed(0)
        return model(**on_device(model, example))


def verify(heads: "Heads", head_set: HeadSet, model: nn.Module, surgery: Surgery) -> None:
    """Compares a smaller model with the silenced one: what comes out of every output projection, and of the model.

    Raises:
        UnsupportedModel: they differ, or the smaller model does not run.
    """
    with heads.silenced(head_set):
        expected = _outputs(heads, heads.model)
    cut, owned = head_set.layers(), ownership(heads)
    problem = ""
    for widths in (WIDTHS, SHARED_WIDTHS):
        for site in heads.sites:
            keep = [head for head in range(site.n_heads) if head not in cut.get(site.index, ())]
            if keep and site.index in cut:
                count(surgery, heads.model, core_of(heads.model, site, heads.sites, owned), site, keep, widths)
        set_numbers(model, surgery)
        try:
            problem = _difference(expected, _outputs(heads, model))
        except Exception as error:  # whatever a family's code does with numbers it did not expect
            problem = f"it fails with {type(error).__name__}: {error}"
        if not problem:
            return
    raise UnsupportedModel(
        f"heads of {type(root_of(model)).__name__} can be silenced, not removed: the smaller model does not compute what the silenced "
        f"one does ({problem})"
    )


def _outputs(heads: "Heads", model: nn.Module) -> list[tuple[str, Tensor]]:
    """What every output projection and the model give, in float tensors."""
    found: list[tuple[str, Tensor]] = []
    paths = dict.fromkeys(site.path for site in heads.sites)
    handles = [
        model.get_submodule(path).register_forward_hook(lambda _, __, output, path=path: found.append((path, output)))
        for path in paths
    ]
    try:
        found += [("the output", tensor) for tensor in _tensors(run(model, heads.example))]
    finally:
        for handle in handles:
            handle.remove()
    return found


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, dict):
        value = list(value.values())
    return [tensor for item in value for tensor in _tensors(item)] if isinstance(value, list | tuple) else []


def _difference(expected: list[tuple[str, Tensor]], got: list[tuple[str, Tensor]]) -> str:
    """Where two lists of outputs differ by more than rounding; "" if they do not."""
    if [name for name, _ in expected] != [name for name, _ in got]:
        return "other modules ran"
    for (name, one), (_, other) in zip(expected, got, strict=True):
        if one.shape != other.shape:
            return f"{name} has shape {tuple(other.shape)}, not {tuple(one.shape)}"
        tolerance = {torch.float64: 1e-9, torch.float32: 1e-4}.get(one.dtype, 5e-2)
        error = (one - other).abs().max() / one.abs().max().clamp_min(torch.finfo(one.dtype).tiny)
        if not bool(error <= tolerance):
            return f"{name} is off by {float(error):.1e} of its largest value"
    return ""
