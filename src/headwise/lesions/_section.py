"""What is said of a dissociation of one model."""

import json
from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

import pandas as pd

from headwise._base.least import EXPLAINED
from headwise._base.sentences import NOT_SHOWN, between, no_interval, number, sign, synthetic_text
from headwise.sections import Chart, Effect, HeadMaps, Section, Table, held_out_note, judged_by

if TYPE_CHECKING:
    from headwise.lesions._result import Dissociation

# Multi-task BERT-base at α = 30 %, from the first paper's Tables 3 and 10 (QNLI and AG as its Table 10 has
# them).
PUBLISHED = {
    "mnli": (83.91, 80.68, 58.23, 7.28),
    "qqp": (87.64, 85.42, 69.43, 5.26),
    "qnli": (90.26, 85.05, 57.50, 9.84),
    "ag_news": (94.50, 93.65, 80.01, 11.07),
    "sst2": (92.05, 91.23, 82.45, 3.28),
}
PAPER = "Li et al. 2023"
MATCHED = (
    "Percent; matched: sets of other heads of the same layers that harm the other tasks at least as much."
)
THRESHOLDS = "the paper's thresholds on point estimates (distinct: both positive and D ≥ 10 %)"
VERDICTS = {
    "distinct": "distinct",
    "double": "with a double dissociation below 10 %",
    "single": "with a single dissociation",
    "none": "without a dissociation",
    "wrong ranking": "with D_A and D_B both negative (each task suffers more from the other's lesion)",
}


def section(result: "Dissociation") -> Section:
    """The section of a dissociation."""
    settings = {
        "fraction": result.fraction,
        **result.settings,
        **json.loads(result.scores.attrs.get("settings", "{}")),
    }
    low, high, why = result.analysis.d_bounds()
    return Section(
        title="Which heads each task needs",
        findings=findings(result),
        blocks=blocks(result),
        methods=(
            f"Heads were scored by {_scored_by(settings)} on training data; each task's top "
            f"{result.settings['heads_each']} of {result.settings['heads_total']} heads "
            f"({100 * result.fraction:g} % over the whole model) were silenced and every task evaluated on "
            "held-out data. RP is performance under a lesion over intact performance; D_i = mean over other "
            "tasks' lesions of RP_i minus RP_i under its own (Eq. 5–7; tables and figures are numbered as "
            f"in {PAPER}). {_of_intervals(result)}{_of_tasks(result)}"
        ),
        settings=settings,
        notes=result.notes,
        values={
            "D": result.d,
            "D_interval": None if why else (low, high),
            "D_interval_note": why,
            "permutation_p": result.permutation.p,
            "permutation_note": result.permutation.note,
            "random_note": result.random_note,
            "synthetic": list(result.synthetic),
            "sets": {name: list(map(list, heads)) for name, heads in result.sets.items()},
        },
    )


def _of_tasks(result: "Dissociation") -> str:
    """How the tasks were judged and read, and whose text was generated."""
    facts = result.settings
    # results saved before this was noted lack it
    how = judged_by(facts["metrics"], facts["max_length"]) if "metrics" in facts else ""
    return f"{how}{held_out_note(facts.get('held_out', ()))}{synthetic_text(result.synthetic)}"


def _scored_by(settings: Mapping[str, Any]) -> str:
    """How heads were scored; Eq. 4 is one variant of one method."""
    method, variant = settings.get("method", "gate-gradient"), settings.get("variant") or "eq4"
    if method != "gate-gradient":
        return str(method)
    return f"{method} (Eq. 4)" if variant == "eq4" else f"{method}, variant {variant}"


def _of_intervals(result: "Dissociation") -> str:
    """What the intervals are, or why there are none."""
    if result.table("summary")["D low"].isna().all():
        return f"There is no interval of D: {result.analysis.d_bounds().why}. {EXPLAINED}."
    return (
        "Intervals: bootstrap over examples, head sets fixed; each is at its own level, not corrected for "
        f"the number of tasks or pairs, and says nothing about other training seeds. {EXPLAINED}."
    )


