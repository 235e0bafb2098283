"""What a head's weights say alone: its W_Q, W_K, W_V and W_O, eigenvalues of its circuits, and how it composes with earlier heads.

W_QK = W_Qᵀ W_K and W_OV = W_O W_V stand for the head's two circuits (Elhage et al. 2021). Nothing of the size of the vocabulary squared
is formed: the eigenvalues of AB other than 0 are those of BA, so those of W_U W_O · W_V W_E are those of the small product
W_V (W_E W_U) W_O, (head_dim × head_dim). Biases, positions and the scales of norms are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor, nn

from headwise.heads import (
    Heads,
    Site,
    UnsupportedModel,
    on_device,
    ownership,
    plain_weight,
    root_of,
    undisturbed,
    weight_axes,
)

QUERY = {"q_proj", "query", "q", "q_lin", "q_attn", "query_proj", "linear_q"}
KEY = {"k_proj", "key", "k", "k_lin", "key_proj", "linear_k"}
VALUE = {"v_proj", "value", "v", "v_lin", "value_proj", "linear_v"}
COMPOSITIONS = ("q-composition", "k-composition", "v-composition")
DRAWS = 8  # random rotations behind the chance level of compositions


@dataclass(frozen=True)
class Circuits:
    """The weights of the heads of one site, in float64.

    Attributes:
        site: the layer.
        query, key, value: (heads, head_dim, width of what they read); heads of one group have the same keys and values.
        output: (heads, width, head_dim).
    """

    site: Site
    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor


def circuits(heads: Heads) -> list[Circuits]:
    """W_Q, W_K, W_V and W_O of every head.

    The rows of a head are found from gradients (`ownership`), and its values are checked: attention times x W_Vᵀ is what it puts out.

    Raises:
        UnsupportedModel: which weights make queries, keys and values is not known.
    """
    rows: dict[int, dict[str, Any]] = {site.index: {} for site in heads.sites}
    for owned in ownership(heads):
        path, _, leaf = owned.name.rpartition(".")
        if leaf == "weight" and not owned.output and weight_axes(heads.model.get_submodule(path)):
            if isinstance(heads.model.get_submodule(path), nn.Embedding):
                continue  # position biases
            for index, marks in owned.owners.items():
                rows[index][path] = marks
    found = []
    for site in heads.sites:
        parts = _parts(heads.model, site, rows[site.index])
        projection = heads.model.get_submodule(site.path)
        axes = weight_axes(projection)
        weight: Any = projection.weight
        if axes is None or not isinstance(weight, Tensor) or weight.ndim != 2:
            raise UnsupportedModel(f"{site.path} has no plain weight")
        output = (
            plain_weight(site.path, weight).movedim(axes[1], 0)[: site.width].double().cpu()
        )  # (heads × head_dim, width)
        output = output.view(site.n_heads, site.head_dim, -1).transpose(1, 2)
        query, key, value = (torch.stack([part[kind] for part in parts]) for kind in range(3))
        found.append(Circuits(site, query, key, value, output))
    _check_values(heads, found, rows)
    return found


def _parts(model: nn.Module, site: Site, rows: dict[str, Tensor]) -> list[list[Tensor]]:
    """For each head its rows of W_Q, W_K and W_V."""
    result = []
    for head in range(site.n_heads):
        own = {}
        for path, marks in rows.items():
            module = model.get_submodule(path)
            axes, weight = weight_axes(module), module.weight
            assert axes is not None
            assert isinstance(weight, Tensor)
            if weight.ndim != 2:
                raise UnsupportedModel(f"{path} is a convolution")
            own[path] = (
                plain_weight(path, weight)
                .movedim(axes[0], 0)[marks[:, head].nonzero()[:, 0].to(weight.device)]
                .double()
                .cpu()
            )
        result.append(_named(site, own))
    return result


def _named(site: Site, own: dict[str, Tensor]) -> list[Tensor]:
    """[W_Q, W_K, W_V] of one head, told by the names of separate projections, or by the order of rows of a fused one."""
    if len(own) == 1:
        ((path, weight),) = own.items()
        if (
            weight.shape[0] == 3 * site.head_dim
        ):  # every fused layout has a head's queries before its keys before its values
            return list(torch.split(weight, site.head_dim))
        raise UnsupportedModel(f"{path} makes {weight.shape[0]} numbers for a head of {site.head_dim}")
    found: dict[int, Tensor] = {}
    for path, weight in own.items():
        name = path.removesuffix(".base_layer").rpartition(".")[2]
        kind = next((number for number, names in enumerate((QUERY, KEY, VALUE)) if name in names), None)
        if kind is not None and kind not in found:
            found[kind] = weight
        elif kind is None and weight.shape[0] == 2 * site.head_dim:  # keys and values fused
            found[1], found[2] = torch.split(weight, site.head_dim)
        else:
            raise UnsupportedModel(f"whether {path} makes queries, keys or values is not known")
    if (
        sorted(found) != [0, 1, 2]
        or found[0].shape[0] != found[1].shape[0]
        or found[2].shape[0] != site.head_dim
    ):
        raise UnsupportedModel(
            f"layer {site.index} has no projection of its own for each of queries, keys and values: {list(own)}"
        )
    return [found[kind] for kind in range(3)]


def _check_values(heads: Heads, found: Sequence[Circuits], rows: dict[int, dict[str, Tensor]]) -> None:
    """Raises unless attention times x W_Vᵀ, plus the bias of values, is what each head puts out in a small pass."""
    seen: dict[str, list[Tensor]] = {}
    with undisturbed(heads) as (twin,):
        handles = []
        for path in {path for own in rows.values() for path in own}:

            def note(module: nn.Module, args: Any, output: Any, path: str = path) -> None:
                seen.setdefault(path, []).append(args[0].detach().double().cpu())

            handles.append(twin.model.get_submodule(path).register_forward_hook(note))
        try:
            with torch.no_grad(), twin.recorded("all", attention=True) as tape:
                twin.model(**on_device(twin.model, heads.example))
        finally:
            for handle in handles:
                handle.remove()
    for one, maps in zip(found, tape.attention, strict=True):
        site = one.site
        reads = [
            states[min(site.call, len(states) - 1)] for path in rows[site.index] if (states := seen.get(path))
        ]
        given = next(
            (
                x
                for x in reads
                if x.ndim == 3 and x.shape[1] == maps.shape[-1] and x.shape[-1] == one.value.shape[-1]
            ),
            None,
        )
        if given is None:
            raise UnsupportedModel(f"what the values of layer {site.index} are made of was not seen")
        made = torch.einsum("bhqk,bkd,hed->bqhe", maps.double().cpu(), given, one.value)
        put = tape.of(site.index).double().cpu()
        rest = put - made  # the bias of values: attention sums to 1, so it is the same at every query
        if not torch.allclose(
            rest, rest[:1, :1].expand_as(rest), rtol=0, atol=1e-3 * max(1.0, float(put.abs().max()))
        ):
            raise UnsupportedModel(
                f"the heads of layer {site.index} output something other than attention times W_V x"
            )


def eigen_score(matrix: Tensor) -> Tensor:
    """Σλ ÷ Σ|λ| over the eigenvalues of matrices (..., n, n): 1 if all are positive, 0 if they cancel or are 0."""
    values = torch.linalg.eigvals(matrix)
    size = values.abs().sum(-1)
    return torch.where(size > 0, values.sum(-1).real / size, 0.0)


def circuit_scores(
    heads: Heads, found: Sequence[Circuits]
) -> tuple[dict[str, NDArray[np.float64]], dict[str, str]]:
    """ "copying" and "matching" of every head, (layers, heads), and notes on what is not defined."""
    root: Any = root_of(heads.model)
    notes: dict[str, str] = {}
    blank = np.full(heads.shape, np.nan)
    scores = {"copying": blank.copy(), "matching": blank.copy()}
    embedding = (
        plain_weight("the embedding", root.get_input_embeddings().weight).double().cpu()
    )  # (vocabulary, width)
    unembedding: Any = root.get_output_embeddings() if hasattr(root, "get_output_embeddings") else None
    unembedded = (
        None if unembedding is None else plain_weight("the unembedding", unembedding.weight).double().cpu()
    )
    size = embedding.shape[0] if unembedded is None else min(len(embedding), len(unembedded))
    both = None if unembedded is None else embedding[:size].T @ unembedded[:size]  # W_E W_U, (width, width)
    own = embedding.T @ embedding
    for one in found:
        place = one.site.index, slice(one.site.n_heads)
        fits = one.value.shape[-1] == embedding.shape[1]
        if both is None:
            notes["copying"] = (
                f"{type(root).__name__} has no unembedding: open it with its language-model head"
            )
        elif not fits or one.output.shape[1] != both.shape[1]:
            notes["copying"] = "embeddings have another width than the layers"
        else:
            scores["copying"][place] = eigen_score(one.value @ both @ one.output).numpy()
        if fits and one.query.shape[-1] == embedding.shape[1] and one.key.shape[-1] == embedding.shape[1]:
            scores["matching"][place] = eigen_score(one.key @ own @ one.query.transpose(1, 2)).numpy()
        else:
            notes["matching"] = "embeddings have another width than the layers"
    return scores, notes


def _stream(site: Site, kind: str, paired: bool) -> str:
    """Which residual stream a head reads its queries ("q"), keys ("k") or values ("v") from; and writes to ("o")."""
    if not paired:
        return "own"
    return "encoder" if site.kind == "self" or (site.kind == "cross" and kind in "kv") else "decoder"


def _before(early: Site, late: Site) -> bool:
    """Whether what one head writes may reach the other: an earlier block, or the same one's self-attention before cross-attention."""
    together = early.layer_path == late.layer_path != "" and early.call == late.call
    return early.index < late.index and (not together or late.kind == "cross")


