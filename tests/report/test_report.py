"""The report without a browser: it names the numbers of the run, escapes text, and writes figures for papers."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import headwise as hw
from headwise import grammar
from headwise.errors import HeadwiseError
from headwise.heads import default_model
from headwise.models import MultiTaskModel
from headwise.report import read, write_figures, write_report
from headwise.report.papers import latex
from headwise.sections import Table
from headwise.sections._cells import cell, decimals
from pictures import assert_drawn


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import AutoTokenizer, BertConfig, BertModel

    torch.manual_seed(0)
    tasks = grammar.tasks(["topic", "tense", "sentiment"], size=64)
    config = BertConfig(
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
        initializer_range=0.5,
    )
    model = MultiTaskModel(BertModel(config), AutoTokenizer.from_pretrained(default_model()), tasks).eval()
    return hw.dissociate(model, tasks, fraction=0.3, random_draws=2, fractions=(0.5,), quiet=True).save(
        tmp_path_factory.mktemp("r") / "saved"
    )


def test_every_number_of_the_tables_is_in_the_report(saved: Path, tmp_path: Path) -> None:
    page = write_report([saved], tmp_path / "report.html").read_text(encoding="utf-8")
    found = hw.load(saved)
    for kind in ("performance", "summary", "pairs", "pairwise"):
        table = found.table(kind)
        table = table.reset_index() if table.index.name else table
        numbers = table.drop(columns=[name for name in table if str(name).endswith(("low", "high"))])
        for _, values in numbers.select_dtypes("number").items():
            for value in values:
                assert f">{cell(value, decimals(values))}</td>" in page, (kind, value)
    data = json.loads(re.search(r'id="report-data">(.*?)</script>', page, re.DOTALL).group(1))  # type: ignore[union-attr]
    maps = data["maps"][0]
    assert np.allclose(np.array(maps["values"]), found.scores.to_numpy(), rtol=1e-4)
    assert {task: len(heads) for task, heads in maps["chosen"].items()} == {
        task: len(heads) for task, heads in found.sets.items()
    }
    figures = re.findall(r"<figure.*?</figure>", page, re.DOTALL)
    for value in found.table("relative").to_numpy().ravel():
        assert f">{value:.1f}</text>" in figures[0]
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert write_report([saved], tmp_path / "again.html").read_text(encoding="utf-8") == page
    assert f"the dissociation score D is {100 * found.d:.1f} %" in page


def test_nothing_is_loaded_from_elsewhere_and_text_stays_text(saved: Path, tmp_path: Path) -> None:
    page = write_report([saved], tmp_path / "r.html", title="<script>alert(1)</script>").read_text(
        encoding="utf-8"
    )
    assert "<script>alert(1)</script>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert not re.search(r"""(src|href)=["'](https?:)?//|url\((?!#)|@import""", page)
    assert len(page.encode()) < 300_000


def test_figures_and_tables_for_papers(saved: Path, tmp_path: Path) -> None:
    files = write_figures([saved], tmp_path / "figures")
    names = {file.name for file in files}
    assert {
        "head-scores.pdf",
        "head-scores.png",
        "lesions.pdf",
        "pairs.pdf",
        "performance.tex",
        "performance.csv",
    } <= names
    for file in files:
        if file.suffix in (".pdf", ".png"):
            assert_drawn(file)
        else:
            assert file.read_text(encoding="utf-8").count("\n") >= 2, file
    text = (tmp_path / "figures" / "performance.tex").read_text(encoding="utf-8")
    assert r"topic$\dagger$" in text
    pd.testing.assert_frame_equal(
        pd.read_csv(tmp_path / "figures" / "pairs.csv"), hw.load(saved).table("pairs"), check_dtype=False
    )


def test_latex_escapes_what_latex_would_read() -> None:
    table = latex(Table("t", "title", pd.DataFrame({"a_b": ["50 % & {x}"], "±": [0.5]})))
    assert r"a\_b & $\pm$ \\" in table
    assert r"50 \% \& \{x\} & 0.500 \\" in table


def test_latex_has_the_digits_of_the_page() -> None:
    table = latex(
        Table("t", "title", pd.DataFrame({"D": [12.3456, -0.5], "n": [40, 7], "p": [0.00123, 1.0]}))
    )
    assert r"\begin{tabular}{rrr}" in table
    assert (
        "12.3 & 40 & 0.0012 " in table
    )  # three digits of a column's largest value; small ones keep two of their own
    assert "-0.5 & 7 & 1.00 " in table


def test_folders_without_results_are_named(tmp_path: Path) -> None:
    with pytest.raises(HeadwiseError, match="missing does not exist: give the folder of a run"):
        read([tmp_path / "missing"])
    (tmp_path / "page.html").write_text("x")
    with pytest.raises(HeadwiseError, match=r"page\.html is not a folder: give the folder of a run"):
        read([tmp_path / "page.html"])
    with pytest.raises(HeadwiseError, match="holds no results"):
        read([tmp_path])
