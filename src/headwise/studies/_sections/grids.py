"""Studies that are grids over models, tasks, methods and seeds: specialization, training, probing,
fine-tuning from heads."""

from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from headwise._base.places import model_label
from headwise._base.sentences import number, synthetic_rows
from headwise.figures import dissociation as figures, probing as probing_figures
from headwise.probing import BARS_NOTE, top_against
from headwise.sections import Chart, HeadMaps, Section, Table
from headwise.studies._sections import optional_table
from headwise.training import score_chart, training_findings as training_findings

# which tables of a run are shown, in order, and what they are called
SHOWN = {
    "specialization": {
        "d": "D of every result, seed by seed",
        "scorings": "D by the way heads are scored, seed by seed",
        "pairs-mean": "Every pair, means over seeds (Table 9)",
        "performance-mean": "Performance under lesions, in percent (Table 3)",
        "overlap-mean": "Heads shared by two tasks, in percent (Table 11)",
        "layers-mean": "Heads chosen per layer (Fig. 4)",
        "sweep-mean": "D by fraction of heads silenced",
        "paradigms": "D within and across input paradigms",
        "training": "Performance of the methods, in percent",
    },
    "training": {"training": "Scores, mean and standard deviation over seeds"},
    "probing": {
        "probing": "Last layer, best layer, top heads",
        "syntactic-semantic": "Syntactic and semantic score of every head",
    },
    "head-finetuning": {
        "fine-tuning": "Fine-tuning from heads and from layers",
        "shift": "What fine-tuning changed in every head",
    },
}
CAPTIONS = {
    "scorings": "overlap_of_tasks: heads that two tasks have in common, mean over pairs, in percent; "
    "overlap_with_first: heads of a task that the first scoring chooses too, mean over tasks, in percent; "
    "last_layer: heads of a task in the last layer, mean over tasks.",
}
HELD_OUT = " Validation is a tenth of train here (held_out), not the tasks' validation splits."
METHODS = {
    "specialization": "Models were trained on groups of tasks; each task's top heads were silenced and every "
    "task evaluated (Eq. 5–7); the settings say how heads were scored.",
    "training": (
        "One task per step; scores on validation, by the metrics that the recipe chose, else each task's own."
    ),
    "probing": (
        "Logistic regression on each head's output and each layer's hidden state; everything chosen on "
        "validation, scored on test."
    ),
    "head-finetuning": (
        "Concatenated outputs of the top heads, fine-tuned end to end, against the last and the best layer."
    ),
}


