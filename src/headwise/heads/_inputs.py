"""A tiny input for any model: a few tokens, one small image, a moment of sound."""

import inspect
from typing import Any

import torch
from torch import Tensor, nn

ENCODER_TOKENS = 7
DECODER_TOKENS = 5  # another number, so that cross attention shows as queries ≠ keys
MAKERS = ("input_ids", "pixel_values", "pixel_values_videos", "input_values", "input_features", "bbox")


def root_of(model: nn.Module) -> nn.Module:
    """The `PreTrainedModel` behind a PEFT wrapper, or the model itself."""
    return (
        model.get_base_model()  # type: ignore[operator]
        if hasattr(model, "peft_config") and hasattr(model, "get_base_model")
        else model
    )


def device_of(model: nn.Module) -> torch.device:
    """Where a model takes its inputs: the device of its first parameter, or where accelerate brings offloaded
    ones."""
    for module in model.modules():
        place = getattr(getattr(module, "_hf_hook", None), "execution_device", None)
        if place is not None:
            return torch.device(place)
        for parameter in module.parameters(recurse=False):
            if parameter.device.type != "meta":
                return parameter.device
    return torch.device("cpu")


def tiny_inputs(model: nn.Module, batch: int, decoder_tokens: int = DECODER_TOKENS) -> dict[str, Any]:
    """Keyword arguments for one small forward pass of `model`, on its device."""
    root: Any = root_of(model)
    config, device, dtype = root.config, device_of(root), root.dtype
    accepted = inspect.signature(root.forward).parameters
    required = {name for name, parameter in accepted.items() if parameter.default is parameter.empty}
    wanted = [name for name in MAKERS if name in required or name == root.main_input_name]
    if (
        "input_ids" in accepted
        and not config.is_encoder_decoder
        and not {"pixel_values", "input_features"} & required
    ):
        wanted.append("input_ids")
    if "bbox" in accepted:
        wanted.append("bbox")
    if "pixel_values" in accepted and "input_ids" in wanted and _dual(config):
        wanted.append("pixel_values")  # CLIP and its kin: a text and an image, each in an encoder of its own
    values = {name: _make(name, config, batch) for name in dict.fromkeys(wanted)}
    if config.is_encoder_decoder and "decoder_input_ids" in accepted:
        values["decoder_input_ids"] = _tokens(config, batch, decoder_tokens)
    moved = {
        name: v.to(device, dtype) if v.is_floating_point() else v.to(device) for name, v in values.items()
    }
    return moved | ({"use_cache": False} if "use_cache" in accepted else {})


def _dual(config: Any) -> bool:
    parts = config.sub_configs
    return (
        "vision_config" in parts
        and "text_config" in parts
        and not any("image_token" in name for name in vars(config))
    )


def _make(name: str, config: Any, batch: int) -> Tensor:
    if name == "input_ids":
        return _tokens(config, batch, ENCODER_TOKENS)
    if name == "bbox":
        return torch.tensor([1, 2, 3, 4]).expand(batch, ENCODER_TOKENS, 4).clone()
    if name.startswith("pixel_values"):
        vision = getattr(config, "vision_config", config)
        frames = _first(vision, "num_frames", "frames_per_clip", default=2 if name.endswith("videos") else 0)
        return _wave(batch, *[frames] * (frames > 0), *_image(vision))
    if name == "input_values" and not hasattr(config, "num_mel_bins"):
        return _wave(batch, 4000)
    return _spectrum(config, batch)


def _wave(*shape: int) -> Tensor:
    return torch.linspace(-9, 9, torch.Size(shape).numel()).sin().view(shape)


def _first(config: Any, *names: str, default: int) -> Any:
    return next((value for name in names if (value := getattr(config, name, None)) is not None), default)


def _tokens(config: Any, batch: int, length: int) -> Tensor:
    """Distinct ordinary tokens, ending with the end-of-sequence token where there is one (BART's classifier
    reads it)."""
    text = config.get_text_config()
    size = getattr(text, "vocab_size", None) or 32
    special = {
        v
        for part in (config, text)
        for name, v in vars(part).items()
        if name.endswith(("token_id", "token_index"))
    }
    usable = [i for i in range(size - 1, -1, -1) if i not in special][: batch * length] or [0]
    ids = torch.tensor([usable[i % len(usable)] for i in range(batch * length)]).view(batch, length)
    end = getattr(text, "eos_token_id", None)
    if isinstance(end, int) and 0 <= end < size:
        ids[:, -1] = end
    return ids


def _image(vision: Any) -> tuple[int, int, int]:
    size = _first(vision, "image_size", "crop_size", default=32)
    height, width = (size, size) if isinstance(size, int) else (size[0], size[1])
    return _first(vision, "num_channels", "in_channels", default=3), height, width


def _spectrum(config: Any, batch: int) -> Tensor:
    """A spectrogram: (batch, bins, frames) of the one length Whisper and its kin take, else (batch, frames,
    bins)."""
    part = getattr(config, "encoder_config", None) or getattr(config, "audio_config", None) or config
    bins = _first(
        part,
        "input_feat_per_channel",
        "feature_projection_input_dim",
        "num_mel_bins",
        "input_dim",
        default=80,
    )
    frames = getattr(part, "max_source_positions", None)
    if (
        frames is not None
        and not hasattr(part, "input_feat_per_channel")
        and not hasattr(part, "feature_projection_input_dim")
    ):
        return _wave(batch, bins, 2 * frames)
    return _wave(batch, _first(part, "max_length", default=64), bins)
