"""Attention maps: whole ones by eager attention, or the rows of some queries, recomputed from q and k as they
enter fused attention, so that nothing quadratic is ever made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from headwise.errors import HeadwiseError
from headwise.heads._find.observation import Watcher
from headwise.heads._inputs import root_of
from headwise.heads._sites import Site
from headwise.heads._use.course import Course

if TYPE_CHECKING:
    from headwise.heads._use.recording import Tape

Queries = str | Sequence[int] | Tensor

VISIBLE_ATTENTION = ("eager", "sdpa")  # implementations whose calls can be watched
# by id: configurations in open blocks, the implementation they had before the first, and how many blocks
_switched: dict[int, tuple[Any, Any, int]] = {}
_lock = threading.Lock()


@contextmanager
def implementation(model: nn.Module, name: str, instead_of: Callable[[str], bool]) -> Iterator[None]:
    """Attention by implementation `name` inside the block, if any part of the model now has one that
    `instead_of` accepts.

    Once the last such block has ended, whichever thread's it is, every part has its own back.
    """
    # Outermost first
    configs = [module.config for module in model.modules() if isinstance(module, PreTrainedModel)]
    root: Any = root_of(model)
    with _lock:
        for config in configs:
            _, before, blocks = _switched.get(id(config), (config, config._attn_implementation, 0))
            _switched[id(config)] = config, before, blocks + 1
    try:
        with _lock:
            present = {config._attn_implementation for config in configs} - {None}
            if any(map(instead_of, present)):
                root.set_attn_implementation(name)
        yield
    finally:
        with _lock:
            for config in configs:  # setting an outer one also sets those inside, which follow
                _, before, blocks = _switched.pop(id(config))
                if blocks > 1:
                    _switched[id(config)] = config, before, blocks - 1
                elif config._attn_implementation != before:
                    config._attn_implementation = before


def eager(model: nn.Module) -> AbstractContextManager[None]:
    """Attention written out in full inside the block."""
    return implementation(model, "eager", lambda present: present != "eager")


def visible(model: nn.Module) -> AbstractContextManager[None]:
    """Attention that can be watched inside the block: flash and flex attention give way to sdpa."""
    return implementation(model, "sdpa", lambda present: present not in VISIBLE_ATTENTION)


@contextmanager
def maps_on(tape: Tape, model: nn.Module, sites: Sequence[Site]) -> Iterator[None]:
    """Puts the attention maps of every site on `tape`.

    Raises:
        HeadwiseError: some layer's slices are not one attention map each.
    """
    check_maps(sites)
    with eager(model), Watcher(on_probabilities=tape.seen):
        yield


@dataclass(frozen=True)
class Call:
    """One call of fused attention: what it was given.

    Attributes:
        query, key: (batch, heads, queries, dim) and (batch, key heads, keys, dim), after rotary positions.
        mask: bool (True: may look) or added to scores; axes as in `scaled_dot_product_attention`.
        causal: whether a query sees only keys up to itself; the last query is the last key if `at_end`, else
            the first is the first.
        scale: of scores; default 1/√dim.
        softcap: scores become softcap · tanh(score ÷ softcap).
        window: a query sees keys less than this many tokens away.
    """

    query: Tensor
    key: Tensor
    mask: Tensor | None = None
    causal: bool = False
    at_end: bool = False
    scale: float | None = None
    softcap: float | None = None
    window: int | None = None

    @classmethod
    def from_sdpa(
        cls,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Call:
        """From the arguments of torch's `scaled_dot_product_attention`."""
        return cls(query, key, attn_mask, is_causal, False, scale)

    @classmethod
    def from_flash(
        cls, module: Any, query: Tensor, key: Tensor, mask: Tensor | None, options: dict[str, Any]
    ) -> Call:
        """From the arguments of a flash attention of transformers: the mask covers keys, (batch, keys)."""
        names = ("s_aux", "cu_seq_lens_q", "cache", "position_bias")
        obstacles = [name for name in names if options.get(name) is not None]
        if mask is not None and mask.ndim != 2:
            obstacles.append(f"a mask {tuple(mask.shape)}")
        if obstacles:
            raise HeadwiseError(
                f"{type(module).__name__} runs flash attention with {obstacles[0]}, from which rows of "
                'attention are not recomputed: model.set_attn_implementation("sdpa") or "eager" first'
            )
        causal = options.get("is_causal")
        if causal is None:
            causal = getattr(module, "is_causal", True)
        return cls(
            query,
            key,
            mask=None if mask is None else mask[:, None, None, -key.shape[-2] :].bool(),
            causal=bool(causal),
            at_end=True,
            scale=options.get("scaling"),
            softcap=options.get("softcap"),
            window=options.get("sliding_window"),
        )

    def unpacked(self, batch: int, heads: int) -> Call:
        """The call with one row a head: for one query, transformers from 5.23 on packs the heads that share
        keys as if they were queries, (batch, key heads, heads per key head, dim)."""
        shape = (batch, heads, 1, self.query.shape[-1])
        if self.query.shape == shape or self.query.shape[:-1].numel() != batch * heads:
            return self
        mask = self.mask
        if mask is not None and mask.ndim == 4 and mask.shape[1:3] == self.query.shape[1:3]:
            mask = mask.reshape(-1, heads, 1, mask.shape[-1])
        return replace(self, query=self.query.reshape(shape), mask=mask)

    def rows(self, columns: Tensor) -> Tensor:
        """Attention of the queries in `columns` (batch, n), over all keys: (batch, heads, n, keys)."""
        batch, n = columns.shape
        query, key = self.query, self.key
        if query.ndim == 3:
            query = query.reshape(batch, -1, *query.shape[-2:])
        if key.ndim == 3:
            key = key.reshape(batch, -1, *key.shape[-2:])
        kind = torch.promote_types(query.dtype, torch.float32)  # as eager attention softmaxes
        heads, groups, keys, dim = query.shape[1], *key.shape[1:3], query.shape[-1]
        columns = columns.to(query.device)
        # (batch, heads, n, dim)
        rows = query.gather(2, columns[:, None, :, None].expand(-1, heads, -1, dim)).to(kind)
        scores = rows.reshape(batch, groups, heads // groups * n, -1) @ key.to(kind).transpose(-2, -1)
        scores = scores.view(batch, heads, n, keys) * (dim**-0.5 if self.scale is None else self.scale)
        if self.softcap is not None:
            scores = (scores / self.softcap).tanh() * self.softcap
        if self.causal or self.window is not None:
            places = columns  # of the queries among the keys
            if self.at_end:
                places = columns + (keys - query.shape[2])
            ahead = torch.arange(keys, device=columns.device) - places[..., None]  # (batch, n, keys)
            visible = torch.ones_like(ahead, dtype=torch.bool)
            if self.causal:
                visible = ahead <= 0
            if self.window is not None:
                visible = visible & (ahead.abs() < self.window)
            scores = scores.masked_fill(~visible[:, None], float("-inf"))
        if self.mask is not None:
            mask = self._mask_rows(self.mask, columns)
            if mask.dtype == torch.bool:
                scores = scores.masked_fill(~mask, float("-inf"))
            else:
                scores = scores + mask
        return scores.softmax(-1).nan_to_num()  # queries that may look nowhere have no attention

    def _mask_rows(self, mask: Tensor, columns: Tensor) -> Tensor:
        """The mask of the queries in `columns`, (batch, 1 or heads, n or 1, keys)."""
        batch = len(columns)
        if mask.ndim == 3 and self.query.ndim == 3 and mask.shape[0] not in (1, batch):
            mask = mask.view(batch, -1, *mask.shape[1:])
        elif mask.ndim == 3 and self.query.ndim == 3:
            mask = mask[:, None]
        while mask.ndim < 4:
            mask = mask[None]
        if mask.shape[2] == 1:
            return mask
        return _query_rows(mask.expand(batch, -1, -1, -1), columns)


def _query_rows(maps: Tensor, columns: Tensor) -> Tensor:
    """Of maps (batch, heads, queries, keys) the rows of the queries in `columns` (batch, n): (batch, heads,
    n, keys)."""
    return maps[torch.arange(len(columns), device=columns.device)[:, None], :, columns].transpose(1, 2)


class QueryRows:
    """Which queries' attention is kept, and the attention call that is on its way to a projection.

    Args:
        queries: "last": the last real token of each pass; "generated": each generated token; or positions
            among the real tokens of a row, negative ones from the end of the prompt.
        course: where the tokens of each pass stand.
    """

    def __init__(self, queries: Queries, course: Course) -> None:
        if isinstance(queries, str):
            if queries not in ("last", "generated"):
                raise HeadwiseError(
                    f'attention is True, "last", "generated" or a list of positions; got {queries!r}'
                )
        else:
            positions = torch.as_tensor(queries).cpu()
            if positions.ndim != 1 or positions.is_floating_point() or not positions.numel():
                raise HeadwiseError(
                    f"attention of chosen queries takes positions such as [0, 7, -1]; got {queries!r}"
                )
            queries = positions
        self.queries: str | Tensor = queries
        self.course = course
        self.latest: Tensor | Call | None = None

    def start(self, arguments: dict[str, Any]) -> None:
        """A pass begins."""
        self.course.start(arguments)
        self.latest = None

    def seen(self, probabilities: Tensor) -> Tensor:
        """Attention written out in full, by a model that does so itself."""
        self.latest = probabilities
        return probabilities

    def called(self, *args: Any, **kwargs: Any) -> None:
        """A call of `scaled_dot_product_attention`."""
        self.latest = Call.from_sdpa(*args, **kwargs)

    def take(self, site: Site, batch: int, tokens: int) -> Tensor | None:
        """The rows of the attention that was last seen, (batch, heads, n, keys), NaN where a row has no such
        query; None if none has.

        Raises:
            HeadwiseError: no attention was seen, or not with one query per token.
        """
        columns = self._columns(site.kind, tokens)  # (batch, n)
        latest, self.latest = self.latest, None
        if not columns.numel():
            return None
        if isinstance(latest, Call) and tokens == 1:
            latest = latest.unpacked(batch, site.n_heads)
        shape = torch.Size()
        if latest is not None:
            shape = latest.query.shape if isinstance(latest, Call) else latest.shape
        if latest is None or shape[-2] != tokens or shape[:-2].numel() != batch * site.n_heads:
            attention = f"one of shape {tuple(shape)} was seen" if shape else "none was seen"
            raise HeadwiseError(
                f"layer {site.index} ({site.path}) has {site.n_heads} heads for {batch} rows of {tokens} "
                f"tokens, and no attention to match: {attention}. Record whole maps, attention=True, or none"
            )
        if isinstance(latest, Call):
            rows = latest.rows(columns.clamp(min=0))
        else:
            maps = latest.reshape(batch, site.n_heads, *shape[-2:])
            rows = _query_rows(maps, columns.clamp(min=0).to(maps.device))
        if bool((columns < 0).any()):
            rows = rows.masked_fill((columns < 0).to(rows.device)[:, None, :, None], float("nan"))
        return rows

    def _columns(self, kind: str, tokens: int) -> Tensor:
        """The columns of this pass that are kept, (batch, n); -1 where a row has fewer."""
        if isinstance(self.queries, str) and self.queries == "last":
            return self.course.positions(kind, tokens).argmax(1)[:, None]
        new = torch.arange(tokens) >= self.course.repeated(kind)
        if isinstance(self.queries, Tensor):
            columns = self.course.columns(kind, tokens, self.queries[None])
            columns = columns.where(new[columns.clamp(min=0)], -1)
            # Only a pass that continues may be left out
            begins = bool(new.all()) and not self.course.earlier(kind)
            if begins or bool((columns >= 0).any()):
                return columns
            return columns[:, :0]
        generated = self.course.selected("generated", kind, tokens) & new
        order = torch.arange(tokens).where(generated, tokens).sort(1).values
        order = order[:, : int(generated.sum(1).max())]
        return order.where(order < tokens, -1)


def check_maps(sites: Sequence[Site]) -> None:
    """Raises a HeadwiseError if some layer's slices are not one attention map each."""
    unclear = [site for site in sites if site.head_order is None]
    if unclear:
        raise HeadwiseError(
            f"layer {unclear[0].index} ({unclear[0].path}) has no attention map per head: its heads are made "
            "of several softmaxes, or in an unknown order; record without attention="
        )


_listening: ContextVar[QueryRows | None] = ContextVar("headwise_attention_rows", default=None)
_wrapped: dict[str, int] = {}  # flash attention by name -> open blocks that listen to it


@contextmanager
def rows_on(rows: QueryRows, model: nn.Module, sites: Sequence[Site]) -> Iterator[None]:
    """Shows `rows` every attention call of this thread, by whatever implementation the model has.

    Raises:
        HeadwiseError: some layer's slices are not one attention map each, or an implementation cannot be
            followed.
    """
    check_maps(sites)
    models = [module for module in model.modules() if isinstance(module, PreTrainedModel)]
    names = {str(inner.config._attn_implementation) for inner in models} - {"eager", "sdpa", "None"}
    strange = [name for name in names if "flash" not in name or name not in ALL_ATTENTION_FUNCTIONS]
    if strange:
        raise HeadwiseError(
            f"{type(root_of(model)).__name__} attends by {strange[0]!r}, whose queries and keys are not "
            "followed: "
            'model.set_attn_implementation("sdpa") first'
        )
    token = _listening.set(rows)
    try:
        with _listened(names), Watcher(on_probabilities=rows.seen, on_fused=rows.called):
            yield
    finally:
        _listening.reset(token)


@contextmanager
def _listened(names: set[str]) -> Iterator[None]:
    """Flash attention shows its arguments to the listener of its thread while any block is open; then it is
    what it was."""
    with _lock:
        for name in names:
            if not _wrapped.get(name):
                ALL_ATTENTION_FUNCTIONS[name] = _showing(ALL_ATTENTION_FUNCTIONS[name])
            _wrapped[name] = _wrapped.get(name, 0) + 1
    try:
        yield
    finally:
        with _lock:
            for name in names:
                _wrapped[name] -= 1
                if not _wrapped[name]:
                    before = ALL_ATTENTION_FUNCTIONS[name].__wrapped__
                    del ALL_ATTENTION_FUNCTIONS[name]
                    if ALL_ATTENTION_FUNCTIONS.get(name) is not before:  # it had been set for this process
                        ALL_ATTENTION_FUNCTIONS[name] = before


def _showing(attention: Callable[..., Any]) -> Any:
    def shown(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Any = None,
        *args: Any,
        **options: Any,
    ) -> Any:
        listener = _listening.get()
        if listener is not None:
            listener.latest = Call.from_flash(module, query, key, mask, options)
        return attention(module, query, key, value, mask, *args, **options)

    shown.__wrapped__ = attention  # type: ignore[attr-defined]
    return shown
