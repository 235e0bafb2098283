"""Lesions other than zero: a head's output replaced by its mean over a reference set, or by that of another
example."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.heads._headset import HeadSet
from headwise.heads._reading import undisturbed
from headwise.heads._sites import Site
from headwise.heads._use.blocks import Edit
from headwise.heads._use.course import Course
from headwise.heads._use.gates import on_heads, per_row
from headwise.heads._use.positions import Pass
from headwise.heads._use.recording import Tape

if TYPE_CHECKING:
    from headwise.heads._heads import Heads

Reference = Tensor | Mapping[str, Any] | Iterable[Mapping[str, Any]]


def replacement(heads: Heads, head_set: HeadSet, how: str, reference: Reference | None, seed: int) -> Edit:
    """The edit that silences `head_set` by "mean" or "resample".

    Raises:
        HeadwiseError: `how` is something else, or the reference is missing or does not fit.
    """
    if how not in ("mean", "resample"):
        raise HeadwiseError(f"how is one of zero, mean, resample; got {how!r}")
    if reference is None:
        choices = "batches of model inputs"
        if how == "mean":
            choices += " or (layers, heads, head_dim) means"
        raise HeadwiseError(f"silencing by {how!r} needs reference=: {choices}")
    if how == "mean":
        means = reference if isinstance(reference, Tensor) else mean_outputs(heads, reference)
        shape = *heads.shape, max(site.head_dim for site in heads.sites)
        if tuple(means.shape) != shape:
            raise HeadwiseError(
                f"reference means have shape {tuple(means.shape)}; expected {shape}: (layers, heads, "
                "head_dim)"
            )
        for layer, members in head_set.layers().items():
            site = heads.sites[layer]
            _check_finite([means[layer, : site.n_heads, : site.head_dim][None]], layer, members)
        return Means(head_set, means)
    if isinstance(reference, Tensor):
        raise HeadwiseError(
            "silencing by 'resample' takes other examples: reference= batches of model inputs, not a tensor"
        )
    bank = _examples(heads, head_set, reference)
    for layer, members in head_set.layers().items():
        _check_finite(bank[layer], layer, members)
    return Resampled(head_set, bank, seed, Course(heads.model))


def _check_finite(examples: list[Tensor], layer: int, members: tuple[int, ...]) -> None:
    """Raises a HeadwiseError if what would replace a head's output, (tokens, heads, head_dim) of each
    example, is no number."""
    finite = torch.stack([example.isfinite().all(-1).all(0) for example in examples]).all(0).tolist()
    wrong = [head for head in members if not finite[head]]
    if wrong:
        raise HeadwiseError(
            f"head ({layer}, {wrong[0]}) puts out inf or NaN on the reference, which cannot stand for its "
            "output: silence it with how='zero', or run the model in a type of wider range (float32, "
            "bfloat16)"
        )


def mean_outputs(heads: Heads, batches: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> Tensor:
    """Mean output of every head over all real tokens of `batches`, (layers, heads, head_dim) in float64.

    Every token weighs the same, so the result does not depend on how examples are batched or padded. A twin
    of the model runs, in evaluation mode and outside any open context.
    """
    return mean_of(heads, reference_passes(heads, batches))


def mean_of(heads: Heads, passes: Iterable[tuple[Tape, Pass]]) -> Tensor:
    """`mean_outputs` of passes that were recorded at all positions."""
    sums = [torch.zeros(site.n_heads, site.head_dim, dtype=torch.float64) for site in heads.sites]
    counts = [0] * len(heads.sites)
    for tape, passed in passes:
        for i, site in enumerate(heads.sites):
            tokens = real_tokens(tape.layer(site.index), passed, site)  # (tokens, heads, head_dim)
            sums[i] += tokens.double().sum(0).cpu()
            counts[i] += tokens.shape[0]
    if not all(counts):
        raise HeadwiseError("the reference set is empty: give at least one batch of model inputs")
    width = max(site.head_dim for site in heads.sites)
    means = torch.full((*heads.shape, width), float("nan"), dtype=torch.float64)
    for i, site in enumerate(heads.sites):
        means[i, : site.n_heads, : site.head_dim] = sums[i] / counts[i]
    return means


def real_tokens(outputs: Tensor, passed: Pass, site: Site) -> Tensor:
    """Real tokens of outputs (batch, tokens, ...), run together: (real tokens, ...)."""
    real = passed.real(site.kind, outputs.shape[1])
    if real is None:
        return outputs.flatten(0, 1)
    return outputs[real.to(outputs.device)]


def reference_passes(
    heads: Heads, batches: Mapping[str, Any] | Iterable[Mapping[str, Any]]
) -> Iterable[tuple[Tape, Pass]]:
    """A recording of the head outputs at all tokens of each batch, with its pass."""
    if isinstance(batches, Mapping):
        batches = [batches]
    for inputs in batches:
        tape = Tape(heads.sites, "all")
        tape.needs = "tokens"
        with undisturbed(heads) as (twin,), torch.no_grad(), twin._taps.applying(tape, heads.sites):
            twin.model(**inputs)
        yield tape, tape.passed


def _examples(
    heads: Heads, head_set: HeadSet, batches: Mapping[str, Any] | Iterable[Mapping[str, Any]]
) -> dict[int, list[Tensor]]:
    """Per layer that has heads in the set: each example's head outputs at its real tokens, (real tokens,
    heads, head_dim)."""
    bank: dict[int, list[Tensor]] = {layer: [] for layer in head_set.layers()}
    for tape, passed in reference_passes(heads, batches):
        for layer, examples in bank.items():
            outputs = tape.layer(layer)  # (batch, tokens, heads, head_dim)
            real = passed.real(heads.sites[layer].kind, outputs.shape[1])
            if real is None:
                real = torch.ones(outputs.shape[:2], dtype=torch.bool)
            for output, marks in zip(outputs, real.to(outputs.device), strict=True):
                examples.append(output[marks])
    if not all(bank.values()):
        raise HeadwiseError("the reference set is empty: give at least one batch of model inputs")
    return bank


class Means:
    """Puts fixed vectors (layers, heads, head_dim) in place of the outputs of a set of heads."""

    alike = True  # for every row

    def __init__(self, head_set: HeadSet, means: Tensor) -> None:
        self.members, self.means = head_set.layers(), means

    def start(self, arguments: dict[str, Any]) -> None:
        """The same for every pass."""

    def apply(self, site: Site, x: Tensor) -> Tensor:
        """x: (..., heads × head_dim)."""
        if site.index not in self.members:
            return x
        mask = _member_mask(site, self.members[site.index], x)
        values = self.means[site.index, : site.n_heads, : site.head_dim].to(x.device, x.dtype)
        return on_heads(site, x, lambda heads: torch.where(mask, values, heads))


class Resampled:
    """Puts another example's outputs in place of those of a set of heads, token by token.

    Each prompt draws one reference example, for all its passes and beams; the t-th real token gets that
    example's t-th, starting over where it is shorter. Draws follow the order of prompts, so they depend
    neither on the batch size nor on how many passes a text takes.
    """

    needs = "tokens"

    def __init__(self, head_set: HeadSet, bank: dict[int, list[Tensor]], seed: int, course: Course) -> None:
        self.members, self.bank, self.course = head_set.layers(), bank, course
        self.generator = torch.Generator().manual_seed(seed)
        self.number = next(_numbers)
        self.drawn: list[int] = []  # the example of each prompt
        self.examples: list[int] = []  # the example of each row of the pass

    def start(self, arguments: dict[str, Any]) -> None:
        """A pass begins: its rows keep their examples, or draw some."""
        generation = self.course.generation
        self.course.start(arguments)
        batch = self.course.batch()
        begun = generation is not None and generation is self.course.generation
        if not begun:
            self.drawn = self._drawn_before() or self._draw(batch)
        if batch % len(self.drawn):
            raise HeadwiseError(
                f"a pass of {batch} rows continues {len(self.drawn)} prompts, so which row belongs to which "
                "is unknown: resample them in batches that stay as they are"
            )
        beams = batch // len(self.drawn)
        self.examples = [self.drawn[row // beams] for row in range(batch)]
        self._note(self.course.cache)

    def end(self, output: Any) -> None:
        """A pass ended: the cache that it filled keeps the examples of its rows."""
        self._note(next((value for value in _values(output) if hasattr(value, "get_seq_length")), None))

    def _draw(self, batch: int) -> list[int]:
        generation = self.course.generation
        prompts = batch
        if generation is not None and generation.rows is not None:
            prompts = generation.rows
        size = len(next(iter(self.bank.values())))
        return [int(torch.randint(size, (), generator=self.generator)) for _ in range(prompts)]

    def _drawn_before(self) -> list[int] | None:
        """The examples of a cache that was filled inside this block; copies of it have them, too."""
        if not self.course.offset:
            return None
        examples: dict[int, list[int]] = getattr(self.course.cache, NOTE, {})
        return examples.get(self.number)

    def _note(self, cache: Any) -> None:
        if cache is not None:
            setattr(cache, NOTE, {**getattr(cache, NOTE, {}), self.number: self.drawn})

    def apply(self, site: Site, x: Tensor) -> Tensor:
        """x: (..., heads × head_dim)."""
        if site.index not in self.members:
            return x
        mask = _member_mask(site, self.members[site.index], x)
        tokens = x.shape[:-1].numel() // len(self.examples)
        positions = self.course.positions(site.kind, tokens).clamp(min=0)  # (batch, tokens)
        rows = []
        for row, example in zip(positions, self.examples, strict=True):
            source = self.bank[site.index][example].to(x.device, x.dtype)  # (real tokens, heads, head_dim)
            rows.append(source[(row % source.shape[0]).to(x.device)])
        values = per_row(site, x, torch.stack(rows))  # (batch, tokens, heads, head_dim), as x has its axes
        return on_heads(site, x, lambda heads: torch.where(mask, values, heads))


NOTE = "headwise_examples"  # on a cache: by block, the examples of its rows
_numbers = count()


def _values(output: Any) -> Iterable[Any]:
    if isinstance(output, Mapping):
        return output.values()
    if isinstance(output, tuple | list):
        return output
    return ()


def _member_mask(site: Site, members: tuple[int, ...], x: Tensor) -> Tensor:
    mask = torch.zeros(site.n_heads, 1, dtype=torch.bool)
    mask[list(members)] = True
    return mask.to(x.device)  # (heads, 1)