def of_specialization(run: Any) -> Section:
    """Models × pairs of tasks, with their heads per layer, and the methods and settings of training where
    several were tried."""
    blocks: list[Any] = []
    sentences: list[str] = []
    if "training.parquet" in run.files:
        training = run.table("training")
        swept = training[training["method"] == "iat"]
        for setting in ("alpha", "delta"):
            if setting in swept and swept[setting].nunique() > 1:
                draw = partial(figures.training_sweep, training, setting)
                title = f"Performance over {setting} (Figs. 9 and 10)"
                blocks.append(Chart(f"training-{setting}", title, draw))
    if "grid.parquet" in run.files:
        grid = run.table("grid").set_index("label")
        title = "Dissociation of every model and pair (Fig. 2)"
        blocks.append(Chart("grid", title, lambda: figures.matrix(grid, "dissociation (%)")))
        for name, row in grid.iterrows():
            over = _averaged(grid, row["average"])
            pair_d = row.drop("average")
            unit = "" if over else " pairs"
            sentences.append(
                f"{name}: D is {over}positive on {int((pair_d > 0).sum())} of "
                f"{int(pair_d.notna().sum())}{unit} (point estimates)."
            )
        seeds = optional_table(run, "pairs-mean")
        if "D_seed_low" in seeds:
            with_interval = int(seeds["D_seed_low"].notna().sum())
            above = int((seeds["D_seed_low"] > 0).sum())
            if with_interval:
                sentences.append(
                    f"The interval of D over seeds lies above 0 for {above} of {with_interval} results."
                )
            else:
                sentences.append(
                    "There are too few seeds (eight are needed) for an interval of D: seeds are shown one by "
                    "one."
                )
        if "seeds_at_chance" in seeds and (lost := seeds[seeds["seeds_at_chance"] > 0]).size:
            pairs = (lost["A"] + " – " + lost["B"]).tolist()
            counts = zip(pairs, lost["seeds_at_chance"], lost["seeds"], strict=True)
            named = ", ".join(f"{pair} ({few} of {all_} seeds)" for pair, few, all_ in counts)
            sentences.append(
                "A task is not above chance when intact, so D says nothing there, though the means count "
                f"it: {named}."
            )
    if "d.parquet" in run.files and run.table("d")["method"].nunique() > 1:
        d = run.table("d")
        by_scoring: Any = d.groupby("scoring", sort=False) if "scoring" in d else [("", d)]
        for scoring, scoring_rows in by_scoring:
            named = f", heads scored by {scoring}" if scoring else ""
            blocks.append(
                Chart(
                    f"methods{scoring}",
                    f"Dissociation after every method{named} (Fig. 8)",
                    partial(figures.methods, scoring_rows),
                )
            )
    if "layers-mean.parquet" in run.files:
        layers = run.table("layers-mean")
        keys = [name for name in ("model", "method", "scoring", "group") if name in layers]
        for coords, group_layers in layers.groupby(keys, sort=False):
            wide = group_layers.pivot_table(index="layer", columns="task", values="heads", sort=False)
            drawn = wide.assign(mean=wide.mean(axis=1), sigma=wide.std(axis=1, ddof=0))
            where = ", ".join(map(str, coords))
            title = f"Where the chosen heads lie: {where} (Fig. 4)"
            blocks.append(Chart(f"layers-{where}", title, partial(figures.heads_per_layer, drawn)))
    return _section(run, "specialization", sentences, blocks)


def _averaged(grid: pd.DataFrame, average: float) -> str:
    """The average of a row, and over which pairs it is; empty where the rows have none in common."""
    if pd.isna(average):
        return ""
    pairs = grid.drop(columns="average").notna().all()
    if pairs.all():
        return f"{number(average)} % on average over pairs, "
    plural = "s" * (pairs.sum() > 1)
    return f"{number(average)} % on average over the {int(pairs.sum())} pair{plural} that all rows have, "


def of_training(run: Any) -> Section:
    """Scores of every model and sampling, methods compared over seeds."""
    blocks: list[Any] = []
    sentences: list[str] = []
    if "scores.parquet" in run.files:
        scores = _named(run.table("scores"))
        scores = scores[scores["split"] == "validation"]
        variants = {name: variant["method"] for name, variant in run.recipe.get("variants", {}).items()}
        for coords, group_scores in scores.groupby(
            [c for c in ("model", "sampling") if c in scores], sort=False
        ):
            where = ", ".join(map(str, coords))
            sentences += [f"{where}: {sentence}" for sentence in training_findings(group_scores, variants)]
            blocks.append(score_chart(group_scores, where))
    return _section(run, "training", sentences, blocks)


