"""`Tape`: what each head put out, and each layer's hidden state, pooled as the pass goes by."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from headwise.errors import HeadwiseError
from headwise.heads._hooks import Hooks
from headwise.heads._sites import Site
from headwise.heads._use.attention import QueryRows
from headwise.heads._use.blocks import in_backward
from headwise.heads._use.positions import Pass, Pooling, read_pass
from headwise.heads._use.taps import Taps


class Tape:
    """Recorded head outputs; passes inside one block follow each other along the batch axis.

    Args:
        sites: the model's sites.
        pooling: "cls", "last", "mean" (over real tokens), or "all" tokens.
        detach: cut recorded tensors from the autograd graph.
        queries: which rows of attention to keep; None: none, or whole maps.
    """

    changes = False

    def __init__(
        self, sites: Sequence[Site], pooling: Pooling, detach: bool = True, queries: QueryRows | None = None
    ) -> None:
        self.sites, self.pooling, self.detach, self.queries = tuple(sites), pooling, detach, queries
        self._heads: dict[int, list[Tensor]] = {site.index: [] for site in sites}
        self._hidden: dict[int, list[Tensor]] = {site.index: [] for site in sites}
        self._maps: dict[int, list[Tensor]] = {site.index: [] for site in sites}
        # By layer, beside its outputs
        self._passes: dict[int, list[Pass]] = {site.index: [] for site in sites}
        self.needs = "" if pooling == "all" and queries is None else "tokens"
        self._layer_axis = 2 if pooling == "all" else 1
        self._pass = self._last = Pass()
        self._latest: Tensor | None = None  # attention maps on their way to a projection
        self._ended = self._failed = 0  # passes that ended well, or by an exception

    def start(self, arguments: dict[str, Any]) -> None:
        """A forward pass begins."""
        self._pass = self._last = read_pass(arguments)
        self._latest = None
        if self.queries is not None:
            self.queries.start(arguments)

    def end(self, output: Any) -> None:
        """A forward pass ended (by an exception: without output): what comes next past the model is none of
        it."""
        self._pass = Pass()
        if output is None:
            self._failed += 1
        else:
            self._ended += 1

    def apply(self, site: Site, x: Tensor) -> Tensor:
        """Keeps the head outputs of `site`, from the input of its projection, and returns it untouched."""
        if not in_backward():  # not when gradient checkpointing runs the layer again
            rows = self._pass.rows(site, x)  # (batch, tokens, heads, head_dim)
            self._keep(self._heads, site, self._pass.pooled(self.pooling, site.kind, rows))
            self._passes[site.index].append(self._pass)
            if self.queries is not None:
                self._latest = self.queries.take(site, *rows.shape[:2])
            if self._latest is not None:
                self._keep_map(site, self._latest)
                self._latest = None
        return x

    def seen(self, probabilities: Tensor) -> Tensor:
        """Attention maps appear just before their projection is called: the latest are those of its site."""
        self._latest = probabilities
        return probabilities

    def hidden_at(self, site: Site, output: Any) -> None:
        """Keeps the output of the layer that `site` belongs to."""
        if not in_backward():
            state: Tensor = output if isinstance(output, Tensor) else output[0]
            # (batch, tokens, dim)
            rows = state.reshape(self._pass.batch or state.shape[0], -1, state.shape[-1])
            self._keep(self._hidden, site, self._pass.pooled(self.pooling, site.kind, rows))

    def pooled(self, state: Tensor) -> Tensor:
        """A state (batch, tokens, dim) of the present or latest pass, pooled as the tape does."""
        return self._last.pooled(self.pooling, self.sites[-1].kind, state)

    @property
    def passed(self) -> Pass:
        """The present or latest pass."""
        return self._last

    def _keep_map(self, site: Site, probabilities: Tensor) -> None:
        # (batch, heads, queries, keys)
        maps = probabilities.reshape(-1, site.n_heads, *probabilities.shape[-2:])
        order = site.head_order
        if order is not None and order != tuple(range(site.n_heads)):
            maps = maps[:, list(order)]
        self._keep(self._maps, site, maps)

    def _keep(self, store: dict[int, list[Tensor]], site: Site, value: Tensor) -> None:
        # Pooling may return a view: copied, so that the whole pass is not kept alive (nor changed later in
        # place).
        store[site.index].append(value.detach().clone() if self.detach else value)

    def clear(self) -> None:
        """Forgets all passes so far, to record a stream in one block."""
        stores: tuple[dict[int, list[Any]], ...] = (self._heads, self._hidden, self._maps, self._passes)
        for store in stores:
            for passes in store.values():
                passes.clear()
        self._ended = self._failed = 0

    def layer(self, index: int) -> Tensor:
        """Head outputs of one layer: (batch, heads, head_dim), with pooling "all" (batch, tokens, heads,
        head_dim)."""
        self._check_passes()
        return _joined(self._heads[index], "head outputs", index)

    def _check_passes(self, together: bool = False) -> None:
        """Raises a HeadwiseError if rows of a failed pass stand among others, or, to be seen together, layers
        of a stack were not all in the same passes."""
        if self._ended and self._failed:
            raise HeadwiseError(
                "a forward pass inside this block failed, and its rows are on the tape beside those of "
                "others: call tape.clear() after it, or record each pass in a block of its own"
            )
        if not together:
            return
        by_stack: dict[str, list[Pass]] = {}
        for site in self.sites:
            passes, stack = self._passes[site.index], site.layer_path.rpartition(".")[0]
            if passes and list(map(id, by_stack.setdefault(stack, passes))) != list(map(id, passes)):
                raise HeadwiseError(
                    f"layer {site.index} ({site.path}) was not in the same passes as the layers beside it, "
                    "so their rows do not belong together (layers dropped in training, an early exit): "
                    "record in evaluation mode, or read layers one by one, tape.layer(index)"
                )

    def passes(self, layer: int) -> list[tuple[Tensor, Pass]]:
        """Head outputs of one layer pass by pass, each with what its arguments say about its rows."""
        self.layer(layer)  # says so if there are none
        return list(zip(self._heads[layer], self._passes[layer], strict=True))

    @property
    def outputs(self) -> Tensor:
        """Head outputs (batch, layers, heads, head_dim), with pooling "all" (batch, tokens, layers, heads,
        head_dim).

        Where layers differ in heads, head size or tokens, the rest is NaN.
        """
        self._check_passes(together=True)
        return _stack([self.layer(site.index) for site in self.sites], self._layer_axis)

    @property
    def hidden(self) -> Tensor:
        """Each layer's output (batch, layers, dim), with pooling "all" (batch, tokens, layers, dim).

        Sites of one layer (the self and cross attention of a decoder) repeat it; NaN as in `outputs`.
        """
        self._check_passes(together=True)
        content = "hidden states (record with hidden=True)"
        layers = [_joined(self._hidden[site.index], content, site.index) for site in self.sites]
        return _stack(layers, self._layer_axis)

    @property
    def attention(self) -> tuple[Tensor, ...]:
        """One attention map per layer, (batch, heads, queries, keys), rows summing to 1 over keys.

        Passes follow each other along the batch, as everywhere, padded with NaN to the longest; `steps` has
        them one by one.
        """
        self._check_passes(together=True)
        content = "attention maps (record with attention=True)"
        return tuple(_joined(self._maps[site.index], content, site.index) for site in self.sites)

    def steps(self, layer: int) -> tuple[Tensor, ...]:
        """Attention maps of one layer pass by pass, each (batch, heads, queries, keys): in `generate()` the
        prompt, then each token."""
        return tuple(self._maps[layer])


@contextmanager
def watch_hidden(tape: Tape, taps: Taps) -> Iterator[None]:
    """Puts every layer's output on `tape`, while it is open on `taps`."""
    hooks = Hooks()
    try:
        for path in dict.fromkeys(site.layer_path for site in tape.sites):
            members = [site for site in tape.sites if site.layer_path == path]
            hooks.after(taps.model.get_submodule(path), _layer_hook(tape, taps, members))
        yield
    finally:
        hooks.remove()


