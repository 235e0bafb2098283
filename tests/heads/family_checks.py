"""What must hold for every supported model, whatever its architecture; each check raises AssertionError or
passes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headwise.heads import Heads, HeadSet
from headwise.heads._find.verification import comparable
from headwise.heads._sites import input_axis

Inputs = Mapping[str, Any]


def outputs(model: nn.Module, inputs: Inputs) -> list[Tensor]:
    """Every floating tensor of one pass; random numbers a model draws are the same each time."""
    torch.manual_seed(0)
    return comparable(model(**inputs))


def same(actual: list[Tensor], expected: list[Tensor], tolerance: float = 0.0) -> bool:
    """Whether two lists of tensors agree, to the last bit or within a tolerance relative to their scale."""
    if [t.shape for t in actual] != [t.shape for t in expected]:
        return False
    if not tolerance:
        return all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))
    return all(
        (a - b).abs().max() <= tolerance * (1 + b.abs().max())
        for a, b in zip(actual, expected, strict=True)
        if a.numel()
    )


def some_heads(heads: Heads, seed: int = 0) -> HeadSet:
    """About a third of the heads; of weights that layers share, the same heads in each of them."""
    generator = torch.Generator().manual_seed(seed)
    weights = [heads.model.get_submodule(site.path).weight for site in heads.sites]
    draws = {id(weight): torch.rand(heads.shape[1], generator=generator) for weight in dict.fromkeys(weights)}
    picked = [draws[id(weight)] < 0.35 for weight in weights]
    return HeadSet(
        (s.index, h) for s in heads.sites for h in range(s.n_heads) if picked[s.index][h]
    ) or HeadSet([(0, 0)])


def ones_change_nothing(heads: Heads, inputs: Inputs) -> None:
    """Gates of one are bit-identical, for gates that do and do not require gradients."""
    with torch.no_grad():
        plain = outputs(heads.model, inputs)
        for gates in (torch.ones(heads.shape), torch.ones(heads.shape, requires_grad=True)):
            with heads.gated(gates):
                assert same(outputs(heads.model, inputs), plain), "gates of one change the output"


def silenced_equals_zeroed(heads: Heads, inputs: Inputs, tolerance: float) -> None:
    """Silencing heads gives what zeroing their columns of W_O gives, and something else than before."""
    silent = some_heads(heads)
    with torch.no_grad():
        with heads.silenced(silent):
            silenced = outputs(heads.model, inputs)
        weights = {site.path: heads.model.get_submodule(site.path).weight for site in heads.sites}
        before = {path: weight.clone() for path, weight in weights.items()}
        for layer, head in silent:
            site = heads.sites[layer]
            weights[site.path].movedim(input_axis(heads.model.get_submodule(site.path)), 0)[
                site.columns(head)
            ] = 0
        zeroed = outputs(heads.model, inputs)
        for path, weight in weights.items():
            weight.copy_(before[path])
        assert same(silenced, zeroed, tolerance), "silencing differs from zeroed weights"
        assert not same(silenced, outputs(heads.model, inputs)), "silencing changes nothing"


def gradients_equal_differences(
    heads: Heads, inputs: Inputs, steps: tuple[float, ...], tolerance: float
) -> None:
    """The gradient by the gates equals a central difference along a random direction.

    Several steps are tried: large ones cross the kinks of ReLUs, small ones drown in the rounding of norms
    kept in float32.
    """
    generator = torch.Generator().manual_seed(1)
    direction = torch.randn(heads.shape, generator=generator, dtype=heads.model.dtype) * heads.valid
    weights = [torch.randn(t.shape, generator=generator).to(t) for t in outputs(heads.model, inputs)]

    def answer(gates: Tensor) -> Tensor:
        with heads.gated(gates):
            return sum((t * w).sum() for t, w in zip(outputs(heads.model, inputs), weights, strict=True))  # type: ignore[return-value]

    gates = (torch.ones(heads.shape, dtype=heads.model.dtype) - 0.1).requires_grad_()
    (gradient,) = torch.autograd.grad(answer(gates), gates)
    expected = (gradient * direction).sum()
    with torch.no_grad():
        differences = [
            (answer(gates + step * direction) - answer(gates - step * direction)) / (2 * step)
            for step in steps
        ]
    error = min((expected - difference).abs() for difference in differences)
    scale = (gradient * direction).norm() + 1e-9
    assert error <= tolerance * scale, (
        f"gate gradient {expected:.6g}, finite differences {[round(d.item(), 5) for d in differences]}"
    )


def rows_equal_separate_runs(heads: Heads, inputs: Inputs, tolerance: float) -> None:
    """Each row of a batch with its own gates gives what it gives alone with those gates."""
    batch = next(v.shape[0] for v in inputs.values() if isinstance(v, Tensor) and v.ndim > 1)
    if batch < 2:
        inputs = {k: torch.cat([v, v]) if isinstance(v, Tensor) else v for k, v in inputs.items()}
        batch *= 2
    gates = torch.rand(batch, *heads.shape, generator=torch.Generator().manual_seed(2)).to(heads.model.dtype)
    with torch.no_grad():
        with heads.gated(gates):
            together = outputs(heads.model, inputs)
        for row in range(batch):
            alone = {
                k: v.chunk(batch)[row] if isinstance(v, Tensor) and v.shape[0] % batch == 0 else v
                for k, v in inputs.items()
            }
            with heads.gated(gates[row]):
                single = outputs(heads.model, alone)
            pairs = _row_pairs(together, single, batch, row)
            assert pairs, "no output has a row for each row of the input"
            assert all(same([a], [b], tolerance) for a, b in pairs), (
                "a row with its own gates differs from a run of its own"
            )


def _row_pairs(
    together: list[Tensor], single: list[Tensor], batch: int, row: int
) -> list[tuple[Tensor, Tensor]]:
    """A row's part of each output, beside what the row gives alone; not of outputs that compare rows, as
    CLIP's logits do."""
    pairs = [(a, b) for a, b in zip(together, single, strict=True) if a.numel() == batch * b.numel()]
    return [(a.reshape(batch, -1)[row], b.reshape(-1)) for a, b in pairs]


