"""The model whose heads are probed: what runs, its tokenizer, its heads, and at which token they are read."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from inspect import signature
from pathlib import Path
from typing import Any

import torch

from headwise import loading, manifest
from headwise.decoders.model import MultiTaskModel, load_encoder, with_padding
from headwise.decoders.output import SavedTask
from headwise.decoders.pooling import POOLINGS, default_pooling
from headwise.errors import HeadwiseError
from headwise.heads import Heads
from headwise.opener import tokenizer_beside, trusting


@dataclass(frozen=True)
class Encoder:
    """A model ready to be recorded.

    Attributes:
        model: a transformers model without a task's head, in whatever mode it was.
        tokenizer: its tokenizer.
        heads: its heads.
        position: where head outputs are read: "cls", "last" or "mean".
        tasks: what a trained model remembers of its tasks, by name.
    """

    model: Any
    tokenizer: Any
    heads: Heads
    position: str
    tasks: Mapping[str, SavedTask] = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        return next(iter(self.model.parameters())).device

    @property
    def kept(self) -> dict[str, Any]:
        """Arguments of every pass: no key/value cache where the model would keep one."""
        return {"use_cache": False} if "use_cache" in signature(self.model.forward).parameters else {}


def open_encoder(model: Any, tokenizer: Any = None, position: str | None = None, *, trust_remote_code: bool = False) -> Encoder:
    """Opens what a user calls a model.

    Args:
        model: a folder or hub id, a live transformers model (task models lend their base model), a `MultiTaskModel`, or an `Encoder`.
        tokenizer: for live models; default: the one beside the weights the model was loaded from.
        position: "cls" (first real token), "last" (last real token) or "mean"; default: "cls" for models pre-trained by masking,
            "last" for left-to-right models, "mean" otherwise.
        trust_remote_code: run code that a folder or hub id brings along; read it first.

    Raises:
        HeadwiseError: the position is unknown, or there is no tokenizer.
    """
    if position is not None and position not in POOLINGS:
        raise HeadwiseError(f"position {position!r} is unknown; choose one of {', '.join(POOLINGS)}")
    if isinstance(model, Encoder):
        return model if position in (None, model.position) else replace(model, position=str(position))
    remembered: Mapping[str, SavedTask] = {}
    if isinstance(model, str | Path) and (Path(model) / manifest.NAME).is_file():
        place, model = model, loading.load(model)
        if not isinstance(model, MultiTaskModel):
            raise HeadwiseError(f"{place} holds a {type(model).__name__}, not one model with an encoder to probe")
    if isinstance(model, str | Path):
        with torch.random.fork_rng(), trusting(trust_remote_code):
            torch.manual_seed(
                0
            )  # a pooler that the folder lacks is drawn: the same each time, so that recordings are found again
            model, found = load_encoder(model)
        tokenizer = tokenizer or found
    elif isinstance(model, MultiTaskModel):
        remembered = model.tasks
        model, tokenizer, position = model.encoder, tokenizer or model.tokenizer, position or model.pooling
    else:
        tokenizer = tokenizer or tokenizer_beside(model)
    config = model.config
    body = model.get_encoder() if config.is_encoder_decoder else _body(model)
    with_padding(body, tokenizer)
    return Encoder(body, tokenizer, Heads(body), position or default_pooling(config), remembered)


def _body(model: Any) -> Any:
    """The model without its task's head, so that no vocabulary-wide logits are computed; wrapped models (PEFT) run as they are."""
    from transformers import PreTrainedModel

    return model.base_model if isinstance(model, PreTrainedModel) else model


def with_random_weights(encoder: Encoder, seed: int = 0) -> Encoder:
    """The same architecture with freshly drawn weights: what the architecture knows before any training (control).

    The weights are drawn as the model draws them before pre-training; the global random state is left as it was.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        fresh = type(encoder.model)(encoder.model.config)
    fresh = fresh.to(device=encoder.device, dtype=encoder.model.dtype).eval()
    return Encoder(fresh, encoder.tokenizer, Heads(fresh), encoder.position)