def compositions(
    heads: Heads, found: Sequence[Circuits] | None = None, turn: Tensor | None = None
) -> xr.DataArray:
    """Q-, K- and V-composition of every head with every head of an earlier layer (Elhage et al. 2021): ‖AB‖ ÷ (‖A‖ ‖B‖), Frobenius.

    Args:
        heads: of the model.
        found: its `circuits`, if they are known.
        turn: a rotation of the residual stream (width, width) between the earlier head and the later one, for chance levels.

    Returns:
        (composition, layer, head, earlier_layer, earlier_head); NaN where the later head does not read what the earlier one writes.
    """
    found = circuits(heads) if found is None else found
    paired = bool(root_of(heads.model).config.is_encoder_decoder)  # type: ignore[union-attr]
    layers, widest = heads.shape
    out = np.full((3, layers, widest, layers, widest), np.nan)
    for late in found:
        grams = [
            weight @ weight.transpose(1, 2) for weight in (late.query, late.key, late.output.transpose(1, 2))
        ]
        # the factor that meets the earlier head, and the Gram matrix of the other one
        sides = {"q": (late.query, grams[1]), "k": (late.key, grams[0]), "v": (late.value, grams[2])}
        for early in found:
            if not _before(early.site, late.site):
                continue
            written = early.output if turn is None else turn @ early.output
            gram = early.value @ early.value.transpose(1, 2)  # (heads, dim, dim)
            size = (torch.einsum("hij,hij->h", early.output.transpose(1, 2) @ early.output, gram)).sqrt()
            for number, (kind, (near, far)) in enumerate(sides.items()):
                if (
                    _stream(late.site, kind, paired) != _stream(early.site, "o", paired)
                    or near.shape[-1] != written.shape[1]
                ):
                    continue
                met = torch.einsum("adw,bwe->abde", near, written)
                whole = torch.einsum("acd,abde,bef,abcf->ab", far, met, gram, met).clamp(min=0).sqrt()
                own = torch.einsum("aij,aij->a", near @ near.transpose(1, 2), far).sqrt()
                ratio = whole / (own[:, None] * size[None])
                place = late.site.index, slice(late.site.n_heads), early.site.index, slice(early.site.n_heads)
                out[(number, *place)] = ratio.numpy()
    coords = {"composition": list(COMPOSITIONS), "layer": np.arange(layers), "head": np.arange(widest)}
    coords |= {"earlier_layer": np.arange(layers), "earlier_head": np.arange(widest)}
    return xr.DataArray(out, coords=coords, dims=list(coords), name="composition")


