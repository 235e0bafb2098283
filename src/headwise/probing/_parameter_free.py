"""Parameter-free probes of single heads on word-level tasks (He & Choi 2021), chosen and scored on different
data.

Nothing is fitted by gradient. Tags, entity spans and lowest phrases: the class whose centroid, taken from
training data, is nearest by cosine to the head's output. Dependencies and roles: the word that a word attends
to most, or that attends to it most.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from torch import Tensor

from headwise._base.progress import track
from headwise.errors import HeadwiseError
from headwise.heads import Heads, twinned
from headwise.models import merge_attention, pool_words, read_examples, text_columns, text_maps
from headwise.probing._items import FORMS, Items, find_items
from headwise.tasks import Batch, Task, batches

COUNTS = ("hit", "gold", "right", "drawn")
OFFSETS = tuple(o for o in range(-10, 11) if o)


@dataclass(frozen=True)
class FreeProbe:
    """What every head of a model gives away of one task, label by label.

    Attributes:
        task: the task's name.
        kind: its kind.
        counts: (split, way, label, layer, head, count), splits "validation" and "test". A way is "centroid",
            or "attends" (a word finds its head or predicate by looking at it) and "attended" (by being looked
            at). Counts: of `gold` spans with the label `hit` were found; of `drawn` predictions `right` were
            right. Heads that do not exist are NaN.
    """

    task: str
    kind: str
    counts: xr.DataArray

    def recall(self, split: str = "test") -> xr.DataArray:
        """(way, label, layer, head), 0 to 1; NaN for labels that do not occur."""
        return self._ratio("hit", "gold", split)

    def precision(self, split: str = "test") -> xr.DataArray:
        """(way, label, layer, head), 0 to 1; 0 where nothing was predicted.

        Attention draws one arc from every word, whatever its label: a label's precision is its part in all
        arcs drawn (dependencies), or in all arcs that reach a predicate (roles), so it is bounded by how
        common the label is.
        """
        return self._ratio("right", "drawn", split).fillna(0)

    def f1(self, split: str = "test") -> xr.DataArray:
        """(way, label, layer, head): harmonic mean of precision and recall."""
        p, r = self.precision(split), self.recall(split)
        return (2 * p * r / (p + r).where(p + r > 0)).fillna(0).where(r.notnull())

    def criterion(self, split: str) -> xr.DataArray:
        """What heads are chosen by: F1 for centroids (recall alone is won by a head that always answers the
        same), recall for attention (which draws exactly one arc a word)."""
        return self.f1(split) if FORMS[self.kind].shuffle is None else self.recall(split)

    def best(self) -> pd.DataFrame:
        """For every label that occurs in both splits the head (and way) best on validation, with its figures
        on test.

        Columns: label, way, layer, head, validation (the criterion there), precision, recall, f1, gold (spans
            with the label in test).
        """
        criterion = self.criterion("validation")
        scores = xr.Dataset(
            {
                "validation": criterion,
                "precision": self.precision(),
                "recall": self.recall(),
                "f1": self.f1(),
                "gold": self.counts.sel(split="test", count="gold", drop=True),
            }
        )
        names = ["label", "way", "layer", "head"]
        rows = []
        for label in self.counts["label"].values:
            of_label = scores.sel(label=label)
            if of_label["validation"].isnull().all() or of_label["recall"].isnull().all():
                continue
            best = of_label.isel(of_label["validation"].argmax(("way", "layer", "head")))
            rows.append({name: best[name].item() for name in [*names, *scores]})
        table = pd.DataFrame(rows, columns=[*names, *scores])
        return table.astype({"gold": int})

    def macro(self) -> dict[str, float]:
        """Means over labels of `best`: precision, recall, f1."""
        table = self.best()
        return {name: float(table[name].mean()) for name in ("precision", "recall", "f1")}

    def head_scores(self, split: str = "test") -> xr.DataArray:
        """One number per head, (layer, head): macro F1 over labels for centroids; for attention the share of
        all arcs found, in the way that finds more on validation."""
        if FORMS[self.kind].shuffle is None:
            return self.f1(split).sel(way="centroid", drop=True).mean("label")
        counts = self.counts.sum("label", skipna=False)
        share = counts.sel(count="hit") / counts.sel(count="gold")  # (split, way, layer, head)
        # (layer, head), NaN for heads that do not exist
        ways = share.sel(split="validation").idxmax("way", skipna=True)
        ways = ways.where(ways.notnull(), self.counts.way.values[0])
        return share.sel(split=split).sel(way=ways).drop_vars(["way", "split"])

    def _ratio(self, numerator: str, denominator: str, split: str) -> xr.DataArray:
        counts = self.counts.sel(split=split, drop=True)
        total = counts.sel(count=denominator, drop=True)
        return counts.sel(count=numerator, drop=True) / total.where(total > 0)


def free_probe(
    model: Any,
    task: Task,
    tokenizer: Any,
    *,
    examples: int | None = None,
    seed: int = 0,
    permuted: bool = False,
    batch_size: int = 32,
    max_length: int | None = None,
    heads: Heads | None = None,
    quiet: bool = False,
) -> FreeProbe:
    """Probes every head of a model on one word-level task: centroids from train, counts on validation and on
    test.

    Args:
        model: an encoder (or decoder) of transformers, tuned or not; it stays as it is.
        task: of a word-level kind, with splits train, validation and test.
        tokenizer: the model's, a fast one.
        examples: at most this many sentences per split, drawn by seed; None takes all.
        seed: of that sample and of `permuted`.
        permuted: the control: labels are shuffled among the spans of a split (arcs: among the words of a
            sentence), then everything is done as before, the choice of heads included.
        batch_size: sentences at a time; results do not depend on it.
        max_length: tokens the model reads at once; longer sentences are read in windows.
        heads: the model's `Heads`, if made already.
        quiet: show no progress.
    """
    if task.kind not in FORMS:
        raise HeadwiseError(
            f"task {task.name!r} is of kind {task.kind!r}; these probes are for {', '.join(FORMS)}"
        )
    heads = heads or Heads(model)
    centroid = FORMS[task.kind].shuffle is None
    reader, names, ways = _attention, ["validation", "test"], ["attends", "attended"]
    if centroid:
        reader, names, ways = _outputs, ["train", "validation", "test"], ["centroid"]
    splits: dict[str, list[Tensor]] = {}
    centroids: list[Tensor] = []
    with twinned(model, heads) as (twin, heads):
        for split in names:
            sample = task.split(split)
            if examples is not None:
                sample = sample.sample(examples, seed)
            rng = np.random.default_rng([seed, len(splits)])
            items = find_items(sample, rng if permuted else None)
            encoded = read_examples(model, tokenizer, sample, max_length)
            shown = track(batches(encoded, batch_size), f"probing {task.name}, {split}", quiet=quiet)
            passes = reader(twin, heads, shown)
            if centroid and split == "train":
                centroids = _centroids(passes, items)
            elif centroid:
                splits[split] = _centroid_counts(passes, items, heads, centroids)
            else:
                splits[split] = _arc_counts(passes, items, heads)
    n_heads = [site.n_heads for site in heads.sites]
    return FreeProbe(task.name, task.kind, _labelled(splits, ways, items.labels, n_heads))


def fixed_offset(
    task: Task, *, examples: int | None = None, seed: int = 0, offsets: Sequence[int] = OFFSETS
) -> FreeProbe:
    """The baseline of the attention probes: a word's head (or predicate) is always a fixed number of words
    away, the offset being chosen per label on validation just as heads are. In the result "head" numbers the
    offsets; there is one layer.

    Args:
        task: of kind "dependencies" or "roles".
        examples, seed: as for `free_probe`.
        offsets: the distances offered.
    """
    splits = {}
    for split in ("validation", "test"):
        sample = task.split(split)
        if examples is not None:
            sample = sample.sample(examples, seed)
        items = find_items(sample, None)
        total = torch.zeros(1, len(items.labels), len(offsets), len(COUNTS), dtype=torch.float64)
        for number, sentence in enumerate(sample.sentences or ()):
            partner = torch.arange(len(sentence)) + torch.tensor(offsets)[:, None]  # (offsets, words)
            total += items.count_arcs(np.array([number]), partner[None, :, None, :])
        splits[split] = [total]
    return FreeProbe(task.name, task.kind, _labelled(splits, ("offset",), items.labels, [len(offsets)]))


Passes = Iterator[tuple[Batch, Iterator[Tensor]]]


def _outputs(model: Any, heads: Heads, plan: Iterable[Batch]) -> Passes:
    """Every batch with, layer by layer, the head outputs pooled to words: (n, words, heads, head_dim)."""
    for batch in plan:
        batch = batch.to(next(model.parameters()).device)
        with torch.inference_mode(), heads.recorded(pooling="all") as tape:
            model(**batch.inputs)
        tokens = (text_columns(model, tape.layer(site.index)).float() for site in heads.sites)
        yield batch, map(partial(_pooled, batch=batch), tokens)


def _pooled(rows: Tensor, batch: Batch) -> Tensor:
    """(rows, tokens, heads, head_dim) -> (n, words, heads, head_dim)."""
    pooled = pool_words(rows.flatten(2), batch)
    return pooled.reshape(*pooled.shape[:2], *rows.shape[2:])


def _attention(model: Any, heads: Heads, plan: Iterable[Batch]) -> Passes:
    """Every batch with, layer by layer, the word each word attends to, and is attended by, most: (n, heads,
    2, words)."""
    for batch in plan:
        batch = batch.to(next(model.parameters()).device)
        with torch.inference_mode(), heads.recorded(attention=True) as tape:
            model(**batch.inputs)
        merged = (merge_attention(text_maps(model, maps).float(), batch) for maps in tape.attention)
        yield batch, map(partial(_partners, batch=batch), merged)


def _partners(merged: Tensor, batch: Batch) -> Tensor:
    """From attention between words (n, heads, words, words) to the most attended and the most attending word
    of each word."""
    assert batch.n_words is not None
    word = torch.arange(merged.shape[-1], device=merged.device)
    beyond = word >= batch.n_words[:, None]  # (n, words)
    # a word never finds itself
    masked = beyond[:, None, :] | beyond[:, :, None] | (word[:, None] == word)
    merged = merged.masked_fill(masked[:, None], -1)
    return torch.stack([merged.argmax(-1), merged.argmax(-2)], 2)


def _centroids(passes: Passes, items: Items) -> list[Tensor]:
    """Per layer the mean output of every class, scaled to length 1: (classes, heads, head_dim); zeros for
    classes not seen."""
    sums: list[Tensor] = []
    for batch, layers in passes:
        weights, labels = items.weights(batch)  # (spans, n × words), (spans,)
        hot = torch.nn.functional.one_hot(labels, len(items.labels)).to(weights.dtype).T  # (classes, spans)
        for layer, vectors in enumerate(layers):
            of_batch = torch.tensordot(hot @ weights, vectors.flatten(0, 1), 1)
            if layer == len(sums):
                sums.append(of_batch)
            else:
                sums[layer] = sums[layer] + of_batch
    return [torch.nn.functional.normalize(total, dim=-1) for total in sums]


def _centroid_counts(passes: Passes, items: Items, heads: Heads, centroids: list[Tensor]) -> list[Tensor]:
    """Per layer (1, labels, heads, counts)."""
    totals = [
        torch.zeros(1, len(items.labels), site.n_heads, len(COUNTS), dtype=torch.float64)
        for site in heads.sites
    ]
    for batch, layers in passes:
        weights, labels = items.weights(batch)
        for total, vectors, centre in zip(totals, layers, centroids, strict=True):
            spans = torch.tensordot(weights, vectors.flatten(0, 1), 1)  # (spans, heads, head_dim)
            near = torch.einsum("thd,chd->thc", torch.nn.functional.normalize(spans, dim=-1), centre)
            near = near.masked_fill((centre == 0).all(-1).T, -torch.inf)  # classes not seen in training
            total += items.count_classes(near.argmax(-1), labels)
    return totals


def _arc_counts(passes: Passes, items: Items, heads: Heads) -> list[Tensor]:
    """Per layer (2, labels, heads, counts)."""
    total = torch.zeros(2, len(items.labels), heads.total, len(COUNTS), dtype=torch.float64)
    for batch, layers in passes:
        total += items.count_arcs(batch.index.cpu().numpy(), torch.cat([layer.cpu() for layer in layers], 1))
    return list(torch.split(total, [site.n_heads for site in heads.sites], 2))


def _labelled(
    splits: dict[str, list[Tensor]], ways: Sequence[str], labels: Sequence[str], n_heads: Sequence[int]
) -> xr.DataArray:
    """Per split and layer (ways, labels, heads, counts) -> one labelled array, NaN for heads that do not
    exist."""
    values = np.full((len(splits), len(ways), len(labels), len(n_heads), max(n_heads), len(COUNTS)), np.nan)
    for split, layers in enumerate(splits.values()):
        for layer, counts in enumerate(layers):
            values[split, :, :, layer, : n_heads[layer]] = counts.numpy()
    return xr.DataArray(
        values,
        dims=("split", "way", "label", "layer", "head", "count"),
        coords={
            "split": list(splits),
            "way": list(ways),
            "label": list(labels),
            "layer": np.arange(len(n_heads)),
            "head": np.arange(max(n_heads)),
            "count": list(COUNTS),
        },
    )
