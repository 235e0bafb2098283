"""A tiny input for any model: a few tokens, one small image, a moment of sound."""

import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headwise.heads._restoration import forked

if TYPE_CHECKING:
    from headwise.heads._heads import Heads

ENCODER_TOKENS = 7
DECODER_TOKENS = 5  # another number, so that cross attention shows as queries ≠ keys
INPUTS = ("input_ids", "pixel_values", "pixel_values_videos", "input_values", "input_features", "bbox")


def root_of(model: nn.Module) -> nn.Module:
    """The `PreTrainedModel` behind a PEFT wrapper, or the model itself."""
    if hasattr(model, "peft_config") and hasattr(model, "get_base_model"):
        model = model.get_base_model()  # type: ignore[operator]
    return model


def device_of(model: nn.Module) -> torch.device:
    """Where a model takes its inputs: the device of its first parameter, or where accelerate brings offloaded
    ones."""
    for module in model.modules():
        execution_device = getattr(getattr(module, "_hf_hook", None), "execution_device", None)
        if execution_device is not None:
            return torch.device(execution_device)
        for parameter in module.parameters(recurse=False):
            if parameter.device.type != "meta":
                return parameter.device
    return torch.device("cpu")


def on_device(model: nn.Module, example: Mapping[str, Any]) -> dict[str, Any]:
    """The same keyword arguments where the model is now."""
    root: Any = root_of(model)
    inputs = dict(example)
    for name, value in example.items():
        if isinstance(value, Tensor):
            inputs[name] = value.to(root.device)
    return inputs


def run_example(heads: "Heads", model: nn.Module) -> Any:
    """One pass of a twin of the heads' model, or of a smaller one, on their example; what is random in it
    comes out alike each time."""
    with torch.no_grad(), forked(model, heads.draws):
        if heads.draws:
            torch.manual_seed(0)
        return model(**on_device(model, heads.example))


def tensors_in(output: Any) -> Iterator[Tensor]:
    """Every floating tensor in a model's output, in order."""
    if isinstance(output, Mapping):
        output = list(output.values())
    if isinstance(output, Tensor) and output.is_floating_point():
        yield output
    elif isinstance(output, list | tuple):
        for member in output:
            yield from tensors_in(member)


def tiny_inputs(model: nn.Module, batch: int, decoder_tokens: int = DECODER_TOKENS) -> dict[str, Any]:
    """Keyword arguments for one small forward pass of `model`, on its device."""
    root: Any = root_of(model)
    config, device, dtype = root.config, device_of(root), root.dtype
    accepted = inspect.signature(root.forward).parameters
    required = {name for name, parameter in accepted.items() if parameter.default is parameter.empty}
    names = [name for name in INPUTS if name in required or name == root.main_input_name]
    takes_text = "input_ids" in accepted and not config.is_encoder_decoder
    if takes_text and required.isdisjoint(("pixel_values", "input_features")):
        names.append("input_ids")
    if "bbox" in accepted:
        names.append("bbox")
    if "pixel_values" in accepted and "input_ids" in names and _has_two_encoders(config):
        names.append("pixel_values")
    inputs: dict[str, Any] = {name: _input(name, config, batch) for name in dict.fromkeys(names)}
    if config.is_encoder_decoder and "decoder_input_ids" in accepted:
        inputs["decoder_input_ids"] = _tokens(config, batch, decoder_tokens)
    for name, tensor in inputs.items():
        inputs[name] = tensor.to(device, dtype if tensor.is_floating_point() else None)
    if "use_cache" in accepted:
        inputs["use_cache"] = False
    return inputs


def _has_two_encoders(config: Any) -> bool:
    """Whether a model takes a text and an image, each in an encoder of its own (CLIP and its kin)."""
    if not {"vision_config", "text_config"} <= config.sub_configs.keys():
        return False
    return not any("image_token" in name for name in vars(config))


def _input(name: str, config: Any, batch: int) -> Tensor:
    if name == "input_ids":
        return _tokens(config, batch, ENCODER_TOKENS)
    if name == "bbox":
        return torch.tensor([1, 2, 3, 4]).expand(batch, ENCODER_TOKENS, 4).clone()
    if name.startswith("pixel_values"):
        vision = getattr(config, "vision_config", config)
        frames = _first(vision, "num_frames", "frames_per_clip", default=2 if name.endswith("videos") else 0)
        shape = (frames, *_image(vision)) if frames > 0 else _image(vision)
        return _wave(batch, *shape)
    if name == "input_values" and not hasattr(config, "num_mel_bins"):
        return _wave(batch, 4000)
    return _spectrum(config, batch)


def _wave(*shape: int) -> Tensor:
    return torch.linspace(-9, 9, torch.Size(shape).numel()).sin().view(shape)


def _first(config: Any, *names: str, default: int) -> Any:
    for name in names:
        value = getattr(config, name, None)
        if value is not None:
            return value
    return default


def _tokens(config: Any, batch: int, length: int) -> Tensor:
    """Distinct ordinary tokens, ending with the end-of-sequence token where there is one (BART's classifier
    reads it)."""
    text = config.get_text_config()
    size = getattr(text, "vocab_size", None) or 32
    special = set()
    for numbers in (vars(config), vars(text)):
        special |= {numbers[name] for name in numbers if name.endswith(("token_id", "token_index"))}
    ordinary = [number for number in range(size - 1, -1, -1) if number not in special] or [0]
    ids = torch.tensor([ordinary[i % len(ordinary)] for i in range(batch * length)]).view(batch, length)
    end = getattr(text, "eos_token_id", None)
    if isinstance(end, int) and 0 <= end < size:
        ids[:, -1] = end
    return ids


def _image(vision: Any) -> tuple[int, int, int]:
    size = _first(vision, "image_size", "crop_size", default=32)
    if isinstance(size, int):
        size = (size, size)
    return _first(vision, "num_channels", "in_channels", default=3), size[0], size[1]


def _spectrum(config: Any, batch: int) -> Tensor:
    """A spectrogram: (batch, bins, frames) of the one length Whisper and its kin take, else (batch, frames,
    bins)."""
    audio = getattr(config, "encoder_config", None) or getattr(config, "audio_config", None) or config
    bins = _first(
        audio,
        "input_feat_per_channel",
        "feature_projection_input_dim",
        "num_mel_bins",
        "input_dim",
        default=80,
    )
    positions = getattr(audio, "max_source_positions", None)
    names = ("input_feat_per_channel", "feature_projection_input_dim")
    if positions is not None and not any(hasattr(audio, name) for name in names):
        return _wave(batch, bins, 2 * positions)
    return _wave(batch, _first(audio, "max_length", default=64), bins)
