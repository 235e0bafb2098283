"""`headwise dissociate`: do tasks need different heads?"""

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from headwise._base.least import EXPLAINED
from headwise.cli.common import Figures, Json, check_drawing, emit, of_model, own_bars, print_table
from headwise.cli.subjects import judged_on, made_up, said
from headwise.lesions._settings import Dissociate
from headwise.tasks._source import TaskSource

SHOWN = ("performance", "pairs")
MATCHED = "percent; a task's own heads against sets of other heads of the same layers that harm the other tasks at least as much"


def dissociate(
    source: TaskSource,
    settings: Dissociate,
    model: Annotated[str, of_model("A folder that `headwise train` wrote.")],
    figures: Figures = True,
    as_json: Json = False,
) -> None:
    """Silences each task's most important heads and measures what every task loses: dissociation score D, verdicts, tests.

    headwise dissociate --model runs/five --fraction 0.3 --test-draws 199 --out runs/five-dissociation
    """
    from headwise.figures._style import save_figure
    from headwise.lesions import dissociate as run
    from headwise.models._memory import remembered_tasks

    out = settings.out
    if out is not None and figures:
        check_drawing()
    own_bars()
    found = remembered_tasks(model, source)
    if (settings.test_draws or settings.matched_draws) and not as_json and not (out is not None and out.exists()):
        own = len(found) * (len(found) + 1 + settings.random_draws)
        tests = 2 * settings.test_draws * len(found) * (len(found) - 1) + settings.matched_draws * len(found) ** 2
        typer.echo(f"the tests of D add at most {tests} evaluations of a task to the {own} of the lesions", err=True)
    result = run(model, found, **settings.given() | {"quiet": settings.quiet or as_json})
    if out is not None and figures and not (out / "figures").is_dir():
        for kind in result.figures:
            save_figure(result.plot(kind), out / "figures" / kind)
    if emit(_record(result, out), as_json):
        return
    for kind in SHOWN:
        table = result.table(kind)
        table, reasons = (table.reset_index(), []) if kind == "performance" else _narrow(table, result.settings["level"])
        print_table(kind, [str(name) for name in table.columns], table.to_numpy().tolist(), _caption(result, kind))
        for number, reason in enumerate(reasons, 1):
            typer.echo(f"[{number}] {reason}")
    if result.matched:
        matched = result.table("matched").drop(columns="note").round({"RP own": 1, "RP matched": 1, "difference": 1})
        print_table("matched", list(matched.columns), matched.to_numpy().tolist(), MATCHED)
    for note in filter(None, (judged_on(found), *result.notes)):
        typer.echo(f"note: {note}")
    typer.echo(EXPLAINED)
    if out is not None:
        typer.echo(f"tables {'and figures ' if (out / 'figures').is_dir() else ''}in {out}")


def _narrow(pairs: Any, level: float) -> tuple[Any, list[str]]:
    """The pairs as a terminal has room for them: a pair in one column, the ends of its interval in another, p only where there was a test;
    a reason why something is missing is a number in the column of notes, and a line below the table."""
    reasons = list(dict.fromkeys(note for note in pairs["note"] if note))
    numbers = {reason: f"[{number}]" for number, reason in enumerate(reasons, 1)}
    ends = zip(pairs["D_low"], pairs["D_high"], strict=True)
    tested = [name for name in ("p", "p_fdr") if pairs[name].notna().any()]
    names = ["D_A", "D_B", "D", "D_corrected", "verdict", "overlap", *tested]
    shown = pairs[names].round({name: 1 for name in names if name not in tested}).rename(columns={"D_corrected": "D corrected"})
    shown.insert(0, "pair", pairs["A"] + " – " + pairs["B"])
    spans = ["–" if math.isnan(low) else f"{low:.1f} to {high:.1f}" for low, high in ends]
    shown.insert(4, f"{100 * level:g} % interval", spans)
    return (shown.assign(note=[numbers.get(note, "") for note in pairs["note"]]) if reasons else shown), reasons


def _caption(result: Any, kind: str) -> str:
    if kind == "performance":
        known = "metrics" in result.settings  # results saved before this was noted are shown without it
        judged = f"; {said(result.settings['metrics'], result.settings['max_length'])}" if known else ""
        n, total = result.settings["heads_each"], result.settings["heads_total"]
        silenced = f"T† = the {n} of {total} heads most important to T silenced, by {result.settings['method']}{judged}"
        return "; ".join(filter(None, ("percent", silenced, made_up(result.synthetic), result.random_note)))
    from headwise.figures._blocks import between

    test = result.permutation
    low, high, why = result.analysis.d_bounds()
    p = "no permutation test, see the notes" if math.isnan(test.p) else f"permutation p = {test.p:.3g} (of this model's lesions)"
    if math.isnan(result.d):
        return f"percent; D is not defined, see the notes; {p}"
    span = f" (no interval: {why})" if why else f"{between(100 * low, 100 * high, 2, result.settings['level'])}, over examples"
    tested = "" if result.tests else "; no p of pairs: the re-split test was not run (--test-draws 199)"
    verdicts = "verdicts: the paper's thresholds on point estimates (distinct: both positive and D ≥ 10 %)"
    return f"percent; D = {100 * result.d:.2f}{span}; {p}{tested}; {verdicts}"


def _record(result: Any, out: Path | None) -> dict[str, Any]:
    low, high, why = result.analysis.d_bounds()
    return {
        "D": result.d,
        "D_interval": None if why else (low, high),
        "D_interval_note": why,
        "permutation_p": result.permutation.p,
        "permutation_note": result.permutation.note,
        "random_note": result.random_note,
        "synthetic": list(result.synthetic),
        "tables": {
            kind: result.table(kind).reset_index().to_dict("records")
            for kind in ("performance", "summary", "pairs", "overlap", "matched")
        },
        "sets": {name: [list(head) for head in chosen] for name, chosen in result.sets.items()},
        "notes": result.notes,
        "settings": result.settings,
        "out": str(out) if out else None,
    }
