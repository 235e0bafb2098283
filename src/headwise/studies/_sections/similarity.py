"""Task similarity and its link with dissociation, as the study `similarity` leaves it."""

from functools import partial
from typing import Any

import pandas as pd

from headwise._base.least import EXPLAINED
from headwise._base.sentences import number, synthetic_rows
from headwise.figures import link_scatter, similarity_matrices
from headwise.sections import Chart, Section, Table
from headwise.studies._sections import optional_table

LINKED = "Mantel tests: p by relabelling tasks, the unit; not corrected for the number of similarities."
METRICS = ("DSE", "CRA", "CNM", "AHP", "heads")


def section(run: Any) -> Section:
    """The section of a similarity run."""
    pairs = run.table("similarity-pairs")
    metrics = [name for name in METRICS if name in pairs]
    tests = optional_table(run, "similarity-link")
    matrices = {name: run.array(name.lower()) for name in metrics}
    blocks: list[Any] = []
    for name, matrix in matrices.items():
        draw = partial(similarity_matrices, {name: matrix})
        blocks.append(Chart(f"similarity-{name.lower()}", f"Similarity of tasks by {name}", draw))
    if len(tests):
        for name in metrics:
            draw = partial(link_scatter, pairs, tests, [name])
            blocks.append(Chart(f"link-{name.lower()}", f"Similarity by {name} and dissociation", draw))
        blocks.append(Table("similarity-link", "Correlation with dissociation over pairs", tests, LINKED))
    if "agreement.parquet" in run.files:
        blocks.append(
            Table(
                "similarity-agreement",
                "Agreement of the metrics",
                run.table("agreement"),
                "Over task pairs.",
                detail=True,
            )
        )
    blocks.append(Table("similarity-pairs", "Every pair", pairs))
    made_up = synthetic_rows(optional_table(run, "similarity-tasks"))
    return Section(
        title="Task similarity",
        findings=findings(tests, pairs, metrics),
        blocks=blocks,
        methods="DSE: mean cosine of sentence vectors; CRA: Spearman of dissimilarity matrices; CNM: cosine "
        "of voxel-wise encoding scores; AHP: pair-wise transfer; heads: rank correlation of head scores. "
        "Correlations over pairs are tested by relabelling tasks; p is not corrected for the number of "
        f"metrics. {EXPLAINED}.{made_up}",
    )


def findings(tests: pd.DataFrame, pairs: pd.DataFrame, metrics: list[str]) -> list[str]:
    """The link of every metric, or the most and least similar pairs."""
    if len(tests):
        rows = tests[tests["kind"] == "pearson"]
        return [_link_finding(row, len(pairs)) for row in rows.itertuples()]
    sentences = []
    for name in metrics:
        ordered: Any = pairs.sort_values(name).to_dict("records")
        least, most = ordered[0], ordered[-1]
        if len(ordered) == 1:
            sentences.append(
                f"By {name}, the similarity of {most['task']} and {most['other']} is {number(most[name], 2)}."
            )
        else:
            sentences.append(
                f"By {name}, {most['task']} and {most['other']} are most alike ({number(most[name], 2)}), "
                f"{least['task']} and {least['other']} least ({number(least[name], 2)})."
            )
    return sentences


def _link_finding(row: Any, pairs: int) -> str:
    values = f"r = {number(row.correlation, 2)} over {pairs} pairs"
    if pd.isna(row.p):
        return (
            f"Task similarity by {row.similarity} and dissociation: {values}; "
            f"{getattr(row, 'note', '') or 'no test'}."
        )
    if row.p >= 0.05:
        return (
            f"No link of task similarity by {row.similarity} with dissociation could be shown: {values} "
            f"(Mantel p = {row.p:.3g})."
        )
    way = "more" if row.correlation > 0 else "less"
    return (
        f"Task similarity by {row.similarity} is associated with {way} dissociation: {values} (Mantel p = "
        f"{row.p:.3g})."
    )
