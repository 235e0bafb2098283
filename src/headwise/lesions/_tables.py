"""The tables of a dissociation study, in the layout of the paper's; performance and scores in percent."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headwise._base.inference import false_discovery
from headwise.lesions import _dissociation as d
from headwise.lesions._analysis import Analysis, missing
from headwise.lesions._evaluation import INTACT

if TYPE_CHECKING:
    from headwise.lesions._result import Dissociation


def performance(result: "Dissociation") -> pd.DataFrame:
    """Table 3: each task (columns) under each lesion (rows, T† = the top heads of T silenced), random sets,
    intact, and D_i.

    Beside the mean of R random sets stand the lowest and the highest: a further random set lies between them
    with probability (R − 1) ÷ (R + 1), 82 % for ten and 95 % for 39.
    """
    percent = result.lesions.performance[list(result.tasks)] * 100
    rows = {f"{name}†": percent.loc[name] for name in result.tasks}
    if result.random:
        random = percent.loc[list(result.random)]
        rows["random"] = random.mean()
        if len(random) > 1:
            rows["random lowest"], rows["random highest"] = random.min(), random.max()
    rows["intact"] = percent.loc[INTACT]
    rows["D_i"] = pd.Series(100 * result.analysis.d_i, index=list(result.tasks))
    return pd.DataFrame(rows).T.rename_axis("lesion")


def summary(result: "Dissociation") -> pd.DataFrame:
    """One row per task and one for all: relative performance under its own and under the others' lesions, D
    with its interval, and why anything is missing."""
    a = result.analysis
    n = len(a.tasks)
    under_own = np.diagonal(a.rp)
    bounds = a.d_i_bounds()
    reasons = [
        missing({"interval": bound.why, "D corrected": a.uncorrected([task])})
        for task, bound in enumerate(bounds)
    ]
    rows = pd.DataFrame(
        {
            "metric": [result.lesions.tasks[name].metric for name in a.tasks],
            "intact": 100 * a.intact,
            "chance": 100 * a.chance,
            "RP own": 100 * under_own,
            "RP others": 100 * (a.rp.sum(axis=0) - under_own) / (n - 1),
            "D": 100 * a.d_i,
            "D low": [100 * bound.low for bound in bounds],
            "D high": [100 * bound.high for bound in bounds],
            "D corrected": 100 * d.per_task(a.corrected),
            "note": reasons,
        },
        index=pd.Index(a.tasks, name="task"),
    )
    every = a.d_bounds()
    values = [a.d, every.low, every.high, float(d.overall(a.corrected))]
    rows.loc["all", ["D", "D low", "D high", "D corrected"]] = [100 * value for value in values]
    rows.loc["all", "note"] = missing({"interval": every.why, "D corrected": a.uncorrected(range(n))})
    rows.loc["all", "metric"] = ""
    return rows


def pairs(result: "Dissociation") -> pd.DataFrame:
    """Every pair: D_A, D_B, D with its interval (percent), the verdict, overlap, p and FDR where the test was
    run (Table 9), and why anything is missing."""
    table = result.analysis.pairs()
    for column in ("D_A", "D_B", "D", "D_low", "D_high", "D_corrected"):
        table[column] *= 100
    names = list(zip(table["A"], table["B"], strict=True))
    table["overlap"] = [100 * result.sets[a].overlap(result.sets[b]) for a, b in names]
    p = {pair: test.p for pair, test in result.tests.items()}
    table["p"] = [p.get(pair, np.nan) for pair in names]
    table["p_fdr"] = false_discovery(table["p"].to_numpy())
    reasons_of_p = {pair: missing({"p": test.note}) for pair, test in result.tests.items()}
    tested = [reasons_of_p.get(pair, "") for pair in names]
    reasons = zip(table.pop("note"), tested, strict=True)
    table["note"] = ["; ".join(filter(None, of_pair)) for of_pair in reasons]
    return table


def pairwise(result: "Dissociation") -> pd.DataFrame:
    """Table 10: D_A in percent, A in columns, B in rows."""
    names = list(result.tasks)
    values = 100 * d.pairwise(result.analysis.rp).T  # (B, A)
    return pd.DataFrame(values, index=pd.Index(names, name="B"), columns=pd.Index(names, name="A"))


def overlap(result: "Dissociation") -> pd.DataFrame:
    """Table 11: the share of A's heads that B's set holds too, in percent."""
    return d.overlap_matrix(result.sets)


def layers(result: "Dissociation") -> pd.DataFrame:
    """Fig. 4: chosen heads per layer and task, their mean and σ between tasks."""
    return d.heads_per_layer(result.sets, result.scores.sizes["layer"])


def relative(result: "Dissociation") -> pd.DataFrame:
    """RP_i(H_j) in percent: tasks in columns, lesions in rows."""
    return _matrix(result, result.analysis.rp)


def corrected(result: "Dissociation") -> pd.DataFrame:
    """Chance-corrected RP in percent: 100 is unharmed, 0 is chance."""
    return _matrix(result, result.analysis.corrected)


def sweep(result: "Dissociation") -> pd.DataFrame:
    """D and D_i in percent at each share of heads silenced, with the interval of D or why there is none."""
    every = sorted({**result.sweep, result.fraction: result.analysis}.items())
    return pd.DataFrame([{"fraction": fraction, **_scores(a)} for fraction, a in every])


def kinds(result: "Dissociation") -> pd.DataFrame:
    """D and D_i in percent for each way of silencing, with the interval of D or why there is none."""
    return pd.DataFrame([{"silenced by": how, **_scores(a)} for how, a in result.kinds.items()])


def matched(result: "Dissociation") -> pd.DataFrame:
    """Each task's own heads against sets of other heads of the same layers that harm the other tasks at least
    as much: relative performance of the task under both in percent, their difference, how many sets they were
    compared with, p and FDR, and why p is missing."""
    rows = []
    for name, test in result.matched.items():
        task = result.tasks.index(name)
        under_own = 100 * float(result.analysis.rp[task, task])
        row = {"task": name, "RP own": under_own, "RP matched": under_own + 100 * test.d}
        row["difference"] = 100 * test.d
        rows.append({**row, "sets": len(test.null), "p": test.p, "note": missing({"p": test.note})})
    table = pd.DataFrame(rows, columns=["task", "RP own", "RP matched", "difference", "sets", "p", "note"])
    table.insert(6, "p_fdr", false_discovery(table["p"].to_numpy(dtype=float)))
    return table


def _scores(a: Analysis) -> dict[str, float | str]:
    low, high, why = a.d_bounds()
    by_task = {f"D_{name}": 100 * float(value) for name, value in zip(a.tasks, a.d_i, strict=True)}
    return {
        "D": 100 * a.d,
        "D_low": 100 * low,
        "D_high": 100 * high,
        **by_task,
        "note": missing({"interval": why}),
    }


def _matrix(result: "Dissociation", values: NDArray[np.float64]) -> pd.DataFrame:
    index = pd.Index([f"{name}†" for name in result.tasks], name="lesion")
    return pd.DataFrame(100 * values, index=index, columns=list(result.tasks))


TABLES: Mapping[str, Callable[["Dissociation"], pd.DataFrame]] = {
    "performance": performance,
    "summary": summary,
    "pairs": pairs,
    "pairwise": pairwise,
    "overlap": overlap,
    "layers": layers,
    "relative": relative,
    "corrected": corrected,
    "sweep": sweep,
    "kinds": kinds,
    "matched": matched,
}
