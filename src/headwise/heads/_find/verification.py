"""Is the view true? Checked once, when `Heads` is built, on the small pass its sites were found with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from headwise.errors import HeadwiseError
from headwise.heads._errors import UnsupportedModel
from headwise.heads._inputs import root_of, tensors_in
from headwise.heads._reading import undisturbed
from headwise.heads._sites import Site, input_axis
from headwise.heads._use.gates import Gates
from headwise.heads._use.positions import read_pass

if TYPE_CHECKING:
    from headwise.heads._heads import Heads


def check_view(heads: Heads) -> bool:
    """Checks that gates of one change nothing, to the last bit, and that silencing a head equals zeroing its
    columns of W_O.

    Returns:
        Whether gates of one row of a batch reach that row alone (taken for
        granted if the example has one row).

    Raises:
        UnsupportedModel: the view does not hold; says where.
    """
    name = type(root_of(heads.model)).__name__
    ones = Gates(torch.ones(heads.shape), heads.sites, skip=False)
    with undisturbed(heads) as (twin,), torch.no_grad():
        columns = _Columns(twin.model, heads.sites)
        try:
            plain = _outputs(twin)
        finally:
            columns.remove()
        with twin._taps.applying(ones, heads.sites):
            gated = _outputs(twin)
        apart = _rows_apart(twin, plain)
    if len(plain) != len(gated) or not all(map(torch.equal, plain, gated)):
        raise UnsupportedModel(f"{name}: gates of one change its output, so its heads cannot be gated")
    if columns.wrong:
        site = columns.wrong[0]
        raise UnsupportedModel(
            f"{name}: silencing head 0 of layer {site.index} does not equal zeroing its columns of the "
            f"output projection {site.path} ({type(heads.model.get_submodule(site.path)).__name__}), so a "
            "head is not a slice of its input"
        )
    return apart


def _rows_apart(heads: Heads, plain: list[Tensor]) -> bool:
    """With the first row's gates at one and the others' at zero, some output must keep its first row and
    change the others."""
    rows = read_pass(heads.example).batch
    if rows is None or rows < 2:
        return True
    gates = torch.zeros(rows, *heads.shape, dtype=torch.bool)
    gates[0] = True
    try:
        with heads._taps.applying(Gates(gates, heads.sites, skip=False), heads.sites):
            gated = _outputs(heads)
    except HeadwiseError:  # its projections see another number of rows
        return False
    for before, after in zip(plain, gated, strict=True):
        if before.shape == after.shape and before.numel() % rows == 0:
            moved = (before - after).abs().reshape(rows, -1).amax(1)  # (rows,)
            if moved[0] <= 1e-4 * (1 + before.abs().max()) and bool((moved[1:] > moved[0]).all()):
                return True
    return False


def _outputs(heads: Heads) -> list[Tensor]:
    if heads.draws:
        torch.manual_seed(0)
    return comparable(heads.model(**heads.example))


def comparable(output: Any) -> list[Tensor]:
    """Every floating tensor of a model's output, in order, with a number in place of NaN, which is not equal
    to itself."""
    return [tensor.nan_to_num(1e9) for tensor in tensors_in(output)]


class _Columns:
    """Compares at each projection, as it runs: its input with one head at zero, and its weight with that
    head's columns at zero."""

    def __init__(self, model: nn.Module, sites: tuple[Site, ...]) -> None:
        self.wrong: list[Site] = []
        self.busy = False
        self.handles = []
        for path, site in {site.path: site for site in reversed(sites)}.items():
            handle = model.get_submodule(path).register_forward_hook(self._hook(site))
            self.handles.append(handle)

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()

    def _hook(self, site: Site) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            weights = _without_head_0(module, site)
            if self.busy or weights is None:
                return
            self.busy = True  # the calls below come back here
            try:
                # A copy; heads that put out inf or NaN can be silenced, but not be multiplied by zero
                x = args[0].nan_to_num(0, 0, 0)
                zeroed = functional_call(module, weights, (x, *args[1:]))
                x = x.clone()
                x[..., site.columns(0)] = 0
                silenced = module.forward(x, *args[1:])
            finally:
                self.busy = False
            pairs = zip(comparable(silenced), comparable(zeroed), strict=True)
            # Some projections also return a scale
            if not all(torch.allclose(*pair, rtol=1e-3, atol=1e-5) for pair in pairs):
                self.wrong.append(site)

        return hook


def _without_head_0(module: nn.Module, site: Site) -> dict[str, Tensor] | None:
    """The projection's weights with the columns of head 0 at zero (of a LoRA layer: those of both its
    matrices that read the input).

    None where they cannot be read as numbers: weights that are offloaded or quantized; or where PEFT scales
    them by their norm (DoRA).
    """
    if any(getattr(module, "use_dora", {}).values()):
        return None
    changed = {}
    for name, parameter in module.named_parameters():
        if parameter.device.type == "meta" or not parameter.is_floating_point():
            return None
        axis = input_axis(module) if name in ("weight", "base_layer.weight") else 1
        if parameter.ndim == 2 and parameter.shape[axis] == site.width + site.rest:
            weight = parameter.detach().clone()
            try:
                weight.movedim(axis, 0)[site.columns(0)] = 0
            except NotImplementedError:  # torchao's weights pass for floating ones, but hold integers
                return None
            changed[name] = weight
    return changed or None
