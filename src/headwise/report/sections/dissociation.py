"""A dissociation study of one model, as `Dissociation.save` leaves it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from headwise.figures import COLOURS
from headwise.figures import dissociation as figures
from headwise.report.blocks import NOT_SHOWN, Chart, HeadMaps, Section, Table, between, matrix_chart, number, sign, text

# Multi-task BERT-base at α = 30 %, from the first paper's Tables 3 and 10 (QNLI and AG as its Table 10 has them).
PUBLISHED = {
    "mnli": (83.91, 80.68, 58.23, 7.28),
    "qqp": (87.64, 85.42, 69.43, 5.26),
    "qnli": (90.26, 85.05, 57.50, 9.84),
    "ag_news": (94.50, 93.65, 80.01, 11.07),
    "sst2": (92.05, 91.23, 82.45, 3.28),
}


def read(folder: Path, record: Mapping[str, Any], label: str) -> Section:
    """The section of a saved dissociation."""
    tables = {path.stem: pd.read_csv(path).drop(columns="index", errors="ignore") for path in folder.glob("*.csv")}
    with xr.open_dataset(folder / "scores.nc", engine="scipy") as data:
        scores = data["score"].load()
    sets = {name: [tuple(head) for head in _heads(chosen)] for name, chosen in record["sets"]}
    settings = {"fraction": record["fraction"], **record["settings"], **json.loads(scores.attrs.get("settings", "{}"))}
    tasks = [name for name, _ in record["sets"]]
    return Section(
        title=f"Which heads each task needs: {label}",
        findings=findings(tables, tasks, record["fraction"]),
        blocks=blocks(tables, scores, sets),
        methods=(
            f"Heads were scored by {settings.get('method', 'gate-gradient')} (Eq. 4) on training data; each task's top "
            f"{100 * record['fraction']:g} % over the whole model were silenced and every task evaluated on held-out data. "
            "RP is performance under a lesion over intact performance; D_i = mean over other tasks' lesions of RP_i minus RP_i "
            "under its own (Eq. 5–7). Intervals: bootstrap over examples, head sets fixed."
        ),
        settings=settings,
        provenance={"folder": str(folder), "headwise": record.get("headwise", "")},
    )


def findings(tables: Mapping[str, pd.DataFrame], tasks: list[str], fraction: float) -> list[str]:
    """What the tables say, in sentences."""
    summary = tables["summary"].set_index("task")
    performance = tables["performance"].set_index("lesion")
    everything = summary.loc["all"]
    low, high = everything["D low"], everything["D high"]
    own_heads = f"silencing a task's own top {100 * fraction:g} % of heads costs it"
    if pd.isna(low):
        meaning = "there is no interval, so nothing is said beyond these examples"
    else:
        unlike = {1: "more than silencing another task's", -1: "less than silencing another task's"}
        meaning = (
            f"{own_heads} {unlike[s]}"
            if (s := sign(low, high))
            else f"{NOT_SHOWN} between a task's own heads and the other tasks'"
        )
    said = [f"Over {len(tasks)} tasks the dissociation score D is {number(everything['D'])} %{between(low, high)}: {meaning}."]
    said += [_task_finding(str(task), row) for task, row in summary.drop("all").iterrows()]
    if "random" in performance.index:
        own = pd.Series({t: float(performance.loc[f"{t}†", t]) for t in tasks})
        random, intact = (performance.loc[row, tasks].astype(float) for row in ("random", "intact"))
        sentence = (
            f"As many heads drawn at random change a task by {number((random - intact).mean(), sign=True)} points on average, its own "
            f"heads by {number((own - intact).mean(), sign=True)}"
        )
        if "random lowest" in performance.index:
            lowest = performance.loc["random lowest", tasks].astype(float)
            sentence += f"; {int((own < lowest).sum())} of {len(tasks)} tasks fall below every random set that was drawn"
        said.append(sentence + ".")
    pairs = tables["pairs"]
    counts = pairs["verdict"].value_counts()
    above = int((pairs["D_low"] > 0).sum())
    said.append(
        "Pairs of tasks, by the paper's thresholds on point estimates: "
        + ", ".join(f"{count} × {verdict}" for verdict, count in counts.items())
        + f"; the interval of D lies above 0 for {above} of {len(pairs)}."
    )
    tested = pairs["p_fdr"].notna()
    if tested.any():
        passed = int((pairs.loc[tested, "p_fdr"] < 0.05).sum())
        whose = "it matters whose heads are whose"
        said.append(
            f"By the re-split test of D, {whose} in {passed} of {int(tested.sum())} pairs (false discovery rate 5 %)."
            if passed
            else f"The re-split test of D could show for none of {int(tested.sum())} pairs that {whose}."
        )
    shared = pairs["overlap"]
    said.append(f"Two tasks' head sets share {number(shared.min(), 0)} to {number(shared.max(), 0)} % of their heads.")
    return said


def _task_finding(task: str, row: Any) -> str:
    """One task under its own lesion, beside the same task under the others'."""
    values = (
        f"{task} keeps {number(row['RP own'])} % of its performance without its own heads and {number(row['RP others'])} % without "
        f"another task's (D_i {number(row['D'])} %{between(row['D low'], row['D high'])})"
    )
    found = sign(row["D low"], row["D high"])
    return f"{values}: its own matter {'more' if found > 0 else 'less'} to it." if found else f"{values}: {NOT_SHOWN}."