def findings(result: "Dissociation") -> list[str]:
    """What the tables say, in sentences."""
    tasks = list(result.tasks)
    summary, performance, pairs = (result.table(kind) for kind in ("summary", "performance", "pairs"))
    everything = summary.loc["all"]
    low, high, level = everything["D low"], everything["D high"], float(result.settings["level"])
    made_up = " of synthetic text" if set(result.synthetic) == set(tasks) else ""
    own_heads = (
        f"on average over tasks, silencing a task's own top {100 * result.fraction:g} % of heads costs it"
    )
    if pd.isna(low):
        meaning = no_interval(result.analysis.d_bounds().why)
    elif direction := sign(low, high):
        more_or_less = "more" if direction > 0 else "less"
        meaning = f"{own_heads} {more_or_less} than silencing another task's"
    else:
        meaning = f"{NOT_SHOWN} between a task's own heads and the other tasks'"
    sentences = [
        f"Over {len(tasks)} tasks{made_up} the dissociation score D is {number(everything['D'])} "
        f"%{between(low, high, level=level)}: {meaning}."
    ]
    if not pd.isna(result.permutation.p):
        sentences.append(
            f"The permutation test of D, over this model's lesions, gives p = {result.permutation.p:.3g}."
        )
    each = zip(summary.drop("all").iterrows(), result.analysis.d_i_bounds(), strict=True)
    sentences += [_task_finding(str(task), row, level, bounds.why) for (task, row), bounds in each]
    if "random" in performance.index:
        under_own = pd.Series({task: float(performance.loc[f"{task}†", task]) for task in tasks})
        random, intact = (performance.loc[row, tasks].astype(float) for row in ("random", "intact"))
        sentence = (
            "The same number of random heads changes a task by "
            f"{number((random - intact).mean(), sign=True)} points on average, its own heads by "
            f"{number((under_own - intact).mean(), sign=True)}"
        )
        draws = len(result.random)
        if draws > 1 and "random lowest" in performance.index:
            lowest = performance.loc["random lowest", tasks].astype(float)
            sentence += (
                f"; {int((under_own < lowest).sum())} of {len(tasks)} tasks fall below every one of the "
                f"{draws} random sets drawn, as a further random set would with probability "
                f"{100 / (draws + 1):.2g} %"
            )
        sentences.append(sentence + ".")
    sentences.append(_verdicts(result, pairs))
    sentences += _resplit_finding(pairs)
    sentences += _own_heads(result.table("matched"))
    shared = pairs["overlap"]
    low, high = number(shared.min(), 0), number(shared.max(), 0)
    span = low if low == high else f"{low} to {high}"
    sentences.append(f"Two tasks' head sets share {span} % of their heads.")
    return sentences


def _verdicts(result: "Dissociation", pairs: pd.DataFrame) -> str:
    """What the pairs of tasks are called, and in how many of them the interval of D lies above 0."""
    above, bounded = int((pairs["D_low"] > 0).sum()), int(pairs["D_low"].notna().sum())
    rule = f"by the thresholds of {PAPER} on point estimates"
    if len(pairs) == 1:
        sentence = f"The pair of tasks, {rule}: {VERDICTS[str(pairs['verdict'].iloc[0])]}"
        interval = "lies above 0" if above else "does not lie above 0"
    else:
        counts = pairs["verdict"].value_counts()
        verdicts = [f"{count} {VERDICTS[str(verdict)]}" for verdict, count in counts.items()]
        sentence = f"Pairs of tasks, {rule}: {', '.join(verdicts)}"
        interval = f"lies above 0 for {above} of the {bounded} that have one"
    if not bounded:
        return f"{sentence}. {_lacking(result)}"
    return f"{sentence}; the interval of D {interval}."


