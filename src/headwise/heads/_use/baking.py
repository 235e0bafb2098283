"""Baking: steering at all tokens written into an ordinary model, as a bias of its output projections."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.heads._errors import UnsupportedModel
from headwise.heads._find.verification import comparable
from headwise.heads._inputs import root_of, run_example
from headwise.heads._reading import undisturbed
from headwise.heads._sites import Site, input_axis, is_plain
from headwise.heads._use.steering import Directions, read_directions

if TYPE_CHECKING:
    from headwise.heads._heads import Heads

# By which configurations ask for biases
SWITCHES = ("attention_bias", "attention_out_bias", "enable_bias", "use_bias", "bias")


def bake(heads: Heads, directions: Directions, scale: float | Tensor) -> nn.Module:
    """See `Heads.bake`."""
    name = type(root_of(heads.model)).__name__
    if heads._taps.edits:
        raise HeadwiseError(
            "bake() compares a copy with the model, whose edits are open here: call it outside the `with` "
            "block"
        )
    if root_of(heads.model) is not heads.model:
        raise HeadwiseError(
            "bake() writes into plain weights: merge the adapters first, "
            "Heads(model.merge_and_unload()).bake(...)"
        )
    heads._taps.tree.check()
    vectors = read_directions(heads, directions, scale)
    shifts = _shifts(heads, vectors)
    bare = [path for path in shifts if getattr(heads.model.get_submodule(path), "bias", None) is None]
    model = _with_biases(heads.model, bare)
    with torch.no_grad():
        for path, shift in shifts.items():
            bias: Any = model.get_submodule(path).bias
            bias.copy_(bias.double() + shift.to(bias.device))
    with undisturbed(heads) as (twin,), twin.steered(directions, scale):
        steered = comparable(run_example(twin, twin.model))
    with undisturbed(model) as (baked_twin,):
        baked = comparable(run_example(heads, baked_twin))
    for expected, actual in zip(steered, baked, strict=True):
        tolerance = 1e-3 if expected.dtype in (torch.float32, torch.float64) else 5e-2
        if float((expected - actual).abs().max()) > tolerance * (1 + float(expected.abs().max())):
            raise UnsupportedModel(
                f"{name}: with biases of its output projections it does not compute what steering does; use "
                "steered()"
            )
    return model


def _shifts(heads: Heads, vectors: dict[int, Tensor]) -> dict[str, Tensor]:
    """By output projection what steering adds to its output, (dim,) in float64."""
    shifts: dict[str, Tensor] = {}
    for path in dict.fromkeys(heads.sites[layer].path for layer in vectors):
        sites = [site for site in heads.sites if site.path == path]
        module: Any = heads.model.get_submodule(path)
        weight = module.weight
        if not is_plain(weight):
            raise UnsupportedModel(
                f"{path} keeps its weight as {type(weight).__name__} of {weight.dtype} on {weight.device}: "
                "bake() writes into plain weights; load the model in full precision and without offloading"
            )
        shift, *repeated = [_shift(site, weight, input_axis(module), vectors) for site in sites]
        if sites[0].n_calls > len(sites) or not all(torch.equal(shift, again) for again in repeated):
            layers = ", ".join(str(site.index) for site in sites)
            raise HeadwiseError(
                f"layers {layers} share {path}, so that a bias there "
                "steers all of them alike: give them the same directions, or use steered()"
            )
        shifts[path] = shift
    return shifts


def _shift(site: Site, weight: Tensor, axis: int, vectors: dict[int, Tensor]) -> Tensor:
    columns = weight.detach().movedim(axis, 1)[:, : site.width].double()  # (dim, heads × head_dim)
    if site.index not in vectors:
        return columns.new_zeros(columns.shape[0])
    return columns @ vectors[site.index].detach().flatten().to(columns)


def _with_biases(model: Any, paths: list[str]) -> nn.Module:
    """A copy of the model whose configuration asks for biases, which are zero, so that any transformers loads
    it.

    Raises:
        UnsupportedModel: no setting of this family gives its output projections a bias.
    """
    if not paths:
        return deepcopy(model)
    present = dict(model.named_parameters())
    switches = () if "headwise_removed" in vars(model) else SWITCHES
    for switch in switches:
        config = deepcopy(model.config)
        if not _turned_on(config, switch):
            continue
        with torch.device("meta"):
            parameters = dict(type(model)(config).named_parameters())
        biases = [name for name in parameters if name not in present]
        fits = present.keys() <= parameters.keys() and {f"{path}.bias" for path in paths} <= set(biases)
        if not fits or not all(name.endswith("bias") for name in biases):
            continue
        copy: Any = deepcopy(model)
        _turned_on(copy.config, switch)
        for name in biases:
            path, _, last = name.rpartition(".")
            module = copy.get_submodule(path)
            bias = torch.zeros_like(parameters[name], dtype=module.weight.dtype, device=module.weight.device)
            module.register_parameter(last, nn.Parameter(bias))
        return copy
    family = model.config.model_type
    raise UnsupportedModel(
        f"{type(model).__name__} has no bias in {paths[0]}, and no setting of {family!r} gives it one, so "
        "plain transformers could not load the result: keep the directions and use "
        "heads.steered(directions) around the model"
    )


def _turned_on(config: Any, switch: str) -> bool:
    """Turns a setting on, in the configuration and in that of its text; whether it was off in either."""
    off = [level for level in (config, config.get_text_config()) if getattr(level, switch, None) is False]
    for level in off:
        setattr(level, switch, True)
    return bool(off)