def blocks(tables: Mapping[str, pd.DataFrame], scores: xr.DataArray, sets: Mapping[str, Any]) -> list[Table | Chart | HeadMaps]:
    """Figures and tables in the order of the paper."""
    relative = tables["relative"].set_index("lesion")
    corrected = tables["corrected"].set_index("lesion")
    overlap = tables["overlap"].set_index(tables["overlap"].columns[0])
    layers = tables["layers"].set_index(tables["layers"].columns[0])
    shape = (scores.sizes["layer"], scores.sizes["head"])
    masks = {name: _mask(chosen, shape) for name, chosen in sets.items()}
    performance = tables["performance"].set_index("lesion")
    metrics = tables["summary"].set_index("task")["metric"]
    same = set(relative.columns) == set(PUBLISHED) and all(metrics[t] == "accuracy" for t in PUBLISHED)
    published = PUBLISHED if same else {}
    found: list[Table | Chart | HeadMaps] = [
        HeadMaps(
            "head-scores",
            "Importance of every head",
            "importance",
            scores,
            lambda: figures.score_maps(scores, masks),
            sets,
            "Framed heads are the task's top set. Choose a head to see what every task makes of it.",
        ),
        matrix_chart(
            "lesions",
            "Performance under lesions, relative to intact",
            relative,
            lambda: figures.lesion_matrix(relative, "relative performance (%)"),
            unit="%",
            caption="Rows: whose top heads are silenced. The diagonal is each task's own lesion.",
        ),
        matrix_chart(
            "lesions-corrected",
            "The same, corrected for chance",
            corrected,
            lambda: figures.lesion_matrix(corrected, "chance-corrected performance (%)"),
            unit="%",
            caption="100 is unharmed, 0 is chance: the floor of RP differs between tasks, this scale does not.",
        ),
        pair_chart(tables["pairs"]),
        matrix_chart(
            "overlap",
            "Heads shared by two tasks",
            overlap,
            lambda: figures.overlap(overlap),
            unit="%",
            digits=0,
            caption="Table 11.",
        ),
        layer_chart(layers),
    ]
    if corrected.isna().all(axis=None):  # no task above chance: nothing to correct
        found = [block for block in found if block.name != "lesions-corrected"]
    if len(tables["sweep"]) > 1:
        found.append(sweep_chart(tables["sweep"]))
    found.append(
        Table("performance", "Performance in percent (Table 3)", performance.reset_index(), "T† = top heads of T silenced.")
    )
    if published:
        names = ("intact", "random", "own heads silenced", "D_i")
        frame = pd.DataFrame(published, index=names).T.rename_axis("task").reset_index()
        note = "BERT-base, five tasks, α = 30 %, from the first paper; compare only where model and tasks are the same."
        found.append(Table("published", "Published figures for these tasks", frame, note, 2))
    found.append(
        Table("pairs", "Every pair of tasks", tables["pairs"], "Percent; p is the re-split test's, where it was run.", 2)
    )
    found.append(Table("pairwise", "D_A of every pair (Table 10)", tables["pairwise"], "A in columns, B in rows; percent."))
    found.append(Table("summary", "Every task", tables["summary"], "Percent, with 95 % intervals of D."))
    return found


