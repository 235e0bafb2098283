"""What a head's weights say alone: eigenvalues of its circuits, and how it composes with earlier heads.

W_QK = W_Qᵀ W_K and W_OV = W_O W_V stand for the head's two circuits (Elhage et al. 2021). Nothing of the size
of the vocabulary squared is formed: the eigenvalues of AB other than 0 are those of BA, so those of W_U W_O ·
W_V W_E are those of the small product W_V (W_E W_U) W_O, (head_dim × head_dim). Biases, positions and the
scales of norms are left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor, nn

from headwise.behaviour._logits import output_weights
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

KINDS = {
    **dict.fromkeys(("q_proj", "query", "q", "q_lin", "q_attn", "query_proj", "linear_q"), "query"),
    **dict.fromkeys(("k_proj", "key", "k", "k_lin", "key_proj", "linear_k"), "key"),
    **dict.fromkeys(("v_proj", "value", "v", "v_lin", "value_proj", "linear_v"), "value"),
}  # what a projection of that name makes
COMPOSITIONS = ("q-composition", "k-composition", "v-composition")
DRAWS = 8  # random rotations behind the chance level of compositions


@dataclass(frozen=True)
class Circuits:
    """The weights of the heads of one site, in float64.

    Attributes:
        site: the layer.
        query, key, value: (heads, head_dim, width of what they read); heads of one group have the same keys
            and values.
        output: (heads, width, head_dim).
    """

    site: Site
    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor


def circuits(heads: Heads) -> list[Circuits]:
    """W_Q, W_K, W_V and W_O of every head.

    The rows of a head are found from gradients (`ownership`), and its values are checked: attention times x
    W_Vᵀ is what it puts out.

    Raises:
        UnsupportedModel: which weights make queries, keys and values is not known.
    """
    rows: dict[int, dict[str, Tensor]] = {site.index: {} for site in heads.sites}
    for owned in ownership(heads):
        path, _, leaf = owned.name.rpartition(".")
        module = heads.model.get_submodule(path)
        position_bias = isinstance(module, nn.Embedding)
        if leaf == "weight" and not owned.output and weight_axes(module) and not position_bias:
            for index, marks in owned.owners.items():
                rows[index][path] = marks
    sites = []
    for site in heads.sites:
        weights = [
            _query_key_value(heads.model, site, head, rows[site.index]) for head in range(site.n_heads)
        ]
        query, key, value = map(torch.stack, zip(*weights, strict=True))
        output = output_weights(heads.model, site).transpose(1, 2)
        sites.append(Circuits(site, query, key, value, output))
    _check_values(heads, sites, rows)
    return sites


def _query_key_value(model: nn.Module, site: Site, head: int, rows: Mapping[str, Tensor]) -> list[Tensor]:
    """W_Q, W_K and W_V of one head, each (head_dim, width).

    The names of separate projections distinguish them, or the order of the rows of a fused one.

    Args:
        model: whose weights they are.
        site: the layer.
        head: its number.
        rows: by the path of each projection which rows are of which head, (rows, heads) bool.
    """
    weights = {path: _rows_of_head(model, path, marks[:, head]) for path, marks in rows.items()}
    if len(weights) == 1:
        ((path, fused),) = weights.items()
        if len(fused) != 3 * site.head_dim:
            raise UnsupportedModel(f"{path} makes {len(fused)} numbers for a head of {site.head_dim}")
        # every fused layout has a head's queries before its keys before its values
        return list(torch.split(fused, site.head_dim))
    by_kind: dict[str, Tensor] = {}
    for path, weight in weights.items():
        kind = KINDS.get(path.removesuffix(".base_layer").rpartition(".")[2])
        if kind is not None and kind not in by_kind:
            by_kind[kind] = weight
        elif kind is None and len(weight) == 2 * site.head_dim:
            by_kind["key"], by_kind["value"] = torch.split(weight, site.head_dim)
        else:
            raise UnsupportedModel(f"whether {path} makes queries, keys or values is not known")
    query, key, value = (by_kind.get(kind, torch.empty(0)) for kind in ("query", "key", "value"))
    if len(by_kind) != 3 or len(query) != len(key) or len(value) != site.head_dim:
        raise UnsupportedModel(
            f"layer {site.index} has no projection of its own for each of queries, keys and values: "
            f"{list(weights)}"
        )
    return [query, key, value]


def _rows_of_head(model: nn.Module, path: str, marks: Tensor) -> Tensor:
    """The rows of a projection that `marks` is 1 for, (rows, width), in float64."""
    module = model.get_submodule(path)
    axes, weight = weight_axes(module), module.weight
    assert axes is not None
    assert isinstance(weight, Tensor)
    if weight.ndim != 2:
        raise UnsupportedModel(f"{path} is a convolution")
    rows = marks.nonzero()[:, 0].to(weight.device)
    return plain_weight(path, weight).movedim(axes[0], 0)[rows].double().cpu()


def _check_values(heads: Heads, sites: Sequence[Circuits], rows: Mapping[int, Mapping[str, Tensor]]) -> None:
    """Raises unless attention times x W_Vᵀ, plus the bias of values, is what each head puts out in a small
    pass."""
    inputs: dict[str, list[Tensor]] = {path: [] for of_site in rows.values() for path in of_site}

    def note(path: str, module: nn.Module, args: Any, output: Any) -> None:
        inputs[path].append(args[0].detach().double().cpu())

    with undisturbed(heads) as (twin,):
        handles = [
            twin.model.get_submodule(path).register_forward_hook(partial(note, path)) for path in inputs
        ]
        try:
            with torch.no_grad(), twin.recorded("all", attention=True) as tape:
                twin.model(**on_device(twin.model, heads.example))
        finally:
            for handle in handles:
                handle.remove()
    for weights, maps in zip(sites, tape.attention, strict=True):
        site = weights.site
        width, keys = weights.value.shape[-1], maps.shape[-1]
        states = None
        for path in rows[site.index]:
            if states is None and inputs[path]:
                x = inputs[path][min(site.call, len(inputs[path]) - 1)]
                states = x if x.ndim == 3 and x.shape[1:] == (keys, width) else None
        if states is None:
            raise UnsupportedModel(f"what the values of layer {site.index} are made of was not seen")
        outputs = tape.layer(site.index).double().cpu()
        attended = torch.einsum("bhqk,bkd,hed->bqhe", maps.double().cpu(), states, weights.value)
        bias = outputs - attended  # attention sums to 1, so the bias of values is the same at every query
        tolerance = 1e-3 * max(1.0, float(outputs.abs().max()))
        if not torch.allclose(bias, bias[:1, :1].expand_as(bias), rtol=0, atol=tolerance):
            raise UnsupportedModel(
                f"the heads of layer {site.index} output something other than attention times W_V x"
            )


def eigen_score(matrix: Tensor) -> Tensor:
    """Σλ ÷ Σ|λ| over the eigenvalues of matrices (..., n, n): 1 if all are positive, 0 if they cancel or are
    0."""
    values = torch.linalg.eigvals(matrix)
    size = values.abs().sum(-1)
    return torch.where(size > 0, values.sum(-1).real / size, 0.0)


def circuit_scores(
    heads: Heads, sites: Sequence[Circuits]
) -> tuple[dict[str, NDArray[np.float64]], dict[str, str]]:
    """ "copying" and "matching" of every head, (layers, heads), and notes on what is not defined."""
    root: Any = root_of(heads.model)
    notes: dict[str, str] = {}
    copying, matching = np.full(heads.shape, np.nan), np.full(heads.shape, np.nan)
    embedding = plain_weight("the embedding", root.get_input_embeddings().weight).double().cpu()
    width = embedding.shape[1]
    embedding_gram = embedding.T @ embedding
    vocabulary = None  # W_E W_U, (width, width)
    unembedding: Any = root.get_output_embeddings() if hasattr(root, "get_output_embeddings") else None
    if unembedding is not None:
        unembedded = plain_weight("the unembedding", unembedding.weight).double().cpu()
        size = min(len(embedding), len(unembedded))
        vocabulary = embedding[:size].T @ unembedded[:size]
    for weights in sites:
        of_site = weights.site.index, slice(weights.site.n_heads)
        query, key, value, output = weights.query, weights.key, weights.value, weights.output
        if vocabulary is None:
            notes["copying"] = (
                f"{type(root).__name__} has no unembedding: open it with its language-model head"
            )
        elif value.shape[-1] != width or output.shape[1] != vocabulary.shape[1]:
            notes["copying"] = "embeddings have another width than the layers"
        else:
            copying[of_site] = eigen_score(value @ vocabulary @ output).numpy()
        if value.shape[-1] == query.shape[-1] == key.shape[-1] == width:
            matching[of_site] = eigen_score(key @ embedding_gram @ query.transpose(1, 2)).numpy()
        else:
            notes["matching"] = "embeddings have another width than the layers"
    return {"copying": copying, "matching": matching}, notes


def _stream(site: Site, kind: str, encoder_decoder: bool) -> str:
    """The residual stream from which a head reads its queries ("q"), keys ("k") or values ("v"), or to which
    it writes ("o")."""
    if not encoder_decoder:
        return "one"
    if site.kind == "self" or (site.kind == "cross" and kind in "kv"):
        return "encoder"
    return "decoder"


def _before(early: Site, late: Site) -> bool:
    """Whether what one head writes may reach the other: in an earlier block, or from a block's self-attention
    to its cross-attention."""
    same_block = early.layer_path == late.layer_path != "" and early.call == late.call
    return early.index < late.index and (not same_block or late.kind == "cross")


def compositions(heads: Heads) -> xr.DataArray:
    """Q-, K- and V-composition of every head with every head of an earlier layer (Elhage et al. 2021): ‖AB‖ ÷
    (‖A‖ ‖B‖), Frobenius.

    Args:
        heads: of the model.

    Returns:
        (composition, layer, head, earlier_layer, earlier_head); NaN where the later head does not read what
        the earlier one writes.
    """
    ratios = _compositions(heads, circuits(heads))
    layers, widest = map(np.arange, heads.shape)
    coordinates = {"composition": list(COMPOSITIONS), "layer": layers, "head": widest}
    coordinates |= {"earlier_layer": layers, "earlier_head": widest}
    return xr.DataArray(ratios, coordinates, list(coordinates), name="composition")


def _compositions(
    heads: Heads, sites: Sequence[Circuits], rotation: Tensor | None = None
) -> NDArray[np.float64]:
    """Compositions (3, layers, heads, earlier layers, earlier heads), with a rotation (width, width) of the
    residual stream between the earlier head and the later one, if there is one."""
    root: Any = root_of(heads.model)
    encoder_decoder = bool(root.config.is_encoder_decoder)
    ratios = np.full((len(COMPOSITIONS), *heads.shape, *heads.shape), np.nan)
    for late in sites:
        query_gram, key_gram = late.query @ late.query.mT, late.key @ late.key.mT
        output_gram = late.output.mT @ late.output
        # the factor that meets the earlier head, and the Gram matrix of the later head's second factor
        factors = {"q": (late.query, key_gram), "k": (late.key, query_gram), "v": (late.value, output_gram)}
        for early in sites:
            if not _before(early.site, late.site):
                continue
            written = early.output if rotation is None else rotation @ early.output
            written_stream = _stream(early.site, "o", encoder_decoder)
            value_gram = early.value @ early.value.mT  # (heads, dim, dim)
            early_norm = torch.einsum("hij,hij->h", early.output.mT @ early.output, value_gram).sqrt()
            pairs = late.site.index, slice(late.site.n_heads), early.site.index, slice(early.site.n_heads)
            for number, (kind, (near, far_gram)) in enumerate(factors.items()):
                same_stream = _stream(late.site, kind, encoder_decoder) == written_stream
                if not same_stream or near.shape[-1] != written.shape[1]:
                    continue
                met = torch.einsum("adw,bwe->abde", near, written)
                squares = torch.einsum("acd,abde,bef,abcf->ab", far_gram, met, value_gram, met)
                late_norm = torch.einsum("aij,aij->a", near @ near.mT, far_gram).sqrt()
                ratio = squares.clamp(min=0).sqrt() / (late_norm[:, None] * early_norm[None])
                ratios[(number, *pairs)] = ratio.numpy()
    return ratios


def _strongest(ratios: NDArray[np.float64]) -> NDArray[np.float64]:
    """The largest composition of each head with any earlier one, (3, layers, heads); NaN where there is
    none."""
    largest = np.where(np.isnan(ratios), -np.inf, ratios).max(axis=(-2, -1))
    return np.where(np.isneginf(largest), np.nan, largest)


def composition_scores(
    heads: Heads, sites: Sequence[Circuits], seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The strongest composition of each head, (3, layers, heads), and the mean of what random rotations of
    the stream give, (3, layers)."""
    strongest = _strongest(_compositions(heads, sites))
    widths = {weights.output.shape[1] for weights in sites}
    if len(widths) != 1:
        return strongest, np.full(strongest.shape[:2], np.nan)
    (width,) = widths
    generator = torch.Generator().manual_seed(seed)
    rotated = []
    for _ in range(DRAWS):
        rotation = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64))[0]
        rotated.append(_strongest(_compositions(heads, sites, rotation)))
    levels = np.stack(rotated).mean(0)  # (3, layers, heads)
    defined = ~np.isnan(levels)
    counts = defined.sum(-1)
    means = np.where(defined, levels, 0).sum(-1) / np.maximum(counts, 1)
    return strongest, np.where(counts > 0, means, np.nan)
