"""Seeing attention happen: which tensors of a forward pass are attention results, whatever the model's code
looks like.

Attention is `softmax(...) @ values`, written with matmul, bmm, einsum, or as one call of
`scaled_dot_product_attention`. A `TorchFunctionMode` sees those calls while it is entered, in this thread
only; no module and no function is replaced.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

PRODUCTS = {"matmul", "__matmul__", "__rmatmul__", "bmm", "einsum", "baddbmm"}
# What may stand between the softmax and the product with the values, and still be attention probabilities.
# fmt: off
ELEMENTWISE = {
    "dropout", "to", "type", "type_as", "float", "half", "bfloat16",
    "mul", "__mul__", "__rmul__", "__imul__", "mul_", "div", "__truediv__", "add", "__add__",
    "masked_fill", "masked_fill_", "where", "nan_to_num", "clone", "contiguous", "detach",
    "__getitem__", "view", "reshape", "unsqueeze", "squeeze", "transpose", "permute", "expand",
    "flatten", "unflatten", "pad", "movedim", "cat",
}
# fmt: on
RECENT = 16  # this many tensors since a softmax may still be attention probabilities; older ones are let go


@dataclass
class AttentionResult:
    """One attention result, before heads are merged.

    Attributes:
        value: the result, (..., queries, head_dim).
        queries, keys: sequence lengths.
        einsum: whether an einsum made it: then `queries` may be any axis but the last.
        value_heads: key/value heads behind the result's leading axes; None if they could not be separated.
        probabilities: attention maps (..., queries, keys) where the model computed them itself (eager
            attention).
    """

    value: Tensor
    queries: int
    keys: int
    value_heads: int | None
    einsum: bool = False
    probabilities: Tensor | None = None


def nothing_functional(name: str) -> None:
    """The default of `on_functional`: let it pass."""


@dataclass
class Watcher(TorchFunctionMode):
    """Calls back for attention as it happens.

    Attributes:
        on_result: gets every attention result and returns the tensor to use instead (the same one to change
            nothing).
        on_probabilities: gets the softmax output that is about to meet the values; returns the tensor to use
            instead.
        on_fused: gets the arguments of `scaled_dot_product_attention`, which then runs as it is.
        on_functional: gets the name of a fused call whose projection cannot be hooked
            (`multi_head_attention_forward`).
    """

    on_result: Callable[[AttentionResult], Tensor] | None = None
    on_probabilities: Callable[[Tensor], Tensor] | None = None
    on_functional: Callable[[str], None] = nothing_functional
    on_fused: Callable[..., None] | None = None
    # By id; holding the tensor keeps the id its own
    _probabilities: dict[int, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "scaled_dot_product_attention":
            if self.on_fused is not None:
                self.on_fused(*args, **kwargs)
                return func(*args, **kwargs)
            if self.on_probabilities is not None:  # the fused call never shows them
                return self._written_out(*args, **kwargs)
            return self._fused(func(*args, **kwargs), *_operands(args, kwargs, "query", "key", "value"))
        if name == "multi_head_attention_forward":
            self.on_functional(name)
            return func(*args, **kwargs)
        if name in PRODUCTS and self._probabilities:
            return self._product(name, func, args, kwargs)
        out = func(*args, **kwargs)
        floating = isinstance(out, Tensor) and out.ndim >= 3 and out.is_floating_point()
        if floating and self._gives_probabilities(name, args):
            self._probabilities[id(out)] = out
            if len(self._probabilities) > RECENT:
                del self._probabilities[next(iter(self._probabilities))]
        return out

    def _gives_probabilities(self, name: str, args: Any) -> bool:
        """Whether a function's output holds attention probabilities."""
        if name in ELEMENTWISE:
            return any(id(arg) in self._probabilities for arg in _tensors(args))
        return name == "softmax"

    def _product(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """A matrix product: an attention result if its first factor came from a softmax over keys."""
        operands, einsum = _tensors(args), name == "einsum"
        from_softmax = [id(operand) in self._probabilities for operand in operands]
        if len(operands) != 2 or sum(from_softmax) != 1:
            return func(*args, **kwargs)
        probabilities, values = operands if from_softmax[0] else reversed(operands)
        if not einsum and (not from_softmax[0] or values.ndim < 3):
            return func(*args, **kwargs)
        if self.on_probabilities is not None:
            replaced = self.on_probabilities(probabilities)
            args = _replace(args, probabilities, replaced)
            probabilities = replaced
        out = func(*args, **kwargs)
        if self.on_result is None:
            return out
        heads = None if einsum else _value_heads(out, None, values)
        queries, keys = probabilities.shape[-2:]
        return self.on_result(AttentionResult(out, queries, keys, heads, einsum, probabilities))

    def _written_out(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """`scaled_dot_product_attention` in steps, as its documentation defines it."""
        if enable_gqa:
            key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
            value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
        if scale is None:
            scale = query.shape[-1] ** -0.5
        scores = query @ key.transpose(-2, -1) * scale
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, float("-inf"))
        elif attn_mask is not None:
            scores = scores + attn_mask
        # Rows that may look nowhere are zero, as in the fused call
        probabilities = scores.softmax(-1).nan_to_num()
        assert self.on_probabilities is not None
        probabilities = self.on_probabilities(torch.dropout(probabilities, dropout_p, dropout_p > 0))
        return self._fused(probabilities @ value, query, key, value, probabilities)

    def _fused(
        self, out: Tensor, query: Tensor, key: Tensor, value: Tensor, probabilities: Tensor | None = None
    ) -> Tensor:
        if self.on_result is None:
            return out
        heads = _value_heads(out, key, value)
        result = AttentionResult(out, query.shape[-2], value.shape[-2], heads, probabilities=probabilities)
        return self.on_result(result)


def _tensors(args: Any) -> list[Tensor]:
    """The tensors among positional arguments, one level of lists deep (`cat`, `einsum`)."""
    tensors: list[Tensor] = []
    for arg in args:
        if isinstance(arg, Tensor):
            tensors.append(arg)
        elif isinstance(arg, list | tuple):
            tensors.extend(member for member in arg if isinstance(member, Tensor))
    return tensors


def _replace(args: Any, old: Tensor, new: Tensor) -> Any:
    replaced: list[Any] = []
    for arg in args:
        if isinstance(arg, list | tuple):
            replaced.append([new if member is old else member for member in arg])
        else:
            replaced.append(new if arg is old else arg)
    return tuple(replaced)


def _operands(args: Any, kwargs: Any, *names: str) -> list[Tensor]:
    return [args[i] if i < len(args) else kwargs[name] for i, name in enumerate(names)]


def _value_heads(out: Tensor, key: Tensor | None, value: Tensor) -> int | None:
    """How many different key/value heads stand behind the heads axis of a result (batch, heads, queries,
    head_dim).

    Grouped queries either bring fewer value heads than query heads, or repeat each for its group: then
    neighbours are equal.
    """
    if out.ndim != 4 or value.ndim != 4:
        return None
    if value.shape[1] < out.shape[1]:
        return value.shape[1]
    if not bool(value.any()):  # nothing to tell them apart by
        return None
    with torch.no_grad():
        differs = (value[:, 1:] != value[:, :-1]).flatten(2).any(-1).any(0)  # (heads - 1,)
        if key is not None and key.ndim == 4 and key.shape[1] == value.shape[1]:
            differs = differs | (key[:, 1:] != key[:, :-1]).flatten(2).any(-1).any(0)
        return int(differs.sum()) + 1
