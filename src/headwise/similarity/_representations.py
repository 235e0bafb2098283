"""Similarity of tasks from the sentence vectors of the models trained on them: DSE and CRA (Luo et al.
2022)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from scipy.stats import rankdata

from headwise.errors import HeadwiseError
from headwise.heads import twinned
from headwise.models import check_tokens, length_within, open_model, padding_side, pool, token_states
from headwise.similarity._matrices import pairwise

Array = NDArray[Any]


def sentence_vectors(
    model: Any,
    sentences: Sequence[str],
    *,
    tokenizer: Any = None,
    pooling: str = "mean",
    batch_size: int = 64,
    max_length: int = 256,
) -> Array:
    """One vector a sentence from an encoder or decoder, the same for any batch size and order.

    Args:
        model: whatever `headwise.models.open_model` takes; its encoder is used.
        sentences: the texts.
        tokenizer: the model's; default: the one saved with its weights.
        pooling: "mean" over real tokens, "cls" (first real token) or "last" (last real token) of the last
            hidden state.
        batch_size: sentences per pass.
        max_length: longer sentences are truncated to this many tokens.

    Returns:
        (sentences, dim) float32.
    """
    opened = open_model(model, need="encoder", tokenizer=tokenizer, device="auto")
    tokenizer = tokenizer if tokenizer is not None else opened.tokenizer
    length = length_within(max_length, opened.encoder)
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))  # little padding
    vectors: list[Array] = [np.empty(0)] * len(sentences)
    with torch.no_grad(), twinned(opened.encoder) as (encoder,):
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            batch = tokenizer(
                [sentences[i] for i in rows],
                padding=True,
                padding_side=padding_side(encoder, tokenizer),
                truncation=True,
                max_length=length,
                return_tensors="pt",
            ).to(opened.device)
            real = batch["attention_mask"] > 0
            check_tokens(encoder, tokenizer, batch["input_ids"][real].cpu(), "the sentences")
            states = token_states(encoder, batch).float()  # (batch, tokens, dim)
            pooled = pool(states, batch["attention_mask"], pooling).cpu().numpy()
            for row, vector in zip(rows, pooled, strict=True):
                vectors[row] = vector
    return np.stack(vectors)


def dse(vectors: Mapping[str, Array]) -> xr.DataArray:
    """Direct similarity estimation: the mean cosine between the vectors two models give the same sentences
    (appendix D).

    Args:
        vectors: by task, (sentences, dim); the same sentences in the same order for every task.

    Returns:
        DataArray (task, other), 1 on the diagonal.
    """
    count = _same_sentences(vectors)
    unit = {task: _rows_of_length_one(of_task) for task, of_task in vectors.items()}
    sizes = {task: rows.shape[1] for task, rows in unit.items()}
    if len(set(sizes.values())) > 1:
        raise HeadwiseError(
            f"DSE compares vectors of one size, got {sizes}: the models must share an architecture "
            "(CRA does not need that)"
        )
    return pairwise(unit, lambda a, b: float((a * b).sum(1).mean()), "DSE", sentences=count)


def cra(vectors: Mapping[str, Array]) -> xr.DataArray:
    """Cognitive representation analytics: Spearman between the models' dissimilarity matrices of sentences
    (appendix D).

    A dissimilarity is 1 − Pearson between two sentences' vectors; every pair of different sentences counts
    once.

    Args:
        vectors: by task, (sentences, dim); the same sentences in the same order for every task. `dim` may
            differ.

    Returns:
        DataArray (task, other), 1 on the diagonal.
    """
    count = _same_sentences(vectors)
    if count < 3:
        raise HeadwiseError(f"CRA needs at least three sentences, got {count}")
    upper = np.triu_indices(count, 1)

    def standard_ranks(of_task: Array) -> Array:
        rows = np.asarray(of_task, dtype=np.float64)
        rows = _rows_of_length_one(rows - rows.mean(1, keepdims=True))
        ranks = rankdata(1.0 - (rows @ rows.T)[upper])  # (pairs,)
        ranks -= ranks.mean()
        return ranks / np.linalg.norm(ranks)

    ranked = {task: standard_ranks(of_task) for task, of_task in vectors.items()}
    return pairwise(ranked, lambda a, b: float(a @ b), "CRA", sentences=count)


def _rows_of_length_one(vectors: Array) -> Array:
    rows = np.asarray(vectors, dtype=np.float64)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    if (length == 0).any():
        raise HeadwiseError(
            f"sentence {int((length == 0).argmax())} has a constant or zero vector: its similarity is not "
            "defined"
        )
    return rows / length


def _same_sentences(vectors: Mapping[str, Array]) -> int:
    counts = {task: len(of_task) for task, of_task in vectors.items()}
    if len(set(counts.values())) != 1:
        raise HeadwiseError(f"every task needs vectors of the same sentences, got: {counts}")
    return next(iter(counts.values()))
