"""Attention with no head left: what remains is the bias of the output projection."""

import inspect
from typing import Any

from torch import Tensor, nn
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.pytorch_utils import Conv1D


def take_heads(model: nn.Module, headless: dict[str, Any]) -> None:
    """Turns attention modules that have lost every head into what remains of them."""
    for path, (projection, container, returns) in headless.items():
        Headless.take_over(model.get_submodule(path), projection, container, returns)


class Headless(nn.Module):
    """An attention module whose heads are all gone.

    It keeps its name, its children and its class (as a subclass), so that the model's code and saved tensors
    fit; its forward gives what the projection makes of no heads, in the form the original returns.
    """

    projection_path: str
    returns: list[str]
    container: str
    argument_names: list[str]

    @staticmethod
    def take_over(module: nn.Module, projection: str, container: str, returns: list[str]) -> None:
        """Turns a module whose projections were cut down to nothing into a headless one.

        Of its children stay the output projection and an embedding of positions that other layers use.

        Args:
            module: the attention module.
            projection: path of the output projection inside the module; "" if it is outside.
            container: what the module returns: "tensor", "tuple" or "list".
            returns: each element of it: "output"; "argument NAME" for one that it passes through; "bias" for
                a position bias it makes for all layers; "none".
        """
        for name, child in list(module.named_children()):
            positions = isinstance(child, nn.Embedding) and child.weight.numel()
            if name != projection.split(".")[0] and not positions:
                del module._modules[name]
        module._parameters.clear()
        transposed = module.get_submodule(projection) if projection else None
        if isinstance(transposed, Conv1D):  # fails on an input of no columns
            weight = transposed.weight
            linear = nn.Linear(1, transposed.nf, device="meta")
            linear.in_features = 0
            linear.weight = nn.Parameter(weight.detach().T, requires_grad=weight.requires_grad)
            linear.bias = transposed.bias
            module.set_submodule(projection, linear)
        names = list(inspect.signature(module.forward).parameters)
        module.__class__ = type(f"Headless{type(module).__name__}", (Headless, type(module)), {})
        vars(module).update(
            projection_path=projection, container=container, returns=returns, argument_names=names
        )
        vars(module)["_is_hf_initialized"] = True  # transformers would look for the projections that are gone

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Takes what the original takes; the first tensor is the hidden states (..., tokens, width)."""
        arguments = {**dict(zip(self.argument_names, args, strict=False)), **kwargs}
        hidden = next(value for value in arguments.values() if isinstance(value, Tensor))
        output = hidden.new_zeros(*hidden.shape[:-1], 0)
        if self.projection_path:
            output = self.get_submodule(self.projection_path)(output)
        if isinstance(arguments.get("residual"), Tensor):
            output = output + arguments["residual"]  # Bloom adds it inside its attention
        cache = _self_attention_cache(arguments)
        past = 0
        layer = vars(self).get("layer_idx")
        if cache is not None and layer is not None:
            past = cache.get_seq_length(layer)
            # A cache counts tokens by what its layers hold: one number for each.
            token = hidden.new_zeros(hidden.shape[0], 1, hidden.shape[1], 1)
            cache.update(token, token, layer)
        if self.container == "tensor":
            return output
        elements = {"output": output, "none": None}
        if "bias" in self.returns:
            elements["bias"] = self._position_bias(hidden, arguments, past)
        elements |= {f"argument {name}": argument for name, argument in arguments.items()}
        values = [elements.get(name) for name in self.returns]
        return values if self.container == "list" else tuple(values)

    def _position_bias(self, hidden: Tensor, arguments: dict[str, Any], past: int) -> Any:
        """What T5 and its kin make for all layers in the first: (1, heads, queries, keys)."""
        module: Any = self
        queries = hidden.shape[1]
        if arguments.get("position_bias") is not None:
            return arguments["position_bias"]
        if "relative_attention_bias" in self._modules:
            return module.compute_bias(queries, past + queries, device=hidden.device, past_seen_tokens=past)
        keys = arguments["key_value_states"].shape[1]
        return hidden.new_zeros(1, module.n_heads, queries, keys)


def _self_attention_cache(arguments: dict[str, Any]) -> Cache | None:
    """The cache an attention module was arguments, unless it holds another sequence (cross attention)."""
    if any(isinstance(arguments.get(name), Tensor) for name in ("encoder_hidden_states", "key_value_states")):
        return None
    cache = next((value for value in arguments.values() if isinstance(value, Cache)), None)
    if isinstance(cache, EncoderDecoderCache):
        return cache.self_attention_cache
    return cache
