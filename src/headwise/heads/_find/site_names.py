"""The few things that only names tell: what a site is called, and which modules ought to have one."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from headwise.heads._find.observation import AttentionResult
from headwise.heads._remove.headless import Headless
from headwise.heads._sites import projection_weight

# What was found out about models that cannot be supported, or not wholly, where watching them says too
# little.
REASONS = {
    "xlnet": "XLNet projects with an einsum, where no module is called that could be hooked",
    "jetmoe": "JetMoE mixes attention heads as experts, each with its own output projection",
    "deepseek_v4": "DeepSeek-V4 projects heads in groups that lie along a separate axis",
    "mra": "MRA approximates attention block by block, without a softmax over keys",
    "yoso": "YOSO samples attention by hashing, without a softmax",
}
CROSS = ("cross", "encoder_attn", "encdec", "enc_dec", "src_attn")


def attention_modules(model: nn.Module) -> list[str]:
    """Innermost modules that call themselves attention, by class or by attribute, and hold at least two
    projections."""
    named = [
        path
        for path, module in model.named_modules()
        if path
        and projection_weight(module) is None  # an adapter around GPT-2's c_attn is a projection
        and "norm" not in path.rsplit(".", 1)[-1]
        and any(
            word in f"{type(module).__name__} {path.rsplit('.', 1)[-1]}".lower()
            for word in ("attention", "attn")
        )
        and sum(
            projection_weight(part) is not None and not isinstance(part, nn.Embedding)
            for part in module.modules()
        )
        >= 2
        and not any(isinstance(part, Headless) for part in module.modules())  # its heads were removed
    ]
    return [path for path in named if not any(other.startswith(f"{path}.") for other in named)]


def within(paths: list[str], path: str) -> bool:
    """Whether `path` is one of `paths` or lies below one."""
    return any(path == above or path.startswith(f"{above}.") for above in paths)


def kind_of(result: AttentionResult, path: str, config: Any, inputs: Mapping[str, Any]) -> str:
    """ "cross" if queries and keys come from different sequences, "decoder" for a decoder's self-attention in
    an encoder-decoder, else "self"."""
    own, other = (
        v.shape[1] if isinstance(v := inputs.get(name), Tensor) else None
        for name in ("decoder_input_ids", "input_ids")
    )
    told = own is not None and own != other  # by their lengths
    in_decoder = result.queries == own if told else "decoder" in path.split(".")
    if any(word in path.lower() for word in CROSS) or (told and in_decoder and result.queries != result.keys):
        return "cross"
    return "decoder" if config.is_encoder_decoder and in_decoder else "self"


def layer_of(model: nn.Module, path: str) -> str:
    """The layer a site belongs to: its nearest ancestor in a `ModuleList` of layers.

    A list whose members are of one class is a list of layers; T5 also lists the parts of one layer, which
    differ in class.
    """
    parts = path.split(".")
    lists = [
        end for end in range(len(parts) - 1, 0, -1) if isinstance(_at(model, parts[: end - 1]), nn.ModuleList)
    ]
    alike = [
        end for end in lists if len({type(child) for child in _at(model, parts[: end - 1]).children()}) == 1
    ]
    return ".".join(parts[: (alike or lists or [0])[0]])


def _at(model: nn.Module, parts: list[str]) -> nn.Module:
    return model.get_submodule(".".join(parts))