def strongest(pairs: NDArray[np.float64]) -> NDArray[np.float64]:
    """The largest composition of each head with any earlier one, (3, layers, heads); NaN where there is none."""
    flat = pairs.reshape(*pairs.shape[:3], -1)
    return np.where(
        np.isnan(flat).all(-1), np.nan, np.nanmax(np.where(np.isnan(flat), -np.inf, flat), axis=-1)
    )


def composition_scores(
    heads: Heads, found: Sequence[Circuits], seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The strongest composition of each head, (3, layers, heads), and the mean of what random rotations of the stream give, (3, layers)."""
    values = strongest(compositions(heads, found).to_numpy())
    generator = torch.Generator().manual_seed(seed)
    widths = {one.output.shape[1] for one in found}
    if len(widths) != 1:
        return values, np.full(values.shape[:2], np.nan)
    width = widths.pop()
    drawn = []
    for _ in range(DRAWS):
        turn = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64))[0]
        drawn.append(strongest(compositions(heads, found, turn).to_numpy()))
    even = np.stack(drawn).mean(0)  # (3, layers, heads)
    known = ~np.isnan(even)
    counts = known.sum(-1)
    return values, np.where(counts > 0, np.where(known, even, 0).sum(-1) / np.maximum(counts, 1), np.nan)
