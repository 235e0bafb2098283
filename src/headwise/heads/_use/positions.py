"""Which tokens of a pass are real, and pooling head outputs over them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.heads._sites import Site

Pooling = Literal["cls", "last", "mean", "all"]


# (batch, tokens) or (batch, tokens, dim)
TEXTS = ("input_ids", "inputs_embeds", "decoder_input_ids", "decoder_inputs_embeds")
# Axes, with the batch first
SIGNALS = {"pixel_values": 4, "pixel_values_videos": 5, "input_values": 2, "input_features": 3}
GRIDS = ("grid_thw", "image_grid_thw")  # images cut into patches that run together: (images, 3)


@dataclass(frozen=True)
class Pass:
    """What the arguments of a forward pass say about its batch.

    Attributes:
        batch: number of rows; None if no argument tells.
        lengths: how many tokens a row may have, as far as arguments tell; for projections that see all rows
            run together.
        masks: attention masks by kind of site, (batch, tokens), not zero at real tokens; None if none was
            passed.
        starts: by kind of site, how many earlier tokens come from a cache, which a mask covers too (None:
            unknown); empty without one.
        uneven: whether arguments differ in rows, as two texts with three images do.
    """

    batch: int | None = None
    lengths: frozenset[int] = frozenset()
    masks: Mapping[str, Tensor | None] = field(default_factory=dict)
    starts: Mapping[str, int | None] = field(default_factory=dict)
    uneven: bool = False
    # Found once for all layers of a pass
    _remembered: dict[Any, Tensor | None] = field(default_factory=dict, compare=False, repr=False)

    def rows(self, site: Site, x: Tensor) -> Tensor:
        """The input of a projection as (batch, tokens, heads, head_dim)."""
        batch = self.count(site, x)
        if not site.batch_first:
            x = x.transpose(0, 1)
        return x[..., : site.width].reshape(batch, -1, site.n_heads, site.head_dim)

    def count(self, site: Site, x: Tensor) -> int:
        """How many rows of the batch are in x, the input of a projection: all of them, in order, whole or cut
        up (windows).

        Raises:
            HeadwiseError: x has other rows, those of a second input, or does not show where they end.
        """
        if x.ndim == 2:
            return self.together(site, x, self.batch or 1)
        rows = x.shape[0 if site.batch_first else 1]
        if self.batch is None or rows == self.batch:
            return rows
        if self.uneven or rows % self.batch or not site.batch_first:
            raise HeadwiseError(
                f"layer {site.index} ({site.path}) sees {rows} rows in a pass of {self.batch}, so which "
                "belong together is unknown: pass as many rows of every input (a text for each image), or "
                "build Heads on the part that reads them"
            )
        return self.batch

    def together(self, site: Site, x: Tensor, batch: int) -> int:
        """Returns `batch` if x (rows × tokens, width) surely holds that many rows of one length.

        Raises:
            HeadwiseError: rows may have different lengths, as where padding is left out or images are packed.
        """
        # 1: tokens were pooled
        if batch > 1 and x.shape[0] not in {batch * length for length in (1, *self.lengths)}:
            raise HeadwiseError(
                f"layer {site.index} ({site.path}) sees {x.shape[0]} tokens of {batch} rows run together, "
                "without a visible end of each row: run rows one by one, or with padding "
                "(attn_implementation='sdpa')"
            )
        return batch

    def real(self, kind: str, tokens: int) -> Tensor | None:
        """Real tokens at sites of this kind, (batch, tokens) bool; None if all are real.

        Raises:
            HeadwiseError: the mask does not tell: it has other axes, or covers another number of tokens, as
                in models that shorten their input.
        """
        if (kind, tokens) not in self._remembered:
            self._remembered[kind, tokens] = self._real(kind, tokens)
        return self._remembered[kind, tokens]

    def _real(self, kind: str, tokens: int) -> Tensor | None:
        mask: Any = self.masks.get(kind)
        if mask is None:
            return None
        if not isinstance(mask, Tensor):  # generate() with a static cache passes masks per kind of layer
            raise _unreadable(f"that is a {type(mask).__name__}")
        if mask.ndim != 2:
            raise _unreadable(f"of shape {tuple(mask.shape)}")
        mask = mask.bool()
        start = self.starts.get(kind, 0)
        if start is None:
            mask = mask[:, -tokens:]
        elif kind in self.starts and mask.shape[1] >= start + tokens:
            mask = mask[:, start : start + tokens]  # with a static cache it may go on to all that fits
        if bool(mask.all()) or (kind == "cross" and mask.shape[1] != tokens):
            return None  # latents that read the input are all real
        if mask.shape[1] != tokens:
            raise HeadwiseError(
                f"the attention mask covers {mask.shape[1]} positions but the model made {tokens} tokens of "
                "them: record one example at a time without padding, or with pooling='all'"
            )
        return mask

    def pooled(self, pooling: Pooling, kind: str, x: Tensor) -> Tensor:
        """Takes x (batch, tokens, ...) to (batch, ...): its first real token ("cls"), its last, or the mean;
        with "all" it stays."""
        if pooling == "all":
            return x
        tokens = x.shape[1]
        real = self.real(kind, tokens)
        if real is None and pooling == "mean":
            return x.mean(1)
        if real is None:
            return x[:, 0] if pooling == "cls" else x[:, -1]
        key = (pooling, kind, tokens, x.device, x.dtype)
        if key not in self._remembered:
            dtype = x.dtype if pooling == "mean" else None
            self._remembered[key] = _weights(pooling, real).to(x.device, dtype)
        weights = self._remembered[key]
        assert weights is not None
        if pooling == "mean":
            return torch.bmm(weights[:, None], x.flatten(2)).view(x.shape[0], *x.shape[2:])
        values = x[torch.arange(x.shape[0], device=x.device), weights.clamp(min=0)]
        if ("none", kind, tokens) not in self._remembered:
            without = weights < 0
            self._remembered["none", kind, tokens] = without if bool(without.any()) else None
        empty = self._remembered["none", kind, tokens]  # rows without a real token
        if empty is None:
            return values
        return values.masked_fill(empty.view(-1, *[1] * (x.ndim - 2)), float("nan"))


def _unreadable(form: str) -> HeadwiseError:
    return HeadwiseError(
        f"an attention mask {form} does not say which tokens are real: pass one of (batch, tokens), or "
        "record with pooling='all'"
    )


def _weights(pooling: Pooling, real: Tensor) -> Tensor:
    """For "mean" the weight of every token, (batch, tokens); else the position of the first or last real
    token, (batch,).

    In a row without any real token they are NaN, or -1.
    """
    if pooling == "mean":
        return real.float() / real.float().sum(1, keepdim=True)
    if pooling == "cls":
        positions = real.int().argmax(1)
    else:
        positions = real.shape[1] - 1 - real.int().flip(1).argmax(1)
    return positions.where(real.any(1), -1)


def read_pass(arguments: Mapping[str, Any]) -> Pass:
    """Reads batch size and masks from the named arguments of a model's forward pass."""
    tensors = {name: value for name, value in arguments.items() if isinstance(value, Tensor)}
    texts = [tensors[name] for name in TEXTS if name in tensors]
    grids = [tensors[name] for name in GRIDS if name in tensors]
    signals = [
        tensors[name] for name, axes in SIGNALS.items() if name in tensors and tensors[name].ndim >= axes
    ]
    rows = [len(tensor) for tensor in (*texts, *grids, *signals)]
    lengths = {text.shape[1] for text in texts}
    lengths |= {int(grid[0].prod()) for grid in grids if bool((grid == grid[0]).all())}
    mask = text_mask = arguments.get("attention_mask")
    in_pair = any(name.startswith("decoder_") and value is not None for name, value in arguments.items())
    if in_pair or arguments.get("labels") is not None:  # a decoder makes its text of labels, or shares it
        text_mask = arguments.get("decoder_attention_mask")
    cache = arguments.get("past_key_values")
    starts: dict[str, int | None] = {}
    if cache is not None:
        starts = dict.fromkeys(("self", "decoder", "cross"), _start(cache))
        if in_pair:
            del starts["self"]  # the cache is the decoder's
    return Pass(
        batch=rows[0] if rows else None,
        lengths=frozenset(lengths),
        masks={"self": mask, "decoder": text_mask, "cross": text_mask},
        starts=starts,
        uneven=len(set(rows)) > 1,
    )


def _start(cache: Any) -> int | None:
    try:
        return cached_columns(cache)
    except HeadwiseError:  # of linear attention, say: masks then end with the pass
        return None


def cached_columns(cache: Any) -> int:
    """Columns that a cache of keys and values holds, padding included.

    Raises:
        HeadwiseError: it does not say.
    """
    if cache is None:
        return 0
    try:
        return int(cache.get_seq_length())
    except (AttributeError, ValueError) as error:
        raise HeadwiseError(
            f"a cache of type {type(cache).__name__} does not say how many tokens it holds, so positions are "
            "unknown: pass a transformers.Cache, or run the whole text in one pass"
        ) from error


def check_pooling(pooling: str) -> Pooling:
    """Returns `pooling` if it is one of "cls", "last", "mean", "all"; raises HeadwiseError otherwise."""
    if pooling not in get_args(Pooling):
        raise HeadwiseError(f"pooling is one of {', '.join(get_args(Pooling))}; got {pooling!r}")
    return pooling  # type: ignore[return-value]
