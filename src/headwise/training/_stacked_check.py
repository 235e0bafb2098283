"""One pass of a stacked model beside one of the plain model: copies are trained side by side only where both
agree."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from headwise.training._stacked import CannotStack, Stacked, StackedEmbedding, StackedLinear, StackedNorm

# relative to the largest state; rounding stays near 1e-6, a norm of another kind is off by 1 and more
STATES = 1e-3
GRADIENTS, ROUNDING = 1e-2, 1e-5  # relative to the largest gradient of the same weight, and of all weights


def compare(stacked: Stacked, plain: nn.Module, inputs: Mapping[str, Tensor]) -> None:
    """Checks that every copy gives the token states of `plain`, and that its weights get the same gradients.

    Args:
        stacked: copies of `plain`, none of them trained yet.
        plain: the model itself, in evaluation mode, all of it requiring gradients.
        inputs: what both are asked; a few rows.

    Raises:
        CannotStack: states or gradients differ, or the stacked pass fails.
    """
    copies, trained = stacked.rows.copies, list(stacked.trained())
    stacked.eval()
    expected = plain(**inputs).last_hidden_state  # (n, tokens, dim)
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(0)).to(expected)
    try:
        stacked_states = stacked(
            **{name: torch.cat([value] * copies) for name, value in inputs.items()}
        ).last_hidden_state
        stacked_states = stacked_states.view(copies, *expected.shape)
        off = float(
            (stacked_states - expected).detach().abs().max() / expected.detach().abs().max().clamp(min=1e-6)
        )
        if not off <= STATES:
            raise CannotStack(
                f"states of {type(plain).__name__} side by side differ from its own by {off:.2g} of their "
                "size"
            )
        gradients = torch.autograd.grad((stacked_states * weights).sum(), trained, allow_unused=True)
    except (CannotStack, torch.OutOfMemoryError):
        raise
    except Exception as error:  # whatever a family's own code makes of rows that it did not expect
        raise CannotStack(
            f"{type(plain).__name__} cannot run side by side ({type(error).__name__}: {error})".split("\n")[0]
        ) from error
    plain_parameters = list(plain.parameters())
    plain_gradients = torch.autograd.grad((expected * weights).sum(), plain_parameters, allow_unused=True)
    by_weight = _by_weight(plain_parameters, plain_gradients)
    largest = max(float(gradient.abs().max()) for gradient in by_weight.values())
    stacked_gradients = _by_weight(trained, gradients)
    for path, module in stacked.model.named_modules():
        if not isinstance(module, StackedLinear | StackedNorm | StackedEmbedding):
            continue
        for name, parameter, right in _expected(module, plain.get_submodule(path), by_weight):
            if not parameter.requires_grad:
                continue
            far = float((stacked_gradients.pop(id(parameter)) - right).detach().abs().max())
            if not far <= GRADIENTS * float(right.detach().abs().max()) + ROUNDING * largest:
                raise CannotStack(
                    f"the gradient of {path}.{name} side by side is not that of {type(plain).__name__} alone"
                )
    if any(bool(gradient.any()) for gradient in stacked_gradients.values()):
        raise CannotStack(f"{type(plain).__name__} shares weights between its modules")


def _by_weight(parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor | None]) -> dict[int, Tensor]:
    """The gradient of each parameter, by the parameter's id; zeros where the pass does not use it."""
    by_weight = {}
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            gradient = torch.zeros_like(parameter)
        by_weight[id(parameter)] = gradient
    return by_weight


def _expected(
    module: StackedLinear | StackedNorm | StackedEmbedding, plain: nn.Module, gradients: Mapping[int, Tensor]
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """The gradients a stacked module's parameters must have: name, parameter, gradient (the same for every
    copy, or one each)."""
    gradient = gradients[id(plain.weight)]
    bias = plain._parameters.get("bias")
    if isinstance(module, StackedEmbedding):
        rows = torch.nonzero(module.positions >= 0).squeeze(-1)
        in_order = rows[torch.argsort(module.positions[rows])]
        unused = gradient.clone()
        unused[rows] = 0
        if bool(unused.any()):
            raise CannotStack("an embedding lookup uses rows that are not tokens of the examples")
        yield "weight", module.weight, gradient[in_order]
        return
    if isinstance(module, StackedLinear):
        if not isinstance(plain, nn.Linear):
            gradient = gradient.T  # (out, in)
        if module.rank is not None:
            yield "up", module.up, (gradient @ module.down).transpose(1, 2)  # (copies, rank, out)
            yield "down", module.down, torch.zeros_like(module.down)  # as long as up is zero
            return
    yield "weight", module.weight, gradient
    if module.bias is not None and bias is not None:
        yield "bias", module.bias, gradients[id(bias)]
