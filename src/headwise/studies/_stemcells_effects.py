"""What training the tasks together does to stem-cell heads, measured by probes of every run, on heads that
other runs chose."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pandas as pd
import xarray as xr

from headwise._base.inference import t_interval, why_no_t
from headwise.errors import HeadwiseError
from headwise.studies import _stemcells_contrasts as contrasts
from headwise.studies._stemcells import LEAST, SHARE, check_dims, sole_claims, stem_cells


@dataclass(frozen=True)
class Effect:
    """A difference measured in every run.

    Attributes:
        runs: (runs,) its value in each; NaN where a run had no heads to measure it on.
        mean, low, high: mean over runs with its 95 % interval over runs and heads (`_stemcells_contrasts`);
            NaN where there is none.
        heads: heads it was measured on, per run: stem-cell heads, and those they are compared with (summed
            over tasks).
        note: why there is no interval; empty where there is one.
    """

    runs: tuple[float, ...]
    mean: float
    low: float
    high: float
    heads: tuple[tuple[int, int], ...]
    note: str = ""


def stem_cell_effect(
    claims: xr.DataArray,
    before: xr.DataArray,
    after: xr.DataArray,
    *,
    share: float = SHARE,
    against: Literal["alone", "layer"] = "alone",
) -> Effect:
    """The test of the hypothesis: (change on stem-cell heads) − (change on heads that one task alone claims).

    The change is that of each task's probe score from `before` (trained alone) to `after` (trained with the
    others), averaged over heads, then over the tasks that have heads of both kinds. The hypothesis says that
    it is negative: heads that many tasks claim lose more. In every run the heads are chosen by the claims of
    the *other* runs: a head chosen for being good in a run would fall back in any second look at it, and that
    alone would look like the effect.

    Args:
        claims: (run, task, layer, head) bool; at least two runs.
        before, after: (run, task, layer, head) probe scores of the same runs and tasks.
        against: "alone", heads that one task alone claims; "layer", all other heads of the layers where
            stem-cell heads lie, each layer weighted by its stem-cell heads: training together may change some
            layers more than others, whoever claims their heads.
    """
    change = _paired("after", after, claims) - _paired("before", before, claims)
    if len(claims.run) < 2:
        raise HeadwiseError(
            "the effect needs at least two runs: heads are chosen and measured on different runs"
        )
    if len(claims.task) < LEAST:
        return _nothing(claims)
    stem, alone = contrasts.chosen_elsewhere(claims.to_numpy(), share)
    compared = alone if against == "alone" else ~stem[:, None]
    strata: Literal["task", "layer"] = "task" if against == "alone" else "layer"
    return _effect(contrasts.against(change.to_numpy(), stem, compared, strata))


def sparing(
    claims: xr.DataArray, plain: xr.DataArray, spared: xr.DataArray, *, share: float = SHARE
) -> Effect:
    """Does another way of training spare stem-cell heads? Their probe scores after it minus those after plain
    training; heads chosen on other runs, as in `stem_cell_effect`. Positive: they are spared."""
    if len(claims.task) < LEAST:
        return _nothing(claims)
    gain = _paired("spared", spared, claims) - _paired("plain", plain, claims)
    stem, _ = contrasts.chosen_elsewhere(claims.to_numpy(), share)
    return _effect(contrasts.mean_change(gain.to_numpy(), stem))


def layer_changes(before: xr.DataArray, after: xr.DataArray) -> pd.DataFrame:
    """What training together does to each layer: task, layer, and the mean change of its heads' probe scores
    with its interval over runs.

    Args:
        before, after: (run, task, layer, head) probe scores of the same runs and tasks.
    """
    change = (after - before).mean("head")
    rows = []
    for task in change.task.values:
        for layer in change.layer.values:
            values = change.sel(task=task, layer=layer).to_numpy()
            low, high = t_interval(
                values
            )  # all heads of the layer, whoever claims them: only runs would be drawn again
            row = {
                "task": str(task),
                "layer": int(layer),
                "change": float(values.mean()),
                "low": float(low),
                "high": float(high),
            }
            rows.append({**row, "note": f"no interval: {why}" if (why := why_no_t(values, "run")) else ""})
    return pd.DataFrame(rows)


def changes(claims: xr.DataArray, stages: Mapping[str, xr.DataArray]) -> pd.DataFrame:
    """Every task's mean probe score on the heads it claims, those it does not, stem-cell heads, and heads it
    alone claims.

    Args:
        claims: (run, task, layer, head) bool.
        stages: name ("untrained", "single", "multi", ...) to probe scores (run, task, layer, head) or (task,
            layer, head).

    Returns:
        task, heads ("claimed", "unclaimed", "stem", "alone"), stage, score (mean over runs), n (heads, mean
        over runs). Heads are those of all runs together: a description, not the test.
    """
    stem, alone = stem_cells(claims), sole_claims(claims)
    rows = []
    for stage, scores in stages.items():
        for task in claims.task.values:
            here = scores.sel(task=task)
            claimed = claims.sel(task=task)
            groups = {"claimed": claimed, "unclaimed": ~claimed, "stem": stem, "alone": alone.sel(task=task)}
            for name, group in groups.items():
                mean = here.where(group).mean(("layer", "head"))
                size = group.sum(("layer", "head")).mean()
                rows.append(
                    {
                        "task": str(task),
                        "heads": name,
                        "stage": stage,
                        "score": float(mean.mean()),
                        "n": float(size),
                    }
                )
    return pd.DataFrame(rows)


def _nothing(claims: xr.DataArray) -> Effect:
    """What is measured where no two tasks could share a head."""
    nan, runs = float("nan"), len(claims.run)
    return Effect(
        (nan,) * runs, nan, nan, nan, ((0, 0),) * runs, "no interval: fewer than two tasks were learnt"
    )


def _effect(contrast: contrasts.Contrast) -> Effect:
    mean, low, high = (float(value) for value in (contrast.mean, contrast.low, contrast.high))
    heads = tuple((int(stem), int(compared)) for stem, compared in contrast.heads)
    note = f"no interval: {why}" if (why := contrast.why_none()) else ""
    return Effect(tuple(contrast.values.tolist()), mean, low, high, heads, note)


def _paired(label: str, scores: xr.DataArray, claims: xr.DataArray) -> xr.DataArray:
    check_dims(label, scores)
    for dim in ("run", "task"):
        missing = set(claims[dim].values.tolist()) - set(scores[dim].values.tolist())
        if missing:
            raise HeadwiseError(
                f"{label}: no probe scores of {dim} {sorted(missing)[0]!r}; claims and scores must be of the "
                "same runs"
            )
    return scores.sel(run=claims.run, task=claims.task)
