"""`headwise dissociate`: do tasks need different heads?"""

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from headwise.cli.common import Trust, Verb, emit, print_table
from headwise.cli.subjects import MaxLength, Metric, Size, open_for_tasks, said

SHOWN = ("performance", "pairs")
FIGURES = ("relative", "corrected", "pairs", "layers", "overlap", "scores")


def register(app: typer.Typer) -> None:
    """Adds the verb to the command line."""
    app.command("dissociate", cls=Verb)(dissociate)


def dissociate(
    model: Annotated[str, typer.Option("--model", "-m", help="A folder of `headwise train`.")],
    tasks: Annotated[
        list[str] | None, typer.Option(help="Presets, grammar:topic, names in --tasks-file; default: the model's.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder that holds the presets' data sets; default: the model's, else the hub.")
    ] = None,
    tasks_file: Annotated[Path | None, typer.Option(help="TOML file that defines tasks.")] = None,
    fraction: Annotated[float, typer.Option(help="Share of all heads silenced for each task, 0-1.")] = 0.3,
    fractions: Annotated[list[float] | None, typer.Option(help="Further shares, for a sweep.")] = None,
    method: Annotated[str, typer.Option(help="How heads are scored; see `headwise score`.")] = "gate-gradient",
    variant: Annotated[
        str | None, typer.Option(help="Of gate-gradient: eq4, michel, iap, iat, bertology, super-tickets.")
    ] = None,
    scores: Annotated[
        Path | None, typer.Option(help="Head scores that `headwise score --out` saved, instead of new ones.")
    ] = None,
    random_draws: Annotated[int, typer.Option(help="Random sets of heads for the random row.")] = 10,
    test_draws: Annotated[int, typer.Option(help="Re-splits of the test of D for each pair; 199 or more, 0 for none.")] = 0,
    within_layers: Annotated[bool, typer.Option(help="The test re-splits heads within layers.")] = False,
    also: Annotated[list[str] | None, typer.Option(help="Also silence by mean and/or resample.")] = None,
    min_per_layer: Annotated[int, typer.Option(help="Heads of each layer that are never silenced.")] = 0,
    split: Annotated[str, typer.Option(help="Held-out split that lesions are judged on.")] = "validation",
    examples: Annotated[int | None, typer.Option(help="Most held-out examples of each task; default: all.")] = None,
    score_examples: Annotated[int, typer.Option(help="Most training examples to score on.")] = 10_000,
    bootstrap: Annotated[int, typer.Option(help="Resamples of the examples for intervals.")] = 1000,
    max_length: MaxLength = None,
    metric: Metric = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples at a time; the result does not depend on it.")] = None,
    size: Size = None,
    seed: Annotated[int, typer.Option(help="Of samples, random sets and tests.")] = 0,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, ...; default: a GPU if there is one.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Save everything here; a finished one is shown again.")] = None,
    figures: Annotated[bool, typer.Option(help="With --out, also draw the figures.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    trust_remote_code: Trust = False,
) -> None:
    """Silences each task's most important heads and compares what that does to every task: D, verdicts, tests.

    headwise dissociate --model runs/five --fraction 0.3 --test-draws 199 --out runs/five-dissociation
    """
    from headwise.decoders.memory import remembered_tasks
    from headwise.figures.style import panels
    from headwise.lesions import dissociate as run
    from headwise.loading import load
    from headwise.runs.decision import decision
    from headwise.runs.entry import Entry
    from headwise.scoring.saving import load_scores

    asked = {
        "fraction": fraction, "fractions": fractions, "method": method, "variant": variant,
        "scores": scores, "random_draws": random_draws, "test_draws": test_draws,
        "within_layers": within_layers, "also": also, "min_per_layer": min_per_layer, "split": split, "examples": examples,
        "score_examples": score_examples, "bootstrap": bootstrap, "max_length": max_length, "metric": metric, "seed": seed,
    }  # fmt: skip
    entry, result = None, None
    if out is not None:
        # what the model remembers of its tasks is part of its own content
        judged = remembered_tasks(model, tasks, data, tasks_file, size=size, metric=metric)
        entry = Entry(out, decision("dissociate", asked, model=model, tasks=judged, splits=("train", split)))
        result = load(out) if entry.finished else None
    if out is not None and figures:
        panels()  # says at once if matplotlib is missing, not after the work
    if result is None:
        answering, found = open_for_tasks(model, tasks, data, tasks_file, size=size, metric=metric, device=device)
        if test_draws and not as_json:
            own, tests = len(found) * (len(found) + 1 + random_draws), 2 * test_draws * len(found) * (len(found) - 1)
            typer.echo(f"the tests of D take {tests} evaluations of a task, beside the study's {own}", err=True)
        result = run(
            answering,
            found,
            fraction=fraction,
            fractions=fractions or (),
            method=method,
            options={"variant": variant},
            scores=None if scores is None else load_scores(scores),
            random_draws=random_draws,
            test_draws=test_draws,
            within_layers=within_layers,
            also=also or (),  # type: ignore[arg-type]
            min_per_layer=min_per_layer,
            split=split,
            examples=examples,
            score_examples=score_examples,
            bootstrap=bootstrap,
            max_length=max_length,
            batch_size=batch_size,
            seed=seed,
            quiet=as_json,
        )
        if out is not None and entry is not None:
            result.save(out, **entry.seals())
    if out is not None and figures and not (out / "figures").is_dir():
        _draw(result, out)
    if emit(_record(result, out), as_json):
        return
    for kind in SHOWN:
        table = result.table(kind)
        table = table.reset_index() if kind == "performance" else table
        print_table(kind, [str(name) for name in table.columns], table.to_numpy().tolist(), _caption(result, kind))
    for note in [*result.notes, *(entry.notes if entry is not None else [])]:
        typer.echo(f"note: {note}")
    if out is not None:
        typer.echo(f"tables and figures in {out}")


def _draw(result: Any, out: Path) -> None:
    from headwise.figures.style import save

    wanted = [*FIGURES, *(["sweep"] if result.fractions else []), *(["null"] if result.tests else [])]
    for kind in wanted:
        save(result.plot(kind), out / "figures" / kind)


def _caption(result: Any, kind: str) -> str:
    if kind == "performance":
        known = "metrics" in result.settings  # results saved before this was noted are shown without it
        judged = f"; {said(result.settings['metrics'], result.settings['max_length'])}" if known else ""
        n, total = result.settings["heads_each"], result.settings["heads_total"]
        return f"percent; T† = the {n} of {total} heads most important to T silenced, by {result.settings['method']}{judged}"
    test = result.permutation
    low, high = result.analysis.d_interval()
    p = f"; permutation p = {test.p:.3g}" if len(result.tasks) > 2 else ""
    d = (
        f"D = {100 * result.d:.2f} [{100 * low:.2f}, {100 * high:.2f}]"
        if not math.isnan(result.d)
        else "D is not defined, see the notes"
    )
    return f"percent; {d}{p}; distinct: both positive and D ≥ 10 %"


def _record(result: Any, out: Path | None) -> dict[str, Any]:
    return {
        "D": result.d,
        "D_interval": result.analysis.d_interval(),
        "permutation_p": result.permutation.p,
        "tables": {
            kind: result.table(kind).reset_index().to_dict("records") for kind in ("performance", "summary", "pairs", "overlap")
        },
        "sets": {name: [list(head) for head in chosen] for name, chosen in result.sets.items()},
        "notes": result.notes,
        "settings": result.settings,
        "out": str(out) if out else None,
    }
