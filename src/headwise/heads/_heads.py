"""`Heads`: the attention heads of one model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.heads._errors import UnsupportedModel
from headwise.heads._find.discovery import find_sites
from headwise.heads._find.verification import check_view
from headwise.heads._freeze.ownership import parameters_per_head, tied_layers
from headwise.heads._freeze.training_only import training_only
from headwise.heads._headset import HeadSet
from headwise.heads._inputs import root_of
from headwise.heads._remove.even import prunable_evenly
from headwise.heads._remove.removal import remove
from headwise.heads._sites import Site
from headwise.heads._use.attention import Queries, QueryRows, maps_on, rows_on
from headwise.heads._use.baking import bake
from headwise.heads._use.blocks import Edit, refuse_if_open
from headwise.heads._use.course import Course
from headwise.heads._use.gates import Gates, check_gates
from headwise.heads._use.generation import following
from headwise.heads._use.patching import Patches, Tokens, patched
from headwise.heads._use.positions import check_pooling
from headwise.heads._use.recording import Tape, watch_hidden
from headwise.heads._use.replacement import Reference, mean_outputs, replacement
from headwise.heads._use.steering import Directions, steered
from headwise.heads._use.taps import Taps
from headwise.sections import Described, Section

KEPT_SETS = 64  # lesions whose gates are kept, for each model


class Heads(Described):
    """Finds every attention layer of a model, and gates, silences, records, freezes or removes its heads.

    The model is wrapped, never changed: outside a `with` block it is exactly what it was.

    Args:
        model: a live `PreTrainedModel` (task models included), or one wrapped by PEFT.
        partial: accept a model of which some attention cannot be reached (`heads.missed` says which, and
            why).
        example: keyword arguments of a small forward pass, for models whose input cannot be guessed.

    Raises:
        UnsupportedModel: no heads were found, or not all of them; says what was looked for and what was
            found.
        HeadwiseError: a block of another `Heads` of this model is open.
    """

    def __init__(
        self, model: nn.Module, partial: bool = False, example: Mapping[str, Any] | None = None
    ) -> None:
        refuse_if_open(model)
        findings = find_sites(model, example)
        if not findings.sites or (findings.missed and not partial):
            raise UnsupportedModel(findings.complaint(model))
        self.model = model
        self.original: Heads | None = None  # of which this is a twin
        self.draws: bool = findings.draws  # whether passes draw random numbers
        self.sites: tuple[Site, ...] = tuple(findings.sites)
        self.missed: dict[str, str] = findings.missed
        self.example: dict[str, Any] = findings.inputs  # keyword arguments of a small forward pass that works
        self._taps = Taps(model, self.sites)
        self._silencers: dict[tuple[HeadSet, bool], Gates] = {}
        # Whether rows of a batch may have gates of their own
        self.rows_apart: bool = check_view(self)

    @property
    def shape(self) -> tuple[int, int]:
        """(layers, heads of the widest layer)."""
        return len(self.sites), max(site.n_heads for site in self.sites)

    @property
    def valid(self) -> Tensor:
        """Boolean (layers, heads): False where a layer has fewer heads than the widest."""
        return (
            torch.arange(self.shape[1])[None] < torch.tensor([site.n_heads for site in self.sites])[:, None]
        )

    @property
    def total(self) -> int:
        """Number of heads."""
        return sum(site.n_heads for site in self.sites)

    def all(self) -> HeadSet:
        """Every head."""
        return HeadSet((site.index, head) for site in self.sites for head in range(site.n_heads))

    def check(self, head_set: Iterable[tuple[int, int]]) -> HeadSet:
        """Returns `head_set` if the model has all of its heads.

        Raises:
            HeadwiseError: it names a head the model does not have.
        """
        head_set = HeadSet(head_set)
        for layer, head in head_set:
            if layer >= len(self.sites):
                size = f"it has {len(self.sites)} layers"
            elif head >= self.sites[layer].n_heads:
                size = f"layer {layer} has {self.sites[layer].n_heads} heads"
            else:
                continue
            raise HeadwiseError(
                f"head ({layer}, {head}) is not in this {type(root_of(self.model)).__name__}: {size}, "
                "counted from 0. Was the set made for another model?"
            )
        return head_set

    def gated(self, gates: Tensor) -> AbstractContextManager[None]:
        """Multiplies every head's output by its gate, in each pass inside the block.

        Args:
            gates: (layers, heads), (batch, layers, heads) or (batch, tokens, layers, heads), on any device;
                may require gradients. Truth values select instead: where they are False a head puts out 0,
                even in place of NaN.

        Raises:
            HeadwiseError: at once, if the shape does not fit the model.
            HeadsDidNotFire: on leaving, if no pass reached the heads.
        """
        gates = check_gates(gates, self.shape)
        if gates.ndim > 2 and not self.rows_apart:
            raise HeadwiseError(
                f"{type(root_of(self.model)).__name__} does not keep the rows of a batch apart, so gates per "
                "row would reach other rows: run rows one by one with gates (layers, heads)"
            )
        return self._gating(Gates(gates, self.sites, not self._taps.installed, root_of(self.model)))

    def _gating(self, edit: Gates) -> AbstractContextManager[None]:
        sites = [site for site in self.sites if site.index not in edit.skipped]
        if edit.alike:
            return self._taps.applying(edit, sites)
        return following(self, edit, sites)

    def _silencer(self, head_set: HeadSet) -> Gates:
        """The gates of a lesion, kept: training under masks comes back to a few sets, and what lies on the
        device stays there."""
        key = head_set, self._taps.installed
        edit = self._silencers.get(key)
        if edit is None:
            with torch.inference_mode(False):  # a lesion kept from an evaluation may come back in a training
                # Selected, not multiplied: 0 · NaN is NaN
                gates = ~torch.from_numpy(head_set.to_mask(self.shape))
                edit = self._silencers[key] = Gates(gates, self.sites, skip=not self._taps.installed)
            if len(self._silencers) > KEPT_SETS:
                self._silencers.pop(next(iter(self._silencers)), None)
        return edit

    def silenced(
        self, head_set: HeadSet, how: str = "zero", reference: Reference | None = None, seed: int = 0
    ) -> AbstractContextManager[None]:
        """A lesion: in each pass inside the block the output of every head in `head_set` is replaced.

        Args:
            head_set: which heads.
            how: "zero"; "mean" over the real tokens of a reference set; "resample": the output of a reference
                example drawn at random for each row, token by token; in `generate()` for each prompt, once
                for all its passes and beams.
            reference: for "mean" and "resample" a batch of model inputs (keyword arguments) or several; for
                "mean" also the means themselves, (layers, heads, head_dim), as `mean_outputs` gives them. The
                reference is run once, on entering.
            seed: of the draws of "resample".

        Raises:
            HeadwiseError: a head is not in the model, or the reference is missing.
        """
        head_set = self.check(head_set)
        if how == "zero":
            return self._gating(self._silencer(head_set))
        edit = replacement(self, head_set, how, reference, seed)
        return following(self, edit, [self.sites[layer] for layer in head_set.layers()])

    def patched(
        self,
        head_set: Patches,
        source: Mapping[str, Any] | Tape,
        tokens: Tokens = "all",
        rows: Iterable[int] | None = None,
        prompt: int | None = None,
    ) -> AbstractContextManager[None]:
        """A patch: in each pass inside the block these heads put out what they put out in `source`.

        Positions count the real tokens of each row from 0, whatever the padding; negative ones count from the
        end of the prompt. In `generate()` the prompt is patched, and of what is generated only positions that
        `tokens` names.

        Args:
            head_set: which heads: one set for all rows, a list with one set per row, or a boolean mask (rows,
                layers, heads).
            source: a batch of model inputs (keyword arguments), run once on entering, in evaluation mode and
                outside any open block; or a recording of all tokens, `heads.recorded(pooling="all")`.
            tokens: "all" (rows as long as their source), "last" (of prompt and source), positions [3, -1],
                pairs of positions [(source, target), ...]; or for each row its own, as tensors (rows, n) or
                (rows, n, 2).
            rows: which row of the source each row of the pass gets; default: its own, or the only one.
            prompt: as in `steered`.

        Raises:
            HeadwiseError: heads, rows or tokens do not fit; on leaving, if a position to patch never came.
        """
        return patched(self, head_set, source, tokens, rows, prompt)

    def steered(
        self,
        directions: Directions,
        scale: float | Tensor = 1.0,
        tokens: str = "all",
        prompt: int | None = None,
    ) -> AbstractContextManager[None]:
        """Adds `scale` × a direction to the outputs of heads, in each pass inside the block, `generate()`
        with a cache included.

        Args:
            directions: {(layer, head): vector} or a tensor (layers, heads, head_dim), zero where nothing is
                added.
            scale: one number, or one per head, (layers, heads).
            tokens: "all"; "last": the last real token of the prompt and every generated one; "generated":
                only tokens that were generated.
            prompt: number of tokens of the prompt, padding included, for passes that continue from a cache
                outside `generate()`.

        Raises:
            HeadwiseError: directions do not fit the model; on leaving, if no token to steer at ever came.
        """
        return steered(self, directions, scale, tokens, prompt)

    def bake(self, directions: Directions, scale: float | Tensor = 1.0) -> nn.Module:
        """A copy of the model that does by itself what `steered(directions, scale)` does at all tokens:
        W_O · direction becomes a bias.

        Where the projections have no bias the family's own setting (Llama's `attention_bias`) adds one, and
        the other biases it brings are zero; so `save_pretrained` writes an ordinary model that plain
        transformers loads.

        Raises:
            UnsupportedModel: the family has no such setting, or the weights are quantised or offloaded.
        """
        return bake(self, directions, scale)

    def mean_outputs(self, batches: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> Tensor:
        """Mean output of every head over all real tokens of `batches` (model inputs), (layers, heads,
        head_dim) in float64."""
        return mean_outputs(self, batches)

    def edited(self, edit: Edit) -> AbstractContextManager[None]:
        """Runs every head output in each pass inside the block through a custom edit; gates and tapes are
        such edits."""
        return self._taps.applying(edit, self.sites)

    @contextmanager
    def recorded(
        self,
        pooling: str = "cls",
        attention: bool | Queries = False,
        hidden: bool = False,
        detach: bool = True,
        prompt: int | None = None,
    ) -> Iterator[Tape]:
        """Records what every head puts out in each pass inside the block.

        Args:
            pooling: "cls" (first real token), "last" (last real token, whichever side is padded), "mean" over
                real tokens, or "all".
            attention: also record attention: True for whole maps (eager attention while recording); or of
                some queries only, which are recomputed from q and k while the model keeps its attention:
                "last" (real token of each pass), "generated" (each token that `generate()` adds), or
                positions among the real tokens, negative ones from the end of the prompt. Before dropout;
                rows of padding are zero, those of a query that is not there NaN.
            hidden, detach: also record each layer's output, pooled in the same way; cut what is recorded from
                the autograd graph.
            prompt: as in `steered`.
        """
        queries = None if isinstance(attention, bool) else QueryRows(attention, Course(self.model, prompt))
        tape = Tape(self.sites, check_pooling(pooling), detach, queries)
        maps: AbstractContextManager[None] = nullcontext()
        if queries is not None:
            maps = rows_on(queries, self.model, self.sites)
        elif attention:
            maps = maps_on(tape, self.model, self.sites)
        with (
            maps,
            following(self, tape, self.sites),
            watch_hidden(tape, self._taps) if hidden else nullcontext(),
        ):
            yield tape

    def training_only(
        self,
        head_set: HeadSet,
        optimizer: torch.optim.Optimizer,
        output_projection: bool = True,
        drift: bool = False,
        masked: bool = True,
    ) -> AbstractContextManager[None]:
        """Every optimizer step inside the block leaves all heads outside `head_set`, and their optimizer
        state, bit-identical.

        Everything that belongs to no head (norms, feed-forward, embeddings, task heads, the compressed part
        of latent attention) learns as always. Keys and values of grouped queries learn if any head of their
        group does, and weights that layers share if a head of any of these layers does; where LoRA is on
        them, if all of these heads do. Nested blocks train the heads that all of them name. Gradients are
        masked as they are accumulated, so that clipping sees only what learns; those present on entry are
        masked too. Parameters that the optimizer is given inside the block are frozen from its next step on.

        Args:
            head_set: the heads that learn.
            optimizer: the optimizer, or accelerate's wrapper around it. Any optimizer with one state value
                per element is kept exactly; where elements share state (Adafactor's row and column
                statistics) the weights are.
            output_projection: whether a head's columns of W_O are frozen with it.
            drift: only take the gradient of what is frozen, so that momentum and weight decay keep moving it:
                what published code does that masks gradients alone.
            masked: take the gradient of what is frozen. Without that, steps are a little quicker on a GPU and
                keep all the same, where each element has a state of its own; only what reads gradients
                (clipping) sees those of frozen heads too.

        Raises:
            HeadwiseError: the optimizer moves all parameters along one common direction (LBFGS), keeps its
                state quantized, or holds no parameter of this model; heads have adapters other than LoRA; or
                layers were replaced or added after Heads was built.
        """
        return training_only(self, self.check(head_set), optimizer, output_projection, drift, masked)

    def remove(self, head_set: HeadSet) -> nn.Module:
        """A copy of the model without the heads of `head_set`: smaller, and equal to the silenced model up to
        rounding.

        `Heads(smaller)` counts what is left: heads are renumbered within each layer, and layers without heads
        have no site. Where the family's configuration can say what is left (usually: the same number of heads
        or key groups in every layer), it is an ordinary model, which plain transformers opens once it is
        saved. `save_pretrained` and `headwise.heads.save_removed` save either.

        Raises:
            HeadwiseError: a group of grouped queries would lose only some of its heads, or layers that share
                weights would lose different ones.
            UnsupportedModel: this family's attention cannot do without these heads; says why.
        """
        return remove(self, self.check(head_set))

    def prunable_evenly(self, scores: ArrayLike, fraction: float) -> HeadSet:
        """The least important heads that can go so that every layer keeps the same number: what `remove`
        makes an ordinary model of.

        Args:
            scores: importance (layers, heads), as `headwise.score` gives it for one task; higher is more
                important.
            fraction: the most that may be removed of each layer, in 0..1; whole key groups where queries are
                grouped.

        Returns:
            of every layer the same number of groups (of heads, where each has keys of its own), those whose
            scores sum to least.

        Raises:
            HeadwiseError: layers have different numbers of heads or groups, a score is missing, or the
                fraction is less than one group or leaves none.
        """
        return prunable_evenly(self.sites, scores, fraction)

    def parameters_per_head(self) -> list[int]:
        """For each site, the parameters one head works with; the keys and values it shares with its group
        count in full.

        Raises:
            UnsupportedModel: the parameters of one head cannot be separated (quantized weights).
        """
        return parameters_per_head(self)

    def tied_layers(self) -> tuple[tuple[int, ...], ...]:
        """Layers whose heads of one number work with the same parameters: with one table of position biases
        (MPNet, T5) or with all of their weights (ALBERT). What such heads do is no coincidence, so they are
        not exchangeable from layer to layer.

        Fixed slopes by head number (ALiBi) are not parameters and are not seen.

        Returns:
            groups of two layers or more, by their numbers; empty where every layer's heads are its own.
        """
        return tied_layers(self)

    def install(self) -> None:
        """Sets the hooks once and keeps them; call it before `torch.compile`, which ignores hooks that come
        later."""
        self._taps.install()

    def uninstall(self) -> None:
        """Takes the hooks of `install` off."""
        self._taps.uninstall()

    def section(self) -> Section:
        """What is said of this model's heads: every attention layer, and what it is made of."""
        from headwise.heads._anatomy import heads_section

        return heads_section(self)

    def __repr__(self) -> str:
        kinds = ", ".join(dict.fromkeys(site.kind for site in self.sites))
        name = type(root_of(self.model)).__name__
        return f"Heads({name}: {len(self.sites)} layers, {self.total} heads; {kinds})"
