"""Calls of `generate()`: where their prompts end, for blocks that treat prompt and generated tokens
differently.

The passes of `generate()` do not say so: a prompt may come in pieces or partly from a cache, and generated
tokens may come in the first pass. Its arguments do. While such a block is open, `generate` of that one model
notes them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, update_wrapper
from inspect import signature
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin

from headwise.heads._inputs import root_of
from headwise.heads._sites import Site
from headwise.heads._use.blocks import Edit
from headwise.heads._use.positions import cached_columns, read_pass

if TYPE_CHECKING:
    from headwise.heads._heads import Heads

# The first pass is not the prompt
PIECES = ("prefill_chunk_size", "prompt_lookup_num_tokens", "assistant_early_exit", "assistant_model")


class Generation:
    """One call of a model's `generate()`, read from its arguments.

    Attributes:
        model: whose call it is.
        rows: number of prompts, before they are repeated for beams; None if no argument tells.
        prompt: columns of the prompt, padding and what is cached included; None: the first pass of each
            sequence has them all.
        mask: which columns of each prompt are real, (rows, columns) bool; those beyond it are. None if it is
            unknown.
        hidden: why the arguments do not tell where the prompt ends; "" if they do.
    """

    def __init__(self, model: Any, arguments: dict[str, Any]) -> None:
        main_input = model.main_input_name
        passed = {name: value for name, value in arguments.items() if value is not None}
        arguments = {main_input: passed.get("inputs"), **passed}
        self.model, self.hidden = model, _obstacle(model, arguments)
        self.rows = read_pass(arguments).batch
        self.prompt: int | None = None
        self.mask: Tensor | None = None
        self._decoder_text: Tensor | None = None
        if _writes_its_own(model, arguments):
            return
        if model.config.is_encoder_decoder:
            text = arguments.get("decoder_input_ids")
            if text is None and main_input != "input_ids":
                text = arguments.get("input_ids")
            self._decoder_text = text
            self.prompt = 1 if text is None else text.shape[1]
            self.mask = arguments.get("decoder_attention_mask", torch.ones(self.rows or 1, 0)).bool().cpu()
        else:
            text = arguments.get("inputs_embeds", arguments.get("input_ids"))
            self.prompt = _prompt_columns(arguments, text)
            self.mask = _prompt_mask(model, arguments, text, self.prompt)

    def prompt_of(self, tokens: Tensor, offset: int) -> int:
        """Columns of the prompt of a sequence whose first pass has these tokens (rows, columns, ...), behind
        `offset` cached columns."""
        if self.prompt is None:
            return offset + tokens.shape[1]
        text = self._decoder_text
        if text is not None and not offset and tokens.ndim == 2 and bool(tokens[0, 0] != text[0, 0]):
            return self.prompt + 1  # generate() put a start token in front of the decoder's text
        return self.prompt

    def real(self, rows: int, columns: int) -> Tensor | None:
        """Which of a pass's columns so far are real, (rows, columns) bool; None if no argument says."""
        if self.mask is None or rows % len(self.mask):
            return None
        mask = self.mask.repeat_interleave(rows // len(self.mask), 0)[:, :columns]
        return torch.cat((mask, mask.new_ones(rows, columns - mask.shape[1])), 1)


def _prompt_columns(arguments: dict[str, Any], text: Any) -> int:
    """Columns of the prompt of a model without an encoder."""
    if not isinstance(text, Tensor):
        return 1  # generate() begins with a start token
    mask, columns = arguments.get("attention_mask"), text.shape[1]
    cached = cached_columns(arguments.get("past_key_values"))
    if cached and "inputs_embeds" not in arguments and mask is not None and mask.shape[1] != columns:
        return cached + columns  # only what follows the cache was passed
    return columns


def _prompt_mask(model: Any, arguments: dict[str, Any], text: Any, columns: int) -> Tensor | None:
    mask = arguments.get("attention_mask")
    if isinstance(mask, Tensor):
        if mask.ndim != 2 or mask.shape[1] != columns:
            return None
        return mask.bool().cpu()
    if not isinstance(text, Tensor):
        return torch.ones(1, 0, dtype=torch.bool)
    padding = _setting(model, arguments, "pad_token_id")
    if text.ndim == 2 and padding is not None and bool((text == padding).any()):
        return None  # generate() makes a mask of it, or not
    return torch.ones(text.shape[0], 0, dtype=torch.bool)


def _obstacle(model: Any, arguments: dict[str, Any]) -> str:
    """Why arguments do not tell where the prompts of all passes end."""
    if _setting(model, arguments, "guidance_scale") not in (None, 1):
        return "guidance_scale= also runs the model on texts without the prompt"
    pieces = [name for name in PIECES if _setting(model, arguments, name)]
    if pieces and _writes_its_own(model, arguments):
        return (
            f"{type(model).__name__} has a generate() of its own, and with {pieces[0]}= its first pass is "
            "not the prompt"
        )
    return ""


def _writes_its_own(model: Any, arguments: dict[str, Any]) -> bool:
    """Whether prompts are made inside the call (Whisper), or by a function of the user's, or shortened."""
    custom = arguments.get("custom_generate") is not None or bool(_setting(model, arguments, "token_healing"))
    return custom or type(model).generate is not GenerationMixin.generate


def _setting(model: Any, arguments: dict[str, Any], name: str) -> Any:
    if arguments.get(name):
        return arguments[name]
    for config in (arguments.get("generation_config"), model.generation_config):
        if getattr(config, name, None) is not None:
            return getattr(config, name)
    return None


_running: ContextVar[tuple[Generation, ...]] = ContextVar("headwise_generations", default=())
_lock = threading.Lock()


class Watch:
    """Stands for `generate` on one model and notes the arguments of its outermost call.

    Args:
        model: whose `generate` it is.
        before: what the model had in its place, of its own; None: its class's method.
    """

    headwise = True  # copies and twins of the model do without it

    def __init__(self, model: Any, before: Any) -> None:
        self.model, self.before, self.blocks = model, before, 1
        update_wrapper(self, before if before is not None else type(model).generate)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the model's own `generate`."""
        generate = self.before
        if generate is None:
            generate = partial(type(self.model).generate, self.model)
        if generation_of(self.model) is not None:
            return generate(*args, **kwargs)
        positional = zip(signature(generate).parameters, args, strict=False)
        generation = Generation(self.model, {**dict(positional), **kwargs})
        token = _running.set((*_running.get(), generation))
        try:
            return generate(*args, **kwargs)
        finally:
            _running.reset(token)


def generation_of(model: nn.Module | None) -> Generation | None:
    """The call of this model's `generate()` that is running in this thread or task: the outermost one, since
    drafts call it again."""
    return next((generation for generation in _running.get() if generation.model is model), None)


@contextmanager
def following(heads: Heads, edit: Edit, sites: Sequence[Site]) -> Iterator[None]:
    """Applies an edit that depends on where prompts end: `heads`' model notes the arguments of its
    `generate()` inside."""
    model = root_of(heads.model)
    watched = isinstance(model, GenerationMixin)
    if watched:
        _watch(model)
    try:
        with heads._taps.applying(edit, sites):
            yield
    finally:
        if watched:
            _unwatch(model)


def _watch(model: nn.Module) -> None:
    """Puts a `generate` that notes its arguments on this one model; blocks of all threads share it."""
    with _lock:
        present = vars(model).get("generate")
        if isinstance(present, Watch):
            present.blocks += 1
        else:
            vars(model)["generate"] = Watch(model, present)


def _unwatch(model: nn.Module) -> None:
    with _lock:
        present = vars(model).get("generate")
        if not isinstance(present, Watch):
            return
        present.blocks -= 1
        if not present.blocks:
            vars(model).pop("generate")
            if present.before is not None:
                vars(model)["generate"] = present.before
