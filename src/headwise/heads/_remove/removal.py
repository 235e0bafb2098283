"""Removing heads for good: a smaller model that computes what the silenced one does, which is checked before
it is handed out."""

from contextlib import ExitStack
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.heads._errors import UnsupportedModel
from headwise.heads._headset import HeadSet
from headwise.heads._inputs import root_of, run_example, tensors_in
from headwise.heads._reading import undisturbed
from headwise.heads._remove.cuts import plan
from headwise.heads._remove.files import mark, removed_from
from headwise.heads._remove.plain import as_ordinary, remaining_counts
from headwise.heads._remove.surgery import Surgery, operate, set_numbers
from headwise.heads._sites import is_plain

if TYPE_CHECKING:
    from headwise.heads._heads import Heads


def remove(heads: "Heads", head_set: HeadSet) -> nn.Module:
    """See `Heads.remove`."""
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
    surgery = verified(heads, head_set, model, versions)
    surgeries = [*removed_from(heads.model), _without_adapters(surgery, heads.model)]
    if root_of(model) is model:
        expected = _outputs(heads, model, [])
        counts = remaining_counts(heads.sites, head_set)

        def same(rebuilt: nn.Module) -> bool:
            return not _difference(expected, _outputs(heads, rebuilt, []))

        ordinary = as_ordinary(model, counts, heads.sites[0].head_dim, surgeries, same)
        if ordinary is not None:
            return ordinary
    mark(root_of(model), surgeries)
    return model


def _refuse_quantised(model: nn.Module, surgery: Surgery) -> None:
    for name, parameter in model.named_parameters():
        if name in surgery.slices and not is_plain(parameter):
            raise HeadwiseError(
                f"{name} is kept as {type(parameter).__name__} of {parameter.dtype} on {parameter.device}, "
                "and heads are removed from plain weights: remove them before the model is quantised, "
                "sharded or offloaded, or silence them"
            )


def _without_adapters(surgery: Surgery, model: nn.Module) -> Surgery:
    """The same cut by the names that parameters and modules have once adapters (PEFT) are merged into the
    model."""
    root = root_of(model)
    prefix = next(f"{name}." if name else "" for name, module in model.named_modules() if module is root)

    renamed: dict[str, Any] = {}
    for field, values in vars(surgery).items():
        if isinstance(values, dict):
            names = {name: name.removeprefix(prefix).replace(".base_layer", "") for name in values}
            values = {names[name]: cut for name, cut in values.items() if ".lora_" not in name}
        renamed[field] = values
    return Surgery(**renamed)


def verified(heads: "Heads", head_set: HeadSet, model: nn.Module, versions: list[Surgery]) -> Surgery:
    """The first version whose smaller model equals the silenced one: what comes out of every output
    projection, and of the model.

    Raises:
        UnsupportedModel: none does.
    """
    removed = head_set.layers()
    paths = [site.path for site in heads.sites if len(removed.get(site.index, ())) < site.n_heads]
    with undisturbed(heads) as (twin,), twin.silenced(head_set):
        expected = _recorded(twin, twin.model, paths)
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
        return _recorded(heads, twin, paths)


def _recorded(heads: "Heads", model: nn.Module, paths: list[str]) -> list[tuple[str, Tensor]]:
    outputs: list[tuple[str, Tensor]] = []

    def note(path: str) -> Any:
        return lambda _, __, output: outputs.extend((path, tensor) for tensor in tensors_in(output))

    with ExitStack() as hooks:
        for path in dict.fromkeys(paths):
            hooks.callback(model.get_submodule(path).register_forward_hook(note(path)).remove)
        outputs += [("the output", tensor) for tensor in tensors_in(run_example(heads, model))]
    return outputs


def _difference(expected: list[tuple[str, Tensor]], actual: list[tuple[str, Tensor]]) -> str:
    """Where two lists of outputs differ by more than rounding; "" if they do not."""
    if [name for name, _ in expected] != [name for name, _ in actual]:
        return "other modules ran"
    for (name, before), (_, after) in zip(expected, actual, strict=True):
        if before.shape != after.shape:
            return f"{name} has shape {tuple(after.shape)}, not {tuple(before.shape)}"
        tolerance = {torch.float64: 1e-9, torch.float32: 1e-4}.get(before.dtype, 5e-2)
        error = (before - after).abs().max() / before.abs().max().clamp_min(torch.finfo(before.dtype).tiny)
        if not bool(error <= tolerance):
            return f"{name} is off by {float(error):.1e} of its largest value"
    return ""
