"""Removing heads for good: a smaller model that computes what the silenced one does, which is checked before
it is handed out."""

from copy import deepcopy
from dataclasses import fields
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.heads._errors import UnsupportedModel
from headwise.heads._headset import HeadSet
from headwise.heads._inputs import root_of
from headwise.heads._reading import undisturbed
from headwise.heads._remove.cuts import plan, run
from headwise.heads._remove.plain import as_ordinary, what_is_left
from headwise.heads._remove.surgery import Surgery, operate, set_numbers
from headwise.heads._sites import is_plain

if TYPE_CHECKING:
    from headwise.heads._heads import Heads


def remove(heads: "Heads", head_set: HeadSet) -> nn.Module:
    """A copy of the model without the heads of `head_set`: smaller, and equal to the silenced model up to
    rounding.

    `Heads(smaller)` counts what is left: heads are renumbered within each layer, and layers without heads
    have no site. Where the family's configuration can say what is left (usually: the same number of heads or
    key groups in every layer), it is an ordinary model, which plain transformers opens once it is saved.
    `save_pretrained` and `headwise.heads.save_removed` save either.

    Raises:
        HeadwiseError: a group of grouped queries would lose only some of its heads, or layers that share
            weights would lose different ones.
        UnsupportedModel: this family's attention cannot do without these heads; says why.
    """
    if heads._taps.edits:
        raise HeadwiseError(
            "remove() compares a copy with the model, whose gates are open here: call it outside the `with` "
            "block"
        )
    versions = plan(heads, head_set)
    heads._taps.tree.check()
    _refuse_quantised(heads.model, versions[0])
    model: Any = deepcopy(heads.model)  # without our hooks
    operate(model, versions[0])
    done = [
        *removed_from(heads.model),
        _without_adapters(verified(heads, head_set, model, versions), heads.model),
    ]
    if root_of(model) is model:
        expected = _outputs(heads, model, [])
        left = what_is_left(heads.sites, head_set)
        same = partial(_same_outputs, heads, expected)
        if (ordinary := as_ordinary(model, left, heads.sites[0].head_dim, done, same)) is not None:
            return ordinary
    mark(root_of(model), done)
    return model


def _refuse_quantised(model: nn.Module, surgery: Surgery) -> None:
    for name, parameter in model.named_parameters():
        if name in surgery.slices and not is_plain(parameter):
            raise HeadwiseError(
                f"{name} is kept as {type(parameter).__name__} of {parameter.dtype} on {parameter.device}, "
                "and heads are removed from plain weights: remove them before the model is quantised, "
                "sharded or offloaded, or silence them"
            )


def _same_outputs(heads: "Heads", expected: list[tuple[str, Tensor]], model: nn.Module) -> bool:
    return not _difference(expected, _outputs(heads, model, []))


def mark(model: Any, done: list[Surgery]) -> None:
    """Notes in a model what was cut out of it, and lets it save itself so that `headwise.load` opens it."""
    from headwise.heads._remove.files import save_pretrained

    model.headwise_removed = done
    # A bound method, so that copies of the model save themselves
    model.save_pretrained = MethodType(save_pretrained, model)


def removed_from(model: nn.Module) -> list[Surgery]:
    """What was cut out of a model so far, oldest first."""
    found: list[Surgery] = vars(root_of(model)).get("headwise_removed", [])
    return found


def _without_adapters(surgery: Surgery, model: nn.Module) -> Surgery:
    """The same cut by the names that parameters and modules have once adapters (PEFT) are merged into the
    model."""
    root = root_of(model)
    prefix = next(f"{name}." if name else "" for name, module in model.named_modules() if module is root)

    def plain(values: dict[str, Any]) -> dict[str, Any]:
        return {
            n.removeprefix(prefix).replace(".base_layer", ""): v
            for n, v in values.items()
            if ".lora_" not in n
        }

    parts: dict[str, Any] = {part.name: getattr(surgery, part.name) for part in fields(surgery)}
    renamed: Any = {name: plain(value) if isinstance(value, dict) else value for name, value in parts.items()}
    return Surgery(**renamed)


def verified(heads: "Heads", head_set: HeadSet, model: nn.Module, versions: list[Surgery]) -> Surgery:
    """The first version whose smaller model equals the silenced one: what comes out of every output
    projection, and of the model.

    Raises:
        UnsupportedModel: none does.
    """
    paths = [site.path for site in heads.sites if len(head_set.layers().get(site.index, ())) < site.n_heads]
    with undisturbed(heads) as (twin,), twin.silenced(head_set):
        expected = _seen(twin, twin.model, paths)
    problems = []
    for version in versions:
        set_numbers(model, version)
        try:
            problem = _difference(expected, _outputs(heads, model, paths))
        except Exception as error:  # whatever a family's code does with numbers it did not expect
            problem = f"it fails with {type(error).__name__}: {error}"
        if not problem:
            return version
        problems.append(problem)
    raise UnsupportedModel(
        f"these heads of {type(root_of(model)).__name__} can be silenced but not removed: "
        f"the smaller model does not compute what the silenced one does ({problems[0]})"
    )


def _outputs(heads: "Heads", model: nn.Module, paths: list[str]) -> list[tuple[str, Tensor]]:
    """What the modules at `paths` and the model give on the heads' example, in float tensors."""
    with undisturbed(model) as (twin,):
        return _seen(heads, twin, paths)


def _seen(heads: "Heads", model: nn.Module, paths: list[str]) -> list[tuple[str, Tensor]]:
    found: list[tuple[str, Tensor]] = []

    def note(path: str) -> Any:
        return lambda _, __, output: found.extend((path, tensor) for tensor in _tensors(output))

    handles = [model.get_submodule(path).register_forward_hook(note(path)) for path in dict.fromkeys(paths)]
    try:
        found += [("the output", tensor) for tensor in _tensors(run(heads, model))]
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