def nothing_is_left(heads: Heads, inputs: Inputs) -> None:
    """After blocks, also ones left by an exception, the model is what it was."""
    gates = torch.rand(heads.shape)
    before, random = _state(heads.model), torch.random.get_rng_state()
    plain = [t.clone() for t in heads.model.state_dict().values()]
    with torch.no_grad():
        with heads.silenced(some_heads(heads)), heads.recorded("all"):
            heads.model(**inputs)
        try:
            with heads.gated(gates), heads.recorded("mean"):
                heads.model(**inputs)
                raise KeyError
        except KeyError:
            pass
    if _draws(heads.model, inputs):  # the model's own doing
        torch.random.set_rng_state(random)
    assert _state(heads.model) == before, "a trace is left"
    assert all(torch.equal(a, b) for a, b in zip(plain, heads.model.state_dict().values(), strict=True)), (
        "weights changed"
    )
    assert torch.equal(torch.random.get_rng_state(), random), "the random state changed"


def _draws(model: nn.Module, inputs: Inputs) -> bool:
    before = torch.random.get_rng_state()
    with torch.no_grad():
        model(**inputs)
    drew = not torch.equal(torch.random.get_rng_state(), before)
    torch.random.set_rng_state(before)
    return drew


def _state(model: nn.Module) -> list[Any]:
    return [
        (
            name,
            m.training,
            len(m._forward_pre_hooks),
            len(m._forward_hooks),
            m.forward.__qualname__,
            sorted(m.__dict__),
        )
        for name, m in model.named_modules()
    ] + [(name, p.requires_grad, p.grad is None) for name, p in model.named_parameters()]


def removed_equals_silenced(heads: Heads, inputs: Inputs, tolerance: float) -> None:
    """The smaller model without some heads (whole groups of them) gives what the whole one gives with them
    silenced."""
    removable = HeadSet((layer, h) for layer, h in some_heads(heads) if heads.sites[layer].group_size == 1)
    for site in heads.sites:
        if site.group_size > 1:  # only whole groups can go: the first
            removable |= HeadSet((site.index, h) for h in range(site.group_size))
    smaller = heads.remove(removable)
    with torch.no_grad(), heads.silenced(removable):
        silenced = outputs(heads.model, inputs)
        assert same(outputs(smaller, inputs), silenced, tolerance), (
            "the model without the heads differs from the silenced one"
        )
    assert sum(p.numel() for p in smaller.parameters()) < sum(p.numel() for p in heads.model.parameters()), (
        "it is not smaller"
    )


def doubled(model: nn.Module, inputs: Inputs) -> tuple[nn.Module, dict[str, Any]] | None:
    """The model and its inputs in float64; None if it does not run so."""
    try:
        model = copy.deepcopy(model).double()
    except RuntimeError:  # a model that keeps results of its last pass
        return None
    inputs = {
        k: v.double() if isinstance(v, Tensor) and v.is_floating_point() else v for k, v in inputs.items()
    }
    try:
        # What `comparable` makes of NaN
        finite = not any(bool((t == 1e9).any()) for t in outputs(model, inputs))
    except (RuntimeError, TypeError):
        return None
    return (model, inputs) if finite else None


def check_family(model: nn.Module, example: Inputs | None = None) -> dict[str, str]:
    """Runs every check; returns {check: "" or the reason it failed}.

    Raises:
        UnsupportedModel: the model is not supported at all.
    """
    heads = Heads(model, example=example)
    inputs = heads.example
    results: dict[str, str] = {}
    exact = doubled(model, inputs)
    precise = heads if exact is None else Heads(exact[0], example=exact[1])
    arguments = inputs if exact is None else exact[1]
    tolerance, steps = (1e-4, (3e-2, 1e-2, 3e-3)) if exact is None else (1e-6, (1e-3, 1e-4, 1e-5))

    def run(name: str, check: Callable[..., None], *args: Any) -> None:
        try:
            check(*args)
            results[name] = ""
        except Exception as error:
            results[name] = (
                str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            )

    run("ones", ones_change_nothing, heads, inputs)
    run("zeroed", silenced_equals_zeroed, precise, arguments, tolerance)
    run("gradient", gradients_equal_differences, precise, arguments, steps, 5e-2 if exact is None else 1e-2)
    run("rows", rows_equal_separate_runs, precise, arguments, tolerance)
    run("trace", nothing_is_left, heads, inputs)
    run("removed", removed_equals_silenced, precise, arguments, tolerance)
    return results
