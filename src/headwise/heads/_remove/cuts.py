"""What to cut so that a model does without some heads, found without knowing its family.

`ownership` says which rows and columns go. What remains is to tell the attention code its new numbers of
heads, and to hand it its own part of position biases that are made for all heads.
"""

from collections.abc import Sequence
from dataclasses import replace
from inspect import isfunction, signature, unwrap
from posixpath import commonpath
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.heads._errors import UnsupportedModel
from headwise.heads._find.dependence import is_norm, on_device, trace, weight_axes
from headwise.heads._freeze.ownership import Owned, head_axis, ownership
from headwise.heads._headset import HeadSet
from headwise.heads._reading import undisturbed
from headwise.heads._remove.surgery import ConfigView, Surgery
from headwise.heads._restoration import forked
from headwise.heads._sites import Site

if TYPE_CHECKING:
    from headwise.heads._heads import Heads

# Attributes that hold the width of all heads together. The second set holds the width of hidden states too in
# most families, so it is changed only where a model does not work without.
WIDTHS = {"all_head_size", "inner_dim", "split_size", "attention_dim", "kv_dim", "q_dim", "total_head_dim"}
SHARED_WIDTHS = WIDTHS | {
    "embed_dim",
    "hidden_size",
    "d_model",
    "d_model_size",
    "dim",
    "n_embd",
    "output_dim",
}


def plan(heads: "Heads", head_set: HeadSet) -> list[Surgery]:
    """What to cut, in one or more versions to be tried in turn.

    Raises:
        HeadwiseError: a group would lose only some of its heads, or layers that share weights would lose
            different ones.
        UnsupportedModel: a norm ties all heads of a layer together, or the attention is of an unknown form.
    """
    model, owned, cut = heads.model, ownership(heads), head_set.layers()
    surgery = Surgery(removed=list(head_set))
    cores = {site.index: core_of(model, site, heads.sites, owned) for site in heads.sites}
    touched = [site for site in heads.sites if site.index in cut]
    for site in touched:
        _check_groups(site, owned, head_set)
    tables = [
        entry
        for entry in owned
        if not entry.output and any(not entry.name.startswith(f"{cores[i]}.") for i in entry.owners)
    ]
    for entry in owned:
        if entry in tables:
            continue  # position biases for several layers stay whole: each layer takes its part
        gone = _gone(entry, head_set)  # (entries,)
        _check_shared(entry, gone, head_set)
        if gone.any() and not gone.all() and is_norm(model.get_submodule(entry.name.rpartition(".")[0])):
            raise UnsupportedModel(
                f"{entry.name} normalizes all heads of a layer together, so removing one would change the "
                "others: heads of this model can be silenced but not removed"
            )
        if gone.any():
            surgery.slices[entry.name] = (entry.dim, _ranges(~gone))
    found = trace(model, heads.sites, heads.example, watched={cores[site.index] for site in touched})
    seen = _observe(heads, {cores[site.index] for site in touched})
    wide: dict[str, dict[str, int]] = {}
    for site in touched:
        core = cores[site.index]
        if core not in seen:
            raise UnsupportedModel(
                f"no module was called that holds what the heads of {site.path} are made with (looked at "
                f"{core!r})"
            )
        module, (arguments, output) = model.get_submodule(core), seen[core]
        container, returns = _returns(output, arguments, site)
        keep = [head for head in range(site.n_heads) if head not in cut[site.index]]
        if not keep:
            projection = site.path.removeprefix(f"{core}.") if site.path.startswith(f"{core}.") else ""
            surgery.headless[core] = (projection, container, returns)
            continue
        surgery.attributes[core] = _numbers(vars(module), site, keep, WIDTHS)
        wide[core] = _numbers(vars(module), site, keep, SHARED_WIDTHS)
        if configured := _numbers(_configured(module), site, keep, WIDTHS):
            surgery.config[core] = configured
        for (path, key), marks in found[site.index].arguments.items():
            axis = head_axis(marks)
            if path == core and axis is not None:
                name = key if isinstance(key, str) else list(arguments)[key]
                surgery.arguments.setdefault(core, {})[name] = (axis, site.n_heads, keep)
        if "bias" in returns:
            inside = [
                entry.name.removeprefix(f"{core}.") for entry in tables if entry.name.startswith(f"{core}.")
            ]
            surgery.tables[core] = (
                "".join(inside).rpartition(".")[0],
                returns.index("bias"),
                site.n_heads,
                keep,
            )
    return [surgery] if wide == surgery.attributes else [surgery, replace(surgery, attributes=wide)]


def core_of(model: nn.Module, site: Site, sites: Sequence[Site], owned: Sequence[Owned]) -> str:
    """Path of the module whose forward is the attention of a site: the innermost one with all of its
    projections but the output's.

    "nothing" if no parameters belong to its heads alone.
    """
    parents = []
    for entry in owned:
        if not entry.output and {sites[index].path for index in entry.owners} == {site.path}:
            path = entry.name.rpartition(".")[0]
            module = model.get_submodule(path)
            if isinstance(module, nn.Embedding):
                continue  # position biases may be made in another layer
            parents.append(path.rpartition(".")[0] if weight_axes(module) or is_norm(module) else path)
    if not parents:
        return "nothing"
    core = commonpath([path.replace(".", "/") for path in parents]).split("/")
    while "base_layer" in model.get_submodule(".".join(core))._modules:
        core.pop()  # an adapter around a projection is not the attention
    return ".".join(core)


