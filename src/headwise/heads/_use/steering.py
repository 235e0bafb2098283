"""Steering: vectors added to head outputs while a model runs, at all tokens, at the last ones, or at those it
generates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from headwise.errors import HeadwiseError
from headwise.heads._inputs import root_of
from headwise.heads._sites import Site
from headwise.heads._use.course import Course, with_rows
from headwise.heads._use.generation import following

if TYPE_CHECKING:
    from headwise.heads._heads import Heads

Directions = Mapping[tuple[int, int], Any] | Tensor
WHERE = ("all", "last", "generated")


@contextmanager
def steered(
    heads: Heads, directions: Directions, scale: float | Tensor, tokens: str, prompt: int | None
) -> Iterator[None]:
    """See `Heads.steered`."""
    if tokens not in WHERE:
        raise HeadwiseError(f"tokens is one of {', '.join(WHERE)}; got {tokens!r}")
    vectors = read_directions(heads, directions, scale)
    root: Any = root_of(heads.model)
    if tokens == "generated" and root.config.is_encoder_decoder:
        encoder = [layer for layer in vectors if heads.sites[layer].kind == "self"]
        if encoder:
            raise HeadwiseError(
                f"layer {encoder[0]} belongs to the encoder of this {type(root).__name__}, which generates "
                "no tokens: steer the decoder's layers, or "
                'tokens="all"'
            )
    if tokens != "all" and not heads.rows_apart:
        raise HeadwiseError(
            f'{type(root).__name__} does not keep the rows of a batch apart: steer tokens="all"'
        )
    edit = Steered(vectors, tokens, Course(heads.model, prompt))
    with following(heads, edit, [heads.sites[layer] for layer in vectors]):
        yield
        if not edit.met:
            raise HeadwiseError(
                f'no pass inside this block had a token to steer at (tokens="{tokens}"): generated tokens '
                "are those that generate() adds to the prompt and reads again, so it must generate at least "
                "two; outside generate(), prompt= says where the prompt ends"
            )


def read_directions(heads: Heads, directions: Directions, scale: float | Tensor) -> dict[int, Tensor]:
    """Scaled directions of each layer that has any, {layer: (heads, head_dim)}.

    Raises:
        HeadwiseError: they do not fit the model, or hold NaN.
    """
    shape = *heads.shape, max(site.head_dim for site in heads.sites)
    if isinstance(directions, Mapping):
        table = torch.zeros(shape)
        for layer, head in heads.check(directions):
            vector, head_dim = torch.as_tensor(directions[layer, head]), heads.sites[layer].head_dim
            if vector.shape != (head_dim,):
                raise HeadwiseError(
                    f"the direction of head ({layer}, {head}) has shape {tuple(vector.shape)}; expected "
                    f"({head_dim},)"
                )
            table = table.to(torch.promote_types(table.dtype, vector.dtype))
            table[layer, head, : len(vector)] = vector.cpu()
    elif isinstance(directions, Tensor) and directions.shape == shape:
        table = directions
    else:
        form = type(directions).__name__
        if isinstance(directions, Tensor):
            form = f"shape {tuple(directions.shape)}"
        raise HeadwiseError(
            f"directions are {{(layer, head): vector}} or a tensor {shape} for this model; got {form}"
        )
    factor = torch.as_tensor(scale, device=table.device)
    if factor.ndim and factor.shape != heads.shape:
        raise HeadwiseError(f"scale is one number, or one per head {heads.shape}; got {tuple(factor.shape)}")
    if factor.ndim:
        factor = factor[..., None]
    table = table * factor
    vectors = {}
    for site in heads.sites:
        vector = table[site.index, : site.n_heads, : site.head_dim]
        if not bool(vector.isfinite().all()):
            raise HeadwiseError("a direction, or the scale of one, is not a finite number")
        if bool(vector.any()):
            vectors[site.index] = vector
    if not vectors:
        raise HeadwiseError("all directions are zero: nothing would be steered")
    return vectors


class Steered:
    """Adds vectors {layer: (heads, head_dim)} to head outputs."""

    needs = ""

    def __init__(self, vectors: dict[int, Tensor], tokens: str, course: Course) -> None:
        self.vectors, self.tokens = vectors, tokens
        self.alike = tokens == "all"  # for every row
        self.met = self.alike  # whether there was a token to steer at
        if not self.alike:
            self.needs = "tokens"
        self.course = course

    def start(self, arguments: dict[str, Any]) -> None:
        """A pass begins."""
        if not self.alike:
            self.course.start(arguments)

    def apply(self, site: Site, x: Tensor) -> Tensor:
        """x: (..., heads × head_dim)."""
        if site.index not in self.vectors:
            return x
        vector = self.vectors[site.index].to(x.device, x.dtype)  # (heads, head_dim)
        if self.alike:
            return x + pad(vector.flatten(), (0, site.rest))
        rows = self.course.passed.rows(site, x)  # (batch, tokens, heads, head_dim)
        selected = self.course.selected(self.tokens, site.kind, rows.shape[1])  # (batch, tokens)
        if not bool(selected.any()):
            return x
        self.met = True
        return with_rows(site, x, torch.where(selected.to(x.device)[..., None, None], rows + vector, rows))
