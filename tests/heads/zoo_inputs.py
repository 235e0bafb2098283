"""Inputs of families that take more than one kind of input, or images cut into patches."""

import inspect
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel


def wave(*shape: int) -> Tensor:
    """Numbers between -1 and 1 that differ from place to place."""
    return torch.linspace(-9, 9, torch.Size(shape).numel()).sin().view(shape)


def image_patches(model: PreTrainedModel) -> dict[str, Any] | None:
    """Two images of 4 × 4 patches, for vision encoders that take patches and the grids they come from."""
    parameters = inspect.signature(model.forward).parameters
    name = next((name for name in ("hidden_states", "pixel_values") if name in parameters), None)
    if name is None or "grid_thw" not in parameters:
        return None
    return {"grid_thw": torch.tensor([[1, 4, 4], [1, 4, 4]]), name: wave(32, patch_width(model.config))}


def patch_width(vision: Any) -> int:
    """Numbers in one patch."""
    channels = getattr(vision, "in_channels", None) or getattr(vision, "num_channels", 3)
    return channels * vision.patch_size**2 * getattr(vision, "temporal_patch_size", 1)


def image_and_text(model: PreTrainedModel) -> dict[str, Any]:
    """A few words around one image, for models that put image features in the place of a special token."""
    config = model.config
    vision = config.vision_config
    token = getattr(config, "image_token_id", None) or config.image_token_index
    accepted = inspect.signature(model.get_image_features).parameters
    extra: dict[str, Any] = {}
    if "image_grid_thw" in accepted:
        pixels, extra["image_grid_thw"] = wave(16, patch_width(vision)), torch.tensor([[1, 4, 4]])
    else:
        size = [vision.image_size] * 2 if isinstance(vision.image_size, int) else list(vision.image_size)
        pixels = wave(1, getattr(vision, "num_channels", 3), *size)
        if "image_sizes" in accepted and accepted["image_sizes"].default is inspect.Parameter.empty:
            extra["image_sizes"] = torch.tensor([size])
    with torch.no_grad():
        output = model.get_image_features(pixels, **extra)
    features = getattr(output, "pooler_output", output)
    count = sum(
        tensor.numel() // tensor.shape[-1]
        for tensor in ([features] if isinstance(features, Tensor) else features)
    )
    ids = torch.tensor([[5, 6, 7, *[token] * count, 8, 9]])
    if "mm_token_type_ids" in inspect.signature(model.forward).parameters:
        extra["mm_token_type_ids"] = (ids == token).int()
    return {"input_ids": ids, "pixel_values": pixels, **extra, "use_cache": False}
