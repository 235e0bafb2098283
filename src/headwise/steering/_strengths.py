"""What each strength of steering does to a language model: what it prefers, and how far it is from the intact
model, example by example."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise._base.inference import share_interval
from headwise._base.progress import track
from headwise.heads import Heads
from headwise.lesions import mean_interval, resample_counts, why_none
from headwise.models import TaskModel, gold_tokens, read_examples, sum_by_example
from headwise.steering._settings import Steer
from headwise.tasks import IGNORED, KINDS, Examples, batches

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Judged:
    """One split under every strength, 0 first.

    Attributes:
        values: (strengths, examples). Pairs: log p(good) − log p(bad). Statements: mean log p of their
            tokens.
        kl: (strengths, examples) mean over tokens of KL(intact ‖ steered), in nats.
        of_target: (examples,) which statements are of the target class; None for pairs.
    """

    values: Array
    kl: Array
    of_target: NDArray[np.bool_] | None = None

    @property
    def strata(self) -> list[NDArray[np.int64]]:
        """Examples that are resampled among one another."""
        if self.of_target is None:
            return [np.arange(self.values.shape[1])]
        return [np.flatnonzero(self.of_target), np.flatnonzero(~self.of_target)]

    def table(self, strengths: Sequence[float], settings: Steer) -> pd.DataFrame:
        """Effect, its change from the intact model, and KL by strength, with intervals over examples; why the
        effect has none.

        The effect is a mean over pairs, or the target's mean minus that of the others. Accuracy is the share
        of pairs whose good sentence is preferred, with its exact interval.
        """
        n, strata = self.values.shape[1], self.strata
        counts = np.zeros((settings.bootstrap, n))
        for number, rows in enumerate(strata):
            counts[:, rows] = resample_counts(len(rows), settings.bootstrap, settings.seed + number)
        contrast = list(zip(strata, (1.0, -1.0), strict=False))
        mean = [(rows, len(rows) / n) for rows in strata]
        table = pd.DataFrame({"strength": list(strengths)})
        for name, values, weights in (
            ("effect", self.values, contrast),
            ("change", self.values - self.values[:1], contrast),
            ("kl", self.kl, mean),
        ):
            table[name] = sum(weight * values[:, rows].mean(1) for rows, weight in weights)
            table[f"{name}_low"], table[f"{name}_high"] = mean_interval(
                values, counts, settings.level, strata=weights
            )
        if self.of_target is None:
            preferred = (self.values > 0).sum(1)
            table["accuracy"] = preferred / n
            bounds = np.full((len(preferred), 2), np.nan)
            if settings.bootstrap:
                bounds[:] = [share_interval(int(number), n, settings.level) for number in preferred]
            table["accuracy_low"], table["accuracy_high"] = bounds.T
        table["examples"] = n
        draws: Any = sum(
            sign * counts[:, rows] @ self.values[:, rows].T / len(rows) for rows, sign in contrast
        )
        smallest = min(map(len, strata))
        reasons = [why_none(of_strength, settings.level, examples=smallest) for of_strength in draws.T]
        table["note"] = [f"no interval: {reason}" if reason else "" for reason in reasons]
        return table


def judge(
    model: TaskModel,
    heads: Heads,
    name: str,
    examples: Examples,
    vectors: Mapping[tuple[int, int], Tensor],
    settings: Steer,
    of_target: NDArray[np.bool_] | None = None,
) -> Judged:
    """Runs every example under every strength.

    Args:
        model: a left-to-right language model that knows the task `name`.
        heads: its heads.
        name: the task: of kind "minimal-pairs", or "next-token" for statements.
        examples: of that kind.
        vectors: what a strength of 1 adds to each head.
        settings: strengths, batches.
        of_target: of statements, which are of the target class.
    """
    strengths = (0.0, *settings.strengths)
    values, kl = np.zeros((2, len(strengths), len(examples)))
    encoded = read_examples(model.encoder, model.tokenizer, examples, settings.max_length)
    plan = batches(encoded, settings.batch_size)
    with torch.inference_mode():
        for batch in track(plan, "steering", quiet=settings.quiet):
            batch = batch.to(model.device)
            rows = batch.index.cpu().numpy()
            intact = steered = _log_p(model, name, batch)
            for number, strength in enumerate(strengths):
                if strength:
                    with heads.steered(vectors, strength):
                        steered = _log_p(model, name, batch)
                values[number, rows], kl[number, rows] = _by_example(model, name, batch, intact, steered)
    return Judged(values, kl, of_target)


def _log_p(model: TaskModel, name: str, batch: Any) -> Tensor:
    """Log-probabilities at the positions that predict text, (predicted, vocabulary)."""
    kind = model.tasks[name].kind
    logits = model.token_logits(kind, batch)
    if logits.ndim == 3:
        logits = logits[gold_tokens(kind, batch) != IGNORED]
    return logits.float().log_softmax(-1)


def _by_example(
    model: TaskModel, name: str, batch: Any, intact: Tensor, steered: Tensor
) -> tuple[Array, Array]:
    """What `Judged` holds of a batch and one strength: values and KL, both (examples,)."""
    kind = model.tasks[name].kind
    gold = gold_tokens(kind, batch)
    counted = gold != IGNORED
    row = torch.arange(len(gold), device=gold.device)[:, None].expand_as(gold)[counted]  # (predicted,)

    def sum_by_row(of_token: Tensor) -> Tensor:
        return of_token.new_zeros(len(gold), dtype=torch.float64).index_add(0, row, of_token.double())

    log_p = sum_by_row(steered.gather(1, gold[counted][:, None])[:, 0])  # (rows,)
    tokens = sum_by_example(counted.sum(1).double(), batch).clamp(min=1)  # (examples,)
    divergence = (intact.exp() * (intact - steered)).sum(-1)
    kl = sum_by_example(sum_by_row(divergence), batch) / tokens
    if KINDS[kind].reads == "pair":
        good, bad = log_p.view(-1, 2).unbind(1)
        values = good - bad
    else:
        values = sum_by_example(log_p, batch) / tokens
    return values.cpu().numpy(), kl.cpu().numpy()
