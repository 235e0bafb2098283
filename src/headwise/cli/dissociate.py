"""`headwise dissociate`: do tasks need different heads?"""

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from headwise.cli.common import Device, Json, emit, print_table
from headwise.cli.subjects import open_for_tasks, said
from headwise.cli.verbs import verb
from headwise.lesions._settings import Dissociate
from headwise.tasks._source import TaskSource

SHOWN = ("performance", "pairs")
FIGURES = ("relative", "corrected", "pairs", "layers", "overlap", "scores")


def register(app: typer.Typer) -> None:
    """Adds the verb to the command line."""
    verb(app, "dissociate", dissociate)


def dissociate(
    source: TaskSource,
    settings: Dissociate,
    model: Annotated[str, typer.Option("--model", "-m", help="A folder of `headwise train`.")],
    device: Device = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Save everything here; a finished one is shown again.")] = None,
    figures: Annotated[bool, typer.Option(help="With --out, also draw the figures.")] = True,
    as_json: Json = False,
) -> None:
    """Silences each task's most important heads and compares what that does to every task: D, verdicts, tests.

    headwise dissociate --model runs/five --fraction 0.3 --test-draws 199 --out runs/five-dissociation
    """
    from headwise.figures._style import panels
    from headwise.lesions import dissociate as run
    from headwise.models._memory import remembered_tasks
    from headwise.store._decision import decision
    from headwise.store._entry import Entry
    from headwise.store._loading import load

    if settings.scores is not None:
        settings = settings.with_changes(scores=Path(settings.scores))  # counts by its content
    entry, result = None, None
    if out is not None:
        # what the model remembers of its tasks is part of its own content
        judged = remembered_tasks(model, source)
        asked = {**settings.decides(), "metric": source.metric}  # without one, the metric that the model remembers holds
        entry = Entry(out, decision("dissociate", asked, model=model, tasks=judged, splits=("train", settings.split)))
        result = load(out) if entry.finished else None
    if out is not None and figures:
        panels()  # says at once if matplotlib is missing, not after the work
    if result is None:
        answering, found = open_for_tasks(model, source, device, settings.dtype)
        if settings.test_draws and not as_json:
            own = len(found) * (len(found) + 1 + settings.random_draws)
            tests = 2 * settings.test_draws * len(found) * (len(found) - 1)
            typer.echo(f"the tests of D take {tests} evaluations of a task, beside the study's {own}", err=True)
        result = run(answering, found, **settings.given() | {"quiet": settings.quiet or as_json})
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
    from headwise.figures._style import save_figure

    wanted = [*FIGURES, *(["sweep"] if result.fractions else []), *(["null"] if result.tests else [])]
    for kind in wanted:
        save_figure(result.plot(kind), out / "figures" / kind)


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