def _gone(entry: Owned, head_set: HeadSet) -> Tensor:
    """Entries that have owners, all of which are removed, (entries,) bool."""
    everyone = HeadSet((site, head) for site, marks in entry.owners.items() for head in range(marks.shape[1]))
    return entry.touched(everyone) & ~entry.touched(everyone - head_set)


def _check_groups(site: Site, owned: Sequence[Owned], head_set: HeadSet) -> None:
    shared = torch.eye(site.n_heads)  # above 0: which heads share parameters, (heads, heads)
    for entry in owned:
        if site.index in entry.owners:
            marks = entry.owners[site.index].float()
            shared = shared + marks.T @ marks
    for _ in range(site.n_heads.bit_length()):
        shared = shared.gt(0).float() @ shared.gt(0).float()  # and with whom those share
    groups = [row.nonzero()[:, 0].tolist() for row in torch.unique(shared.gt(0), dim=0).flip(0)]
    halved = [
        group for group in groups if 0 < sum((site.index, head) in head_set for head in group) < len(group)
    ]
    if halved:
        raise HeadwiseError(
            f"layer {site.index} ({site.path}) shares keys and values among groups of heads, and only whole "
            f"groups can be removed: its groups are {groups}, and the set has only some heads of {halved}. "
            "Add the others, or silence them instead"
        )


def _check_shared(entry: Owned, gone: Tensor, head_set: HeadSet) -> None:
    if bool((entry.touched(head_set) & ~gone).any()):
        raise HeadwiseError(
            f"layers {list(entry.owners)} share {entry.name}, so a head can only be removed from all of "
            "them: name the same heads in each of these layers, or silence them instead"
        )


def _ranges(keep: Tensor) -> list[tuple[int, int]]:
    """Runs of True, as (start, stop)."""
    edges = torch.cat([torch.zeros(1), keep.float(), torch.zeros(1)]).diff()
    return list(zip(edges.eq(1).nonzero()[:, 0].tolist(), edges.eq(-1).nonzero()[:, 0].tolist(), strict=True))


def _numbers(values: dict[str, Any], site: Site, keep: list[int], widths: set[str]) -> dict[str, int]:
    """Those of the values, by their names, that count the heads of a site or give their common width, with
    their new values."""
    result = {}
    for name, value in values.items():
        of_keys = "kv" in name or "key_value" in name
        old, left = (site.n_groups, len(keep) // site.group_size) if of_keys else (site.n_heads, len(keep))
        counts = "head" in name and not any(word in name for word in ("dim", "size", "group"))
        if type(value) is int and counts and value == old:
            result[name] = left
        elif type(value) is int and name in widths and value == old * site.head_dim:
            result[name] = left * site.head_dim
    return result


def _configured(module: nn.Module) -> dict[str, Any]:
    """What a module's own code may read from its configuration, {name: value}."""
    functions = [unwrap(function) for function in vars(type(module)).values() if callable(function)]
    names = {name for function in functions if isfunction(function) for name in function.__code__.co_names}
    config = vars(module).get("config")
    if config is None or "config" not in names:
        return {}
    changes = config.changes if isinstance(config, ConfigView) else {}
    config = config.base if isinstance(config, ConfigView) else config
    values = {**config.to_dict(), **changes}
    return {name: values[key] for name in names if (key := config.attribute_map.get(name, name)) in values}


def _observe(heads: "Heads", cores: set[str]) -> dict[str, tuple[dict[str, Any], Any]]:
    """What each module is called with, by the names of its forward, and what it returns."""
    seen: dict[str, tuple[dict[str, Any], Any]] = {}

    def hook(path: str) -> Any:
        def note(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            seen.setdefault(
                path,
                ({**dict(zip(signature(module.forward).parameters, args, strict=False)), **kwargs}, output),
            )

        return note

    with undisturbed(heads) as (twin,):
        handles = [
            twin.model.get_submodule(path).register_forward_hook(hook(path), with_kwargs=True, prepend=True)
            for path in cores
        ]
        try:
            run(heads, twin.model)
        finally:
            for handle in handles:
                handle.remove()
    return seen


def _returns(output: Any, arguments: dict[str, Any], site: Site) -> tuple[str, list[str]]:
    """What an attention module returns, as `Headless.take_over` wants it."""
    if isinstance(output, Tensor):
        return "tensor", ["output"]
    if not isinstance(output, tuple | list):
        raise UnsupportedModel(
            f"the attention around {site.path} returns a {type(output).__name__}; expected a tensor or a "
            "tuple"
        )
    names = {id(value): f"argument {name}" for name, value in arguments.items() if isinstance(value, Tensor)}
    result = ["output"]
    for value in output[1:]:
        made = isinstance(value, Tensor) and value.ndim == 4 and value.shape[:2] == (1, site.n_heads)
        result.append(names.get(id(value), "bias" if made else "none"))
    return "list" if isinstance(output, list) else "tuple", result


def run(heads: "Heads", model: nn.Module) -> Any:
    """One pass of a twin of the heads' model, or of a smaller one, on their example; random parts of it come
    out alike each time."""
    with torch.no_grad(), forked(model, heads.draws):
        if heads.draws:
            torch.manual_seed(0)
        return model(**on_device(model, heads.example))
