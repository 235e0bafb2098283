"""Baking: steering at all tokens written into an ordinary model, as a bias of its output projections."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.heads._errors import UnsupportedModel
from headwise.heads._find.verification import tensors_in
from headwise.heads._inputs import root_of
from headwise.heads._reading import undisturbed
from headwise.heads._restoration import forked
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
    model = _with_biases(heads.model, bare) if bare else deepcopy(heads.model)
    with torch.no_grad():
        for path, shift in shifts.items():
            bias: Any = model.get_submodule(path).bias
            bias.copy_(bias.double() + shift.to(bias.device))
    with undisturbed(heads) as (twin,), twin.steered(directions, scale):
        expected = _outputs(twin, twin.model)
    with undisturbed(model) as (baked,):
        found = _outputs(heads, baked)
    for one, other in zip(expected, found, strict=True):
        allowed = (1e-3 if one.dtype in (torch.float32, torch.float64) else 5e-2) * (
            1 + float(one.abs().max())
        )
        if float((one - other).abs().max()) > allowed:
            raise UnsupportedModel(
                f"{name}: with biases of its output projections it does not compute what steering does; use "
                "steered()"
            )
    return model


def _shifts(heads: Heads, vectors: dict[int, Tensor]) -> dict[str, Tensor]:
    """By output projection what steering adds to its output, (dim,) in float64."""
    found: dict[str, Tensor] = {}
    for path in dict.fromkeys(heads.sites[layer].path for layer in vectors):
        sites = [site for site in heads.sites if site.path == path]
        module: Any = heads.model.get_submodule(path)
        weight = module.weight
        if not is_plain(weight):
            raise UnsupportedModel(
                f"{path} keeps its weight as {type(weight).__name__} of {weight.dtype} on {weight.device}: "
                "bake() writes into plain weights; load the model in full precision and without offloading"
            )
        shifts = [_shift(site, weight, input_axis(module), vectors) for site in sites]
        if sites[0].n_calls > len(sites) or any(not torch.equal(shifts[0], shift) for shift in shifts):
            raise HeadwiseError(
                f"layers {', '.join(str(site.index) for site in sites)} share {path}, so that a bias there "
                "steers all of them alike: give them the same directions, or use steered()"
            )
        found[path] = shifts[0]
    return found


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
    own = dict(model.named_parameters())
    for switch in SWITCHES if "headwise_removed" not in vars(model) else ():
        config = deepcopy(model.config)
        parts = [part for part in (config, config.get_text_config()) if getattr(part, switch, None) is False]
        for part in parts:
            setattr(part, switch, True)
        if not parts:
            continue
        with torch.device("meta"):
            wanted = dict(type(model)(config).named_parameters())
        new = [name for name in wanted if name not in own]
        if (
            own.keys() <= wanted.keys()
            and {f"{path}.bias" for path in paths} <= set(new)
            and all(n.endswith("bias") for n in new)
        ):
            copy: Any = deepcopy(model)
            for part in (copy.config, copy.config.get_text_config()):
                if getattr(part, switch, None) is False:
                    setattr(part, switch, True)
            for name in new:
                path, _, last = name.rpartition(".")
                home = copy.get_submodule(path)
                like = home.weight
                home.register_parameter(
                    last, nn.Parameter(torch.zeros(wanted[name].shape, dtype=like.dtype, device=like.device))
                )
            return copy
    family = model.config.model_type
    raise UnsupportedModel(
        f"{type(model).__name__} has no bias in {paths[0]}, and no setting of {family!r} gives it one, so "
        "plain transformers could not load the result: keep the directions and use "
        "heads.steered(directions) around the model"
    )


def _outputs(heads: Heads, model: nn.Module) -> list[Tensor]:
    with torch.no_grad(), forked(model, heads.draws):
        if heads.draws:
            torch.manual_seed(0)
        return list(tensors_in(model(**heads.example)))