def _resplit_finding(pairs: pd.DataFrame) -> list[str]:
    """What the re-split test shows, as a sentence; none where it was not run."""
    tested = pairs["p_fdr"].notna()
    if not tested.any():
        return []
    passed, n_tested = int((pairs.loc[tested, "p_fdr"] < 0.05).sum()), int(tested.sum())
    whose = "it matters which heads belong to which task"
    if not passed:
        return [f"The re-split test of D could not show for any of {n_tested} pairs that {whose}."]
    return [f"By the re-split test of D, {whose} in {passed} of {n_tested} pairs (false discovery rate 5 %)."]


def _own_heads(matched: pd.DataFrame) -> list[str]:
    """In how many tasks their heads were shown to be their own, as a sentence; none where that was not
    tested."""
    tested = matched["p_fdr"].notna()
    if not tested.any():
        return []
    passed = int((matched.loc[tested, "p_fdr"] < 0.05).sum())
    than = "than sets of other heads of the same layers do that harm the other tasks at least as much"
    return [
        f"In {passed} of {int(tested.sum())} tasks tested, silencing a task's own heads costs it more {than} "
        "(false discovery rate 5 %)."
    ]


def _task_finding(task: str, row: Any, level: float, why: str) -> str:
    """One task under its own lesion, beside the same task under the others'."""
    values = (
        f"{task} keeps {number(row['RP own'])} % of its performance without its own heads and "
        f"{number(row['RP others'])} % without another task's (D_i {number(row['D'])} "
        f"%{between(row['D low'], row['D high'], level=level)})"
    )
    if pd.isna(row["D low"]):
        return f"{values}: {no_interval(why)}."
    direction = sign(row["D low"], row["D high"])
    if not direction:
        return f"{values}: {NOT_SHOWN}."
    if direction > 0:
        return f"{values}: its own matter more to it."
    return f"{values}: its own matter less to it."


def effects(result: "Dissociation") -> dict[str, list[Effect]]:
    """Relative performance of each task without its own heads and, on average, without another task's, with
    intervals."""
    analysis = result.analysis
    shown: dict[str, list[Effect]] = {}
    for column, task in enumerate(analysis.tasks):
        other_rows = [row for row in range(len(analysis.tasks)) if row != column]
        sides = {"without its own heads": [column], "without another task's heads": other_rows}
        shown[task] = []
        for name, rows in sides.items():
            if not rows:
                continue
            low, high, _ = analysis.rp_bounds(rows, column)
            mean = float(analysis.rp[rows, column].mean())
            shown[task].append(Effect(name, 100 * mean, 100 * low, 100 * high))
    return shown


def blocks(result: "Dissociation") -> list[Table | Chart | HeadMaps]:
    """Figures and tables in the order of the paper."""
    return [*_figures(result), *_tables(result)]


def _figures(result: "Dissociation") -> list[Chart | HeadMaps]:
    summary = result.table("summary")
    shares = effects(result)
    bounded = any(pd.notna(effect.low) for effect in chain.from_iterable(shares.values()))
    lines = f", lines: {_percent(result)} % intervals" if bounded else ""
    undefined = [str(task) for task, rp in summary["RP own"].drop("all").items() if pd.isna(rp)]
    missing = (
        f" No values: the metric of {', '.join(undefined)} is 0 or less when intact." if undefined else ""
    )

    def chart(name: str, title: str, kind: str, caption: str = "") -> Chart:
        return Chart(name, title, lambda: result.plot(kind), caption)

    shown: list[Chart | HeadMaps] = [
        HeadMaps(
            "head-scores",
            "Importance of every head",
            "importance",
            result.scores,
            result.sets,
            f"Framed: the top {100 * result.fraction:g} % of heads of a task. Bars: performance of the task "
            f"when these, or those of another task, are silenced; 100 % is the intact model{lines}. Choose a "
            "head to see its ranks.",
            effects=shares,
            effect="of intact performance",
        ),
        chart(
            "lesions",
            "Performance under lesions, relative to intact",
            "relative",
            f"Rows: whose top heads are silenced. The diagonal is each task's own lesion.{missing}",
        ),
    ]
    # else no task is above chance: nothing to correct
    if not result.table("corrected").isna().all(axis=None):
        weak = result.analysis.uncorrected(range(len(result.tasks)))
        note = "100 is unharmed, 0 is chance: the floor of RP differs between tasks, this scale does not."
        note += f" No values: {weak}." if weak else ""
        shown.append(chart("lesions-corrected", "The same, corrected for chance", "corrected", note))
    layers = "The dash is the mean over tasks, σ the spread between tasks."
    shown += [
        chart("pairs", "Dissociation of every pair", "pairs", _bars(result)),
        chart("overlap", "Heads shared by two tasks", "overlap", f"Table 11 of {PAPER}."),
        chart("layers", "Where the chosen heads are (Fig. 4)", "layers", layers),
    ]
    if result.fractions:
        shown.append(chart("sweep", "Dissociation by fraction of heads", "sweep"))
    if any(len(test.null) for test in result.tests.values()):
        note = "The line is D of the pair; bars: D where heads are re-split."
        shown.append(chart("null", "Dissociation of re-split heads", "null", note))
    return shown