def of_probing(run: Any) -> Section:
    """What every head of every model knows."""
    blocks: list[Any] = []
    sentences: list[str] = []
    if "test.nc" not in run.files:
        return _section(run, "probing", sentences, blocks)
    for model in dict.fromkeys(run.table("embeddings")["model"]):
        values, embeddings = _maps(run, "test", model=model), run.table("embeddings", model=model)
        blocks.append(HeadMaps(f"heads-{model}", f"What every head of {model} knows", "probe score", values))
        draw = partial(probing_figures.heatmaps, values, sort=True)
        blocks.append(
            Chart(
                f"heads-sorted-{model}", f"The same, heads of each layer of {model} from best to worst", draw
            )
        )
        if (
            "sweep.parquet" in run.files
            and (sweep := run.table("sweep", model=model)).groupby("task")["n"].nunique().max() > 1
        ):
            draw = partial(probing_figures.sweep, sweep, embeddings)
            blocks.append(
                Chart(f"sweep-{model}", f"Score over the number of heads of {model}", draw, BARS_NOTE)
            )
        if "syntactic-semantic.parquet" in run.files:
            draw = partial(probing_figures.syntactic_semantic, run.table("syntactic-semantic", model=model))
            blocks.append(
                Chart(
                    f"syntactic-semantic-{model}", f"Syntactic and semantic heads of {model} (Fig. 5)", draw
                )
            )
        comparison = top_against(embeddings, "last")
        if comparison:
            sentences.append(f"{model}: {comparison}")
    return _section(run, "probing", sentences, blocks)


def of_finetuning(run: Any) -> Section:
    """Every head before fine-tuning, and after it from each embedding."""
    blocks: list[Any] = []
    for model in dict.fromkeys(str(task["coords"]["model"]) for task, _ in run.results("fine-tune")):
        before = _maps(run, "test", "probe-task", model=model)
        after = _maps(run, "after", "fine-tune", model=model)
        if "embedding" not in after.dims:
            after = after.expand_dims("embedding")
        columns = {str(name): after.sel(embedding=name) for name in after["embedding"].values}
        draw = partial(probing_figures.before_and_after, before, columns)
        blocks.append(
            Chart(f"shift-{model}", f"Heads of {model} before and after fine-tuning (Fig. 4)", draw)
        )
    sentences: list[str] = []
    if "fine-tuning.parquet" in run.files:
        sentences = _best_sources(run.table("fine-tuning"))
    return _section(run, "head-finetuning", sentences, blocks)


def _best_sources(table: pd.DataFrame) -> list[str]:
    """From which embedding each model was fine-tuned best, by medians over seeds."""
    sentences = []
    for model, rows in table.groupby("model", sort=False):
        best = rows.loc[rows.groupby(["task", "metric"], sort=False)["median"].idxmax()]
        counts = ", ".join(f"{name} for {count}" for name, count in best["embedding"].value_counts().items())
        sentences.append(
            f"{model}: of {len(best)} tasks and metrics the median over seeds is highest from {counts}; no "
            "test was made."
        )
    return sentences


def _maps(run: Any, name: str, step: str | None = None, **where: Any) -> Any:
    """An array of the run with a dimension of tasks, though there may be one only."""
    values = run.array(name, step, **where).drop_vars("model", errors="ignore")
    if "task" not in values.dims:
        values = values.expand_dims("task")
    return values.transpose(..., "task", "layer", "head")


def _named(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with short names of models: a folder's own name without its path, unless two would have the
    same."""
    if "model" not in frame:
        return frame
    labels = {str(model): model_label(model) for model in dict.fromkeys(frame["model"])}
    short = {path: Path(label).name if Path(label).is_absolute() else label for path, label in labels.items()}
    names = {
        path: name if list(short.values()).count(name) == 1 else labels[path] for path, name in short.items()
    }
    return frame.assign(model=frame["model"].map(lambda model: names[str(model)]))


def _section(run: Any, kind: str, sentences: list[str], blocks: list[Any]) -> Section:
    there = {name: title for name, title in SHOWN[kind].items() if f"{name}.parquet" in run.files}
    for name, title in there.items():
        detail = name != next(iter(there))
        blocks.append(Table(f"{kind}-{name}", title, _named(run.table(name)), CAPTIONS.get(name, ""), detail))
    marked = "embeddings" if kind == "probing" else "scores"
    made_up = synthetic_rows(optional_table(run, marked))
    tenth = HELD_OUT if run.recipe.get("tasks", {}).get("held_out") else ""
    return Section(kind.capitalize(), sentences, blocks, METHODS[kind] + tenth + made_up)
