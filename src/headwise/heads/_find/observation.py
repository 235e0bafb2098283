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
ELEMENTWISE = {
    *(
        "dropout",
        "to",
        "type",
        "type_as",
        "float",
        "half",
        "bfloat16",
        "mul",
        "__mul__",
        "__rmul__",
        "__imul__",
        "mul_",
        "div",
        "__truediv__",
    ),
    *(
        "masked_fill",
        "masked_fill_",
        "where",
        "nan_to_num",
        "clone",
        "contiguous",
        "detach",
        "add",
        "__add__",
        "__getitem__",
    ),
    *(
        "view",
        "reshape",
        "unsqueeze",
        "squeeze",
        "transpose",
        "permute",
        "expand",
        "flatten",
        "unflatten",
        "pad",
        "movedim",
        "cat",
    ),
}

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
        if (
            isinstance(out, Tensor)
            and out.ndim >= 3
            and out.is_floating_point()
            and self._probable(name, args)
        ):
            self._probabilities[id(out)] = out
            if len(self._probabilities) > RECENT:
                del self._probabilities[next(iter(self._probabilities))]
        return out

    def _probable(self, name: str, args: Any) -> bool:
        """Whether a function's output holds attention probabilities."""
        return name == "softmax" or (
            name in ELEMENTWISE and any(id(arg) in self._probabilities for arg in _tensors(args))
        )

    def _product(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """A matrix product; an attention result if its first factor came from a softmax over the summed axis."""
        operands = _tensors(args)
        known = [i for i, operand in enumerate(operands) if id(operand) in self._probabilities]
        if len(operands) != 2 or len(known) != 1:
            return func(*args, **kwargs)
        probabilities, values = operands[known[0]], operands[1 - known[0]]
        if name != "einsum" and (known[0] != 0 or values.ndim < 3):
            return func(*args, **kwargs)
        if self.on_probabilities is not None:
            replaced = self.on_probabilities(probabilities)
            args = _replace(args, probabilities, replaced)
            probabilities = replaced
        out = func(*args, **kwargs)
        if self.on_result is None:
            return out
        heads = None if name == "einsum" else _value_heads(out, None, values)
        queries, keys = probabilities.shape[-2:]
        return self.on_result(AttentionResult(out, queries, keys, heads, name == "einsum", probabilities))

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
            key, value = (t.repeat_interleave(query.shape[-3] // t.shape[-3], -3) for t in (key, value))
        scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if attn_mask is not None:
            scores = (
                scores.masked_fill(~attn_mask, float("-inf"))
                if attn_mask.dtype == torch.bool
                else scores + attn_mask
            )
        # Rows that may look nowhere are zero, as in the fused call
        probabilities = scores.softmax(-1).nan_to_num()
        assert self.on_probabilities is not None
        seen = self.on_probabilities(torch.dropout(probabilities, dropout_p, dropout_p > 0))
        out = seen @ value
        if self.on_result is None:
            return out
        return self.on_result(
            AttentionResult(
                out, seen.shape[-2], seen.shape[-1], _value_heads(out, key, value), probabilities=seen
            )
        )

    def _fused(self, out: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if self.on_result is None:
            return out
        return self.on_result(
            AttentionResult(out, query.shape[-2], value.shape[-2], _value_heads(out, key, value))
        )


def _tensors(args: Any) -> list[Tensor]:
    """The tensors among positional arguments, one level of lists deep (`cat`, `einsum`)."""
    found: list[Tensor] = []
    for arg in args:
        if isinstance(arg, Tensor):
            found.append(arg)
        elif isinstance(arg, list | tuple):
            found.extend(item for item in arg if isinstance(item, Tensor))
    return found


def _replace(args: Any, old: Tensor, new: Tensor) -> Any:
    return tuple(
        new if arg is old else [new if a is old else a for a in arg] if isinstance(arg, list | tuple) else arg
        for arg in args
    )


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
