"""What to cut so that a model does without some heads, found without knowing its family.

`ownership` says which rows and columns go. What remains is to tell the attention code its new numbers of
heads, and to hand it its own part of position biases that are made for all heads.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from inspect import isfunction, signature, unwrap
from posixpath import commonpath
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.heads._errors import UnsupportedModel
from headwise.heads._find.dependence import is_norm, trace, weight_axes
from headwise.heads._freeze.ownership import Owned, head_axis, ownership
from headwise.heads._headset import HeadSet
from headwise.heads._inputs import run_example
from headwise.heads._reading import undisturbed
from headwise.heads._remove.cutting import ConfigView
from headwise.heads._remove.surgery import Surgery
from headwise.heads._sites import Site

if TYPE_CHECKING:
    from headwise.heads._heads import Heads

# Attributes that hold the width of all heads together. The second set holds the width of hidden states too in
# most families, so it is changed only where a model does not work without.
WIDTHS = {"all_head_size", "inner_dim", "split_size", "attention_dim", "kv_dim", "q_dim", "total_head_dim"}
SHARED_WIDTHS = WIDTHS | {
    *("embed_dim", "hidden_size", "d_model", "d_model_size", "dim", "n_embd", "output_dim")
}


def plan(heads: "Heads", head_set: HeadSet) -> list[Surgery]:
    """What to cut, in one or more versions to be tried in turn.

    Raises:
        HeadwiseError: a group would lose only some of its heads, or layers that share weights would lose
            different ones.
        UnsupportedModel: a norm ties all heads of a layer together, or the attention is of an unknown form.
    """
    model, owned, removed = heads.model, ownership(heads), head_set.layers()
    cores = {site.index: core_of(model, site, heads.sites, owned) for site in heads.sites}
    touched = [site for site in heads.sites if site.index in removed]
    for site in touched:
        _check_groups(site, owned, head_set)
    tables = [parameter for parameter in owned if _serves_other_layers(parameter, cores)]
    surgery = Surgery(removed=list(head_set))
    for parameter in owned:
        if parameter not in tables:
            _cut(surgery, model, parameter, head_set)
    watched = {cores[site.index] for site in touched}
    dependences = trace(model, heads.sites, heads.example, watched)
    calls = _observe(heads, watched)
    wide: dict[str, dict[str, int]] = {}
    for site in touched:
        core = cores[site.index]
        if core not in calls:
            raise UnsupportedModel(
                f"no module was called that holds what the heads of {site.path} are made with (looked at "
                f"{core!r})"
            )
        module, (arguments, output) = model.get_submodule(core), calls[core]
        container, returns = _returns(output, arguments, site)
        keep = [head for head in range(site.n_heads) if head not in removed[site.index]]
        if not keep:
            inside = site.path.startswith(f"{core}.")
            projection = site.path.removeprefix(f"{core}.") if inside else ""
            surgery.headless[core] = (projection, container, returns)
            continue
        surgery.attributes[core] = _numbers(vars(module), site, keep, WIDTHS)
        wide[core] = _numbers(vars(module), site, keep, SHARED_WIDTHS)
        configured = _numbers(_configuration(module), site, keep, WIDTHS)
        if configured:
            surgery.config[core] = configured
        for (path, key), marks in dependences[site.index].arguments.items():
            axis = head_axis(marks)
            if path == core and axis is not None:
                name = key if isinstance(key, str) else list(arguments)[key]
                surgery.arguments.setdefault(core, {})[name] = (axis, site.n_heads, keep)
        if "bias" in returns:
            inner = [
                table.name.removeprefix(f"{core}.") for table in tables if table.name.startswith(f"{core}.")
            ]
            embedding = "".join(inner).rpartition(".")[0]
            surgery.tables[core] = (embedding, returns.index("bias"), site.n_heads, keep)
    if wide == surgery.attributes:
        return [surgery]
    return [surgery, replace(surgery, attributes=wide)]


def _serves_other_layers(parameter: Owned, cores: dict[int, str]) -> bool:
    """Whether a parameter makes position biases for layers beside its own: it stays whole, and each layer
    takes its part."""
    if parameter.output:
        return False
    return not all(parameter.name.startswith(f"{cores[layer]}.") for layer in parameter.owners)


def _cut(surgery: Surgery, model: nn.Module, parameter: Owned, head_set: HeadSet) -> None:
    # Entries that have owners, all of which are removed, (entries,)
    gone = parameter.touched(parameter.users) & ~parameter.touched(parameter.users - head_set)
    if bool((parameter.touched(head_set) & ~gone).any()):
        raise HeadwiseError(
            f"layers {list(parameter.owners)} share {parameter.name}, so a head can only be removed from all "
            "of them: name the same heads in each of these layers, or silence them instead"
        )
    if not gone.any():
        return
    if not gone.all() and is_norm(model.get_submodule(parameter.name.rpartition(".")[0])):
        raise UnsupportedModel(
            f"{parameter.name} normalizes all heads of a layer together, so removing one would change the "
            "others: heads of this model can be silenced but not removed"
        )
    surgery.slices[parameter.name] = (parameter.dim, _ranges(~gone))


def core_of(model: nn.Module, site: Site, sites: Sequence[Site], owned: Sequence[Owned]) -> str:
    """Path of the module whose forward is the attention of a site: the innermost one with all of its
    projections but the output's.

    "nothing" if no parameters belong to its heads alone.
    """
    parents = []
    for parameter in owned:
        if not parameter.output and {sites[index].path for index in parameter.owners} == {site.path}:
            path = parameter.name.rpartition(".")[0]
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


def _check_groups(site: Site, owned: Sequence[Owned], head_set: HeadSet) -> None:
    shared = torch.eye(site.n_heads)  # above 0: which heads share parameters, (heads, heads)
    for parameter in owned:
        if site.index in parameter.owners:
            marks = parameter.owners[site.index].float()
            shared = shared + marks.T @ marks
    for _ in range(site.n_heads.bit_length()):
        shared = shared.gt(0).float() @ shared.gt(0).float()  # and with whom those share
    groups = [row.nonzero()[:, 0].tolist() for row in torch.unique(shared.gt(0), dim=0).flip(0)]
    removed = set(head_set.layers()[site.index])
    halved = [group for group in groups if 0 < len(removed.intersection(group)) < len(group)]
    if halved:
        raise HeadwiseError(
            f"layer {site.index} ({site.path}) shares keys and values among groups of heads, and only whole "
            f"groups can be removed: its groups are {groups}, and the set has only some heads of {halved}. "
            "Add the others, or silence them instead"
        )


def _ranges(keep: Tensor) -> list[tuple[int, int]]:
    """Runs of True, as (start, stop)."""
    edges = torch.cat([torch.zeros(1), keep.float(), torch.zeros(1)]).diff()
    starts, stops = edges.eq(1).nonzero()[:, 0].tolist(), edges.eq(-1).nonzero()[:, 0].tolist()
    return list(zip(starts, stops, strict=True))


def _numbers(values: dict[str, Any], site: Site, keep: list[int], widths: set[str]) -> dict[str, int]:
    """Those of the values, by their names, that count the heads of a site or give their common width, with
    their new values."""
    changed = {}
    for name, number in values.items():
        if type(number) is not int:
            continue
        old, new = site.n_heads, len(keep)
        if "kv" in name or "key_value" in name:
            old, new = site.n_groups, len(keep) // site.group_size
        counts = "head" in name and not any(word in name for word in ("dim", "size", "group"))
        if counts and number == old:
            changed[name] = new
        elif name in widths and number == old * site.head_dim:
            changed[name] = new * site.head_dim
    return changed


def _configuration(module: nn.Module) -> dict[str, Any]:
    """What a module's own code may read from its configuration, {name: value}."""
    names: set[str] = set()
    for name, function in vars(type(module)).items():
        if name == "__init__" or not callable(function):
            continue  # what it read when it was built stands in attributes
        if isfunction(unwrap(function)):
            names.update(unwrap(function).__code__.co_names)
    config = vars(module).get("config")
    if config is None or "config" not in names:
        return {}
    changes = {}
    if isinstance(config, ConfigView):
        config, changes = config.base, config.changes
    values = {**config.to_dict(), **changes}
    keys = {name: config.attribute_map.get(name, name) for name in names}
    return {name: values[key] for name, key in keys.items() if key in values}


def _observe(heads: "Heads", cores: set[str]) -> dict[str, tuple[dict[str, Any], Any]]:
    """What each module is called with, by the names of its forward, and what it returns."""
    calls: dict[str, tuple[dict[str, Any], Any]] = {}

    def hook(path: str) -> Any:
        def note(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            positional = zip(signature(module.forward).parameters, args, strict=False)
            calls.setdefault(path, ({**dict(positional), **kwargs}, output))

        return note

    with undisturbed(heads) as (twin,), ExitStack() as hooks:
        for path in cores:
            module = twin.model.get_submodule(path)
            hooks.callback(module.register_forward_hook(hook(path), with_kwargs=True, prepend=True).remove)
        run_example(heads, twin.model)
    return calls


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
    returns = ["output"]
    for value in output[1:]:
        is_bias = isinstance(value, Tensor) and value.ndim == 4 and value.shape[:2] == (1, site.n_heads)
        returns.append(names.get(id(value), "bias" if is_bias else "none"))
    return "list" if isinstance(output, list) else "tuple", returns
