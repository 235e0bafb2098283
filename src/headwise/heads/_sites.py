"""`Site`: one place of a model where head outputs stand side by side."""

from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from headwise.heads._errors import UnsupportedModel


@dataclass(frozen=True)
class Site:
    """One attention layer: the module whose *input* holds its heads side by side, (..., heads × head_dim).

    Attributes:
        index: number of the site in the order of the forward pass; the `layer` of every head set and score.
        kind: "self" (encoders, and decoders that stand alone), or in an encoder-decoder "decoder"
            (self-attention of the decoder); "cross" where queries and keys come from different sequences.
        path: the output projection, as in `model.get_submodule(path)`.
        n_heads: query heads.
        head_dim: width of one head's output.
        n_groups: key/value heads; n_heads unless queries are grouped (1: multi-query attention).
        call: which call of the module within one forward pass this is; not 0 only where layers share weights
            (ALBERT).
        n_calls: calls of the module within one forward pass.
        layer_path: the block (attention and feed-forward) the site belongs to; its output is the layer's
            hidden state.
        rest: columns of the projection's input after the heads that are not attention (ConvBERT's
            convolutions).
        batch_first: whether the first axis of the projection's input is the batch; else it is the tokens.
        head_order: number of the attention head (its place in the attention maps) at each slice; None if
            slices are not made of one attention head each.
    """

    index: int
    kind: str
    path: str
    n_heads: int
    head_dim: int
    n_groups: int
    call: int = 0
    n_calls: int = 1
    layer_path: str = ""
    rest: int = 0
    batch_first: bool = True
    head_order: tuple[int, ...] | None = None

    @property
    def width(self) -> int:
        """Columns of the projection's input that are heads: n_heads × head_dim."""
        return self.n_heads * self.head_dim

    @property
    def group_size(self) -> int:
        """Query heads that share one key/value head."""
        return self.n_heads // self.n_groups

    def columns(self, head: int) -> slice:
        """Where `head` stands in the projection's input."""
        return slice(head * self.head_dim, (head + 1) * self.head_dim)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values, with the names of `headwise inspect`."""
        names = {"index": "layer", "n_heads": "heads", "n_groups": "groups"}
        values = {names.get(name, name): value for name, value in asdict(self).items()}
        del values["head_order"], values["batch_first"]
        return values


def projection_weight(module: nn.Module) -> Tensor | None:
    """The 2-D weight of a projection (a wrapper such as a LoRA layer answers with its base weight); None if
    it has none."""
    weight = getattr(module, "weight", None)
    if isinstance(weight, Tensor) and weight.ndim == 2:
        return weight
    return None


def is_plain(weight: Any) -> bool:
    """Whether a weight is numbers that can be read and cut: not quantised, sharded or offloaded."""
    if type(weight) not in (Tensor, nn.Parameter):
        return False
    return weight.is_floating_point() and weight.device.type != "meta"


def plain_weight(path: str, weight: Any) -> Tensor:
    """The weight of the module at `path`, to be read.

    Raises:
        UnsupportedModel: it is not plain.
    """
    if not is_plain(weight):
        raise UnsupportedModel(
            f"{path} keeps its weight as {type(weight).__name__} of {weight.dtype} on {weight.device}, not "
            "as plain numbers"
        )
    return weight.detach()


def input_axis(module: nn.Module) -> int:
    """Axis of the weight that runs over the projection's input: 0 for GPT-2's `Conv1D`, which stores it
    transposed; else 1."""
    base_layer = getattr(module, "base_layer", module)  # of a PEFT layer: what it wraps
    return 0 if isinstance(base_layer, Conv1D) else 1