def _layer_hook(tape: Tape, taps: Taps, members: Sequence[Site]) -> Any:
    first_call = [site for site in members if site.call == 0]

    def hook(module: nn.Module, args: Any, output: Any) -> None:
        if not taps.acting(tape):  # a pass of another thread
            return
        if members[0].n_calls == 1:
            for site in first_call:
                tape.hidden_at(site, output)
        else:  # a shared layer: the next of its sites that this pass has not reached yet
            seen = [len(tape._hidden[site.index]) for site in members]
            tape.hidden_at(members[seen.index(min(seen))], output)

    return hook


def _joined(passes: list[Tensor], content: str, layer: int) -> Tensor:
    if not passes:
        raise HeadwiseError(
            f"there are no {content} of layer {layer} on this tape: run the model inside the block"
        )
    if len(passes) == 1:
        return passes[0]
    return torch.cat(_padded(passes, free=0))


def _stack(layers: list[Tensor], axis: int) -> Tensor:
    return torch.stack([layer.to(layers[0].device) for layer in _padded(layers)], dim=axis)


def _padded(tensors: list[Tensor], free: int | None = None) -> list[Tensor]:
    """Tensors padded with NaN to a common shape, axis `free` excepted."""
    axes = range(tensors[0].ndim)
    sizes = [max(tensor.shape[axis] for tensor in tensors) for axis in axes]
    padded = []
    for tensor in tensors:
        gaps = []  # of each axis before and after it, the last axis first
        for axis in reversed(axes):
            gaps += [0, 0 if axis == free else sizes[axis] - tensor.shape[axis]]
        if any(gaps):
            tensor = pad(tensor, gaps, value=float("nan"))
        padded.append(tensor)
    return padded