def pair_chart(pairs: pd.DataFrame) -> Chart:
    """D of every pair with its interval."""
    names = [text(f"{a} – {b}") for a, b in zip(pairs["A"], pairs["B"], strict=True)]
    bars = {
        "type": "bar",
        "name": "D",
        "x": names,
        "y": pairs["D"].tolist(),
        "marker": {"color": COLOURS[5]},
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": (pairs["D_high"] - pairs["D"]).fillna(0).tolist(),
            "arrayminus": (pairs["D"] - pairs["D_low"]).fillna(0).tolist(),
        },
    }
    points = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": label,
            "x": names,
            "y": pairs[column].tolist(),
            "marker": {"color": colour, "symbol": s},
        }
        for label, column, colour, s in (("D_A", "D_A", COLOURS[0], "circle"), ("D_B", "D_B", COLOURS[3], "square"))
    ]
    line = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": figures.THRESHOLD, "y1": figures.THRESHOLD}
    layout = {
        "yaxis": {"title": {"text": "dissociation (%)"}},
        "shapes": [{**line, "line": {"dash": "dot", "width": 1, "color": "#888"}}],
    }
    caption = (
        "Bars: D with its 95 % interval; marks: its two halves. Dotted: 10 %, from where both-positive pairs count as distinct."
    )
    return Chart("pairs", "Dissociation of every pair", [bars, *points], layout, lambda: figures.pair_scores(pairs), caption)


def layer_chart(layers: pd.DataFrame) -> Chart:
    """Chosen heads per layer and task."""
    names = [name for name in layers.columns if name not in ("mean", "sigma")]
    data = [
        {
            "type": "bar",
            "name": text(name),
            "x": layers.index.tolist(),
            "y": layers[name].tolist(),
            "marker": {"color": COLOURS[i % 8]},
        }
        for i, name in enumerate(names)
    ]
    layout = {"barmode": "group", "xaxis": {"title": {"text": "layer"}, "dtick": 1}, "yaxis": {"title": {"text": "heads chosen"}}}
    return Chart("layers", "Where the chosen heads lie (Fig. 4)", data, layout, lambda: figures.heads_per_layer(layers))


def sweep_chart(sweep: pd.DataFrame) -> Chart:
    """D over the share of heads silenced."""
    x = (100 * sweep["fraction"]).tolist()
    data: list[dict[str, Any]] = [
        {"type": "scatter", "name": "D", "x": x, "y": sweep["D"].tolist(), "line": {"color": COLOURS[0], "width": 3}}
    ]
    for i, column in enumerate(c for c in sweep.columns if c.startswith("D_") and c not in ("D_low", "D_high")):
        line = {"color": COLOURS[(i + 1) % 7], "dash": "dot"}
        data.append(
            {"type": "scatter", "name": text(column.removeprefix("D_")), "x": x, "y": sweep[column].tolist(), "line": line}
        )
    layout = {"xaxis": {"title": {"text": "heads silenced (%)"}}, "yaxis": {"title": {"text": "dissociation (%)"}}}
    return Chart("sweep", "Dissociation over the share of heads", data, layout, lambda: figures.sweep(sweep))


def _heads(chosen: Any) -> list[list[int]]:
    found = json.loads(chosen) if isinstance(chosen, str) else chosen
    if isinstance(found, dict):
        found = found["heads"]
    return [[int(layer), int(head)] for layer, head in found]


def _mask(chosen: Any, shape: tuple[int, int]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    mask = np.zeros(shape, dtype=bool)
    for layer, head in chosen:
        mask[layer, head] = True
    return mask
