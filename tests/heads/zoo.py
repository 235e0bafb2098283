"""Tiny random models of every architecture family in the installed transformers, built from its configuration
class."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import torch
from torch import nn
from transformers import CONFIG_MAPPING, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES, model_type_to_module_name
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES
from zoo_inputs import image_and_text, image_patches
from zoo_table import CHANGES, EXAMPLES, SMALL

LISTS = ("layer_types", "layers_block_type", "block_types", "mlp_layer_types", "hybrid_layer_pattern")
LARGEST = 20_000_000  # parameters


def families() -> list[str]:
    """Every model type that transformers can build from a configuration."""
    return sorted(CONFIG_MAPPING_NAMES)


def build(family: str) -> PreTrainedModel:
    """A tiny random model of one family, in evaluation mode.

    Raises:
        Exception: whatever transformers raises where the family cannot be built small, or needs a library
            that is missing.
    """
    config = small_config(family)
    make = _maker(family, config)
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in make(config).parameters())
    if size > LARGEST:
        raise ValueError(f"its smallest form here has {size / 1e6:.0f} M parameters")
    torch.manual_seed(0)
    model = make(small_config(family)).eval()
    _enliven(model)
    return model


def small_config(family: str) -> PreTrainedConfig:
    """A small configuration of one family."""
    default = CONFIG_MAPPING[family]()
    return type(default)(**shrunk(default))


def shrunk(config: PreTrainedConfig) -> dict[str, Any]:
    """Arguments that make a small configuration of the same kind as `config`, sub-configurations included."""
    values = config.to_dict()
    small = {
        name: value
        for name, value in SMALL.items()
        if isinstance(values.get(name), int) and not isinstance(values[name], bool)
    }
    heads, groups = values.get("num_attention_heads"), values.get("num_key_value_heads")
    if isinstance(heads, int) and isinstance(groups, int) and groups < heads:
        small["num_key_value_heads"] = 1 if groups == 1 else 2  # grouped queries stay grouped
    if "qk_rope_head_dim" in values:
        small.pop("head_dim", None)  # follows from its parts
    if isinstance(values.get("conv_dim"), list | tuple):
        small |= {
            "conv_dim": [16] * len(values["conv_dim"]),
            "num_conv_pos_embeddings": 16,
            "num_conv_pos_embedding_groups": 2,
        }
    _few_layers(values, small)
    _few_tokens(values, small)
    for name in config.sub_configs:
        inner = getattr(config, name, None)
        if isinstance(inner, PreTrainedConfig):
            small[name] = {**shrunk(inner), **({"model_type": inner.model_type} if inner.model_type else {})}
    changes = CHANGES.get(config.model_type, {})
    for name, value in changes.items():
        if isinstance(value, dict) and isinstance(small.get(name), dict):
            small[name] = {**small[name], **value}
        else:
            small[name] = value
    return {name: value for name, value in small.items() if value is not ...}


def _few_layers(values: dict[str, Any], small: dict[str, Any]) -> None:
    """Lists with one entry a layer keep one of each kind, and at least two."""
    length = small.get("num_hidden_layers", 2)
    lists = {
        name: list(values[name]) for name in LISTS if isinstance(values.get(name), list) and values[name]
    }
    kinds = {name: list(dict.fromkeys(entries)) for name, entries in lists.items()}
    length = max([length, *map(len, kinds.values())])
    for name, few in kinds.items():
        small[name] = (few * length)[:length]
        small["num_hidden_layers"] = length


def _few_tokens(values: dict[str, Any], small: dict[str, Any]) -> None:
    """Special tokens lie inside the small vocabulary."""
    usual = {
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
        "sep_token_id": 3,
    }
    number = 98
    for name, value in values.items():
        if not name.endswith(("token_id", "token_index", "forced_eos_token_id")) or not isinstance(
            value, int | list
        ):
            continue
        if isinstance(value, list) or value >= 98:
            small[name] = usual.get(name, number)
            number -= name not in usual


def _maker(family: str, config: PreTrainedConfig) -> Any:
    if family in MODEL_MAPPING_NAMES:
        return AutoModel.from_config
    module = importlib.import_module(
        f"transformers.models.{model_type_to_module_name(family)}.modeling_{model_type_to_module_name(family)}"
    )
    fitting = [
        kind
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, PreTrainedModel)
        and kind.config_class is type(config)
        and kind.forward is not nn.Module.forward
        and not kind.__name__.endswith("PreTrainedModel")
    ]
    if not fitting:
        raise ValueError("no model class goes with its configuration alone")
    best = min(
        fitting,
        key=lambda kind: (not kind.__name__.endswith(("Model", "Encoder", "Decoder")), len(kind.__name__)),
    )
    return best


def _enliven(model: nn.Module) -> None:
    """Parameters that start at zero or one (gates, scales, biases) get small random values, so that nothing
    is hidden by them."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if (
                parameter.is_floating_point()
                and (parameter.std() if parameter.numel() > 1 else parameter.new_zeros(())) < 1e-4
            ):
                parameter.add_(torch.randn(parameter.shape, generator=generator).to(parameter) * 0.05)


def kind(model: PreTrainedModel) -> str:
    """What a model takes in: "text", "vision", "speech", "several" of them, or "other"."""
    names = model.config.sub_configs
    if sum(any(word in name for name in names) for word in ("text", "vision", "audio")) > 1:
        return "several"
    name = model.main_input_name
    if name == "input_ids":
        return "text"
    return {"p": "vision", "i": "speech"}.get(name[0], "other")


def example(family: str, model: PreTrainedModel) -> dict[str, Any] | None:
    """Inputs for families whose input cannot be guessed; None for the rest."""
    if family in EXAMPLES:
        return EXAMPLES[family](model)
    patches = image_patches(model)
    if patches is None and kind(model) == "several":
        try:
            return image_and_text(model)
        except Exception:  # text alone, then; the page says what that leaves out
            return None
    return patches
