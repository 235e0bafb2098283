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
    paths = [path for path, module in model.named_modules() if path and _is_attention(path, module)]
    return [path for path in paths if not any(deeper.startswith(f"{path}.") for deeper in paths)]


def _is_attention(path: str, module: nn.Module) -> bool:
    attribute = path.rsplit(".", 1)[-1]
    names = f"{type(module).__name__} {attribute}".lower()
    if "norm" in attribute or not ("attention" in names or "attn" in names):
        return False
    if projection_weight(module) is not None:  # an adapter around GPT-2's c_attn is a projection
        return False
    projections = 0
    for child in module.modules():
        if isinstance(child, Headless):  # its heads were removed
            return False
        projections += projection_weight(child) is not None and not isinstance(child, nn.Embedding)
    return projections >= 2


def within(paths: list[str], path: str) -> bool:
    """Whether `path` is one of `paths` or lies below one."""
    return any(path == above or path.startswith(f"{above}.") for above in paths)


def kind_of(result: AttentionResult, path: str, config: Any, inputs: Mapping[str, Any]) -> str:
    """ "cross" if queries and keys come from different sequences, "decoder" for a decoder's self-attention in
    an encoder-decoder, else "self"."""
    decoder_ids, encoder_ids = inputs.get("decoder_input_ids"), inputs.get("input_ids")
    by_length, in_decoder = False, "decoder" in path.split(".")
    if isinstance(decoder_ids, Tensor):
        tokens = decoder_ids.shape[1]
        by_length = not isinstance(encoder_ids, Tensor) or encoder_ids.shape[1] != tokens
        if by_length:
            in_decoder = result.queries == tokens
    if any(word in path.lower() for word in CROSS):
        return "cross"
    if by_length and in_decoder and result.queries != result.keys:
        return "cross"
    return "decoder" if config.is_encoder_decoder and in_decoder else "self"


def layer_of(model: nn.Module, path: str) -> str:
    """The layer a site belongs to: its nearest ancestor in a `ModuleList` of layers.

    A list whose members are of one class is a list of layers; T5 also lists the parts of one layer, which
    differ in class.
    """
    names, nearest = path.split("."), ""
    for end in range(len(names) - 1, 0, -1):
        siblings = model.get_submodule(".".join(names[: end - 1]))
        if isinstance(siblings, nn.ModuleList):
            layer_path = ".".join(names[:end])
            if len(set(map(type, siblings))) == 1:
                return layer_path
            nearest = nearest or layer_path
    return nearest