def _bars(result: "Dissociation") -> str:
    """The caption of the chart of pairs."""
    bounded = result.table("pairs")["D_low"].notna()
    interval = f"its {_percent(result)} % interval"
    without = f" {_lacking(result)}"
    if bounded.all():
        bars, without = f"D with {interval}", ""
    elif bounded.any():
        bars = f"D, with {interval} where it has one"
    else:
        bars = "D"
    return (
        f"Bars: {bars}; marks: its two halves. Dotted: 10 %, from where both-positive pairs count as "
        f"distinct.{without}"
    )


def _tables(result: "Dissociation") -> list[Table]:
    performance, pairs, pairwise, summary = (
        result.table(kind) for kind in ("performance", "pairs", "pairwise", "summary")
    )
    note = ". ".join(filter(None, ("T† = top heads of T silenced", result.random_note)))
    shown = [Table("performance", "Performance in percent (Table 3)", performance.reset_index(), f"{note}.")]
    if set(result.tasks) == set(PUBLISHED) and (summary.loc[list(PUBLISHED), "metric"] == "accuracy").all():
        names = ("intact", "random", "own heads silenced", "D_i")
        frame = pd.DataFrame(PUBLISHED, index=names).T.rename_axis("task").reset_index()
        note = (
            "BERT-base, five tasks, α = 30 %, from the first paper; compare only where model and tasks are "
            "the same."
        )
        shown.append(Table("published", "Published figures for these tasks", frame, note))
    bounded = summary["D low"].notna().any()
    spans = (
        f"Percent, with {_percent(result)} % intervals of D." if bounded else f"Percent. {_lacking(result)}"
    )
    if result.matched:
        shown.append(Table("matched", "Whether a task's heads are its own", result.table("matched"), MATCHED))
    return [
        *shown,
        Table("pairs", "Every pair of tasks", pairs, f"Percent; {_tested(result)}; verdicts: {THRESHOLDS}."),
        Table(
            "pairwise",
            "D_A of every pair (Table 10)",
            pairwise.reset_index(),
            "A in columns, B in rows; percent.",
            detail=True,
        ),
        Table("summary", "Every task", summary.reset_index(), spans, detail=True),
        Table(
            "overlap",
            "Heads shared by two tasks",
            result.table("overlap").reset_index(),
            "Percent of A's heads.",
            detail=True,
        ),
    ]


def _tested(result: "Dissociation") -> str:
    """What p of a pair is, or why there is none."""
    if not result.tests:
        return "no p: the re-split test was not run (--test-draws 199)"
    if result.table("pairs")["p"].notna().any():
        return "p is the re-split test's; p_fdr: false discovery rate"
    return "no p: the re-split test had too few splits, see note"


def _percent(result: "Dissociation") -> str:
    return f"{100 * float(result.settings['level']):g}"


def _lacking(result: "Dissociation") -> str:
    """Why pairs have no interval of D, as a sentence."""
    reasons = dict.fromkeys(bounds.why for bounds in result.analysis.pair_bounds().values() if bounds.why)
    return f"No interval: {'; '.join(reasons)}."
