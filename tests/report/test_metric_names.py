"""Metrics have the names of the field wherever people read them; the data keep their identifiers."""

import pandas as pd

from headwise.report.html import render
from headwise.report.papers import latex
from headwise.sections import Section, Table
from headwise.training import _section as training


def test_metrics_have_names_in_pages_papers_terminals_and_findings() -> None:
    frame = pd.DataFrame({"task": ["ner", "stsb"], "metric": ["count-f1", "spearman"], "score": [0.8, 0.9]})
    table = Table("scores", "Scores", frame)
    section = Section("Results", [], [table])
    for shown in (render([section], "report"), latex(table), repr(section), section._repr_html_()):
        assert "F1" in shown
        assert "Spearman correlation" in shown
        assert "count-f1" not in shown
    assert frame["metric"].to_list() == ["count-f1", "spearman"]
    rows = frame.assign(method="iat", seed=0, split="validation", chance=0.5, examples=9, at_chance=False)
    assert "unlike metrics (F1, Spearman correlation)" in training.training_findings(rows)[0]
