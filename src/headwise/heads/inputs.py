"""A tiny input for any model: a few tokens, one small image, a moment of sound."""

import inspect
from typing import Any

import torch
from torch import Tensor, nn

ENCODER_TOKENS = 7
DECODER_TOKENS = 5  # another number, so that cross attention shows as queries ≠ keys


def root_of(model: nn.Module) -> nn.Module:
    """The `PreTrainedModel` behind a PEFT wrapper, or the model itself."""
    return model.get_base_model() if hasattr(model, "peft_config") and hasattr(model, "get_base_model") else model  # type: ignore[operator]


def tiny_inputs(model: nn.Module, batch: int, decoder_tokens: int = DECODER_TOKENS) -> dict[str, Any]:
    """Keyword arguments for one small forward pass of `model`, on its device."""
    root: Any = root_of(model)
    config = root.config
    accepted = inspect.signature(root.forward).parameters
    device, dtype = root.device, root.dtype
    values: dict[str, Any] = {}
    main = root.main_input_name
    if main == "pixel_values":
        values[main] = _image(config, batch).to(device, dtype)
    elif main == "input_values":
        values[main] = torch.linspace(-1, 1, batch * 4000).sin().view(batch, 4000).to(device, dtype)
    elif main == "input_features":
        values[main] = _spectrum(config, batch).to(device, dtype)
    if main == "input_ids" or ("input_ids" in accepted and not config.is_encoder_decoder):
        values["input_ids"] = _tokens(config, batch, ENCODER_TOKENS).to(device)
    if config.is_encoder_decoder and "decoder_input_ids" in accepted:
        values["decoder_input_ids"] = _tokens(config, batch, decoder_tokens).to(device)
    if "use_cache" in accepted:
        values["use_cache"] = False
    return values


def _tokens(config: Any, batch: int, length: int) -> Tensor:
    """Distinct ordinary tokens, ending with the end-of-sequence token where there is one (BART's classifier reads it)."""
    text = config.get_text_config()
    size = getattr(text, "vocab_size", None) or 32
    special = {
        getattr(text, name, None) for name in ("pad_token_id", "bos_token_id", "eos_token_id", "sep_token_id", "mask_token_id")
    }
    usable = [i for i in range(size - 1, -1, -1) if i not in special][: batch * length] or [0]
    ids = torch.tensor([usable[i % len(usable)] for i in range(batch * length)]).view(batch, length)
    end = getattr(text, "eos_token_id", None)
    if isinstance(end, int) and 0 <= end < size:
        ids[:, -1] = end
    return ids


def _image(config: Any, batch: int) -> Tensor:
    vision = getattr(config, "vision_config", config)
    size = getattr(vision, "image_size", None) or 32
    height, width = (size, size) if isinstance(size, int) else (size[0], size[1])
    channels = getattr(vision, "num_channels", None) or 3
    return torch.linspace(-1, 1, batch * channels * height * width).sin().view(batch, channels, height, width)


def _spectrum(config: Any, batch: int) -> Tensor:
    """A log-mel spectrogram (batch, mel bins, frames), of the one length the model takes (Whisper) or a short one."""
    bins = getattr(config, "num_mel_bins", 80)
    frames = 2 * getattr(config, "max_source_positions", 20)
    return torch.linspace(-1, 1, batch * bins * frames).sin().view(batch, bins, frames)
