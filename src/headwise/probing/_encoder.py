"""The model whose heads are probed: what runs, its tokenizer, its heads, and at which token they are read."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any

import torch

from headwise.errors import HeadwiseError
from headwise.heads import Heads, root_of
from headwise.models import POOLINGS, SavedTask, open_model


@dataclass(frozen=True)
class Encoder:
    """A model ready to be recorded.

    Attributes:
        model: a transformers model without a task's head, in whatever mode it was.
        tokenizer: its tokenizer.
        heads: its heads.
        pooling: where head outputs are read: "cls", "last" or "mean".
        tasks: what a trained model remembers of its tasks, by name.
    """

    model: Any
    tokenizer: Any
    heads: Heads
    pooling: str
    tasks: Mapping[str, SavedTask] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        model: Any,
        tokenizer: Any = None,
        pooling: str | None = None,
        *,
        trust_remote_code: bool = False,
        device: Any = None,
    ) -> "Encoder":
        """The encoder of what a user calls a model, with its heads found.

        Args:
            model: whatever `headwise.models.open_model` takes, or an `Encoder`.
            tokenizer: for live models; default: the one beside the weights the model was loaded from.
            pooling: "cls" (first real token), "last" (last real token) or "mean"; default: "cls" for models
                pre-trained by masking, "last" for left-to-right models, "mean" otherwise.
            trust_remote_code: run the code that a folder or hub id contains; read that code first.
            device: as `open_model` has it.

        Raises:
            HeadwiseError: the pooling is unknown, there is no such model, or no tokenizer.
        """
        if pooling is not None and pooling not in POOLINGS:
            raise HeadwiseError(f"pooling {pooling!r} is unknown; choose one of {', '.join(POOLINGS)}")
        if isinstance(model, Encoder):
            if device not in (None, "auto"):
                model.model.to(device)
            return model if pooling is None else replace(model, pooling=pooling)
        opened = open_model(
            model,
            need="encoder",
            tokenizer=tokenizer,
            trust_remote_code=trust_remote_code,
            device=device,
        )
        return cls(
            opened.encoder,
            tokenizer or opened.tokenizer,
            Heads(opened.encoder),
            pooling or opened.pooling,
            opened.tasks,
        )

    @property
    def device(self) -> torch.device:
        return next(iter(self.model.parameters())).device

    @property
    def no_cache(self) -> dict[str, Any]:
        """Arguments of every pass: no key/value cache where the model would keep one."""
        return {"use_cache": False} if "use_cache" in signature(self.model.forward).parameters else {}


def with_random_weights(encoder: Encoder, seed: int = 0) -> Encoder:
    """The same architecture with freshly drawn weights: what the architecture knows before any training
        (control).

    The weights are drawn as the model draws them before pre-training; the global random state is left as it
    was.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        root: Any = root_of(encoder.model)
        fresh = type(root)(root.config)
    fresh = fresh.to(device=encoder.device, dtype=encoder.model.dtype).eval()
    return Encoder(fresh, encoder.tokenizer, Heads(fresh), encoder.pooling)
