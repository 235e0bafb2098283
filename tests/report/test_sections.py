"""Every kind of section shows the numbers of the tables it was given, on the page and in its figures."""

import json
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from headwise._base.places import default_model
from headwise.figures import _training as figures
from headwise.probing import Probes
from headwise.report.html import render
from headwise.scoring import HeadScores
from headwise.sections import Chart, HeadMaps, Section, Table
from headwise.sections._cells import shown_columns
from headwise.store._atomic import write_text
from headwise.studies._sections import grids, similarity, stemcells, transfer
from headwise.training import _section as training


class Kept:
    """A study's run with tables and arrays by name."""

    def __init__(
        self,
        tables: dict[str, pd.DataFrame],
        arrays: dict[str, xr.DataArray] | None = None,
        recipe: Any = None,
    ) -> None:
        self.tables, self.arrays, self.recipe = tables, arrays or {}, recipe or {}

    @property
    def files(self) -> set[str]:
        return {f"{name}.parquet" for name in self.tables} | {f"{name}.nc" for name in self.arrays}

    def table(self, name: str, **where: Any) -> pd.DataFrame:
        table = self.tables[name]
        for column, value in where.items():
            table = table[table[column] == value]
        return table

    def array(self, name: str, step: str | None = None, **where: Any) -> xr.DataArray:
        return self.arrays[name].sel(where) if where else self.arrays[name]


def block(section: Section, name: str, kind: Any = object) -> Any:
    (found,) = [part for part in section.blocks if part.name == name and isinstance(part, kind)]
    return found


def on_the_page(section: Section) -> str:
    """The page; every table's numbers are on it, every figure can be drawn and has something in it."""
    page = render([section], "a <title>")
    for part in section.blocks:
        if isinstance(part, Table):
            for column in shown_columns(part):
                for cell in column.cells:
                    assert f">{cell}</td>" in page, (part.name, cell)
        if isinstance(part, Chart | HeadMaps):
            axes = part.draw().axes
            assert any(ax.lines or ax.patches or ax.collections for ax in axes), part.name
    return page


SCORES = pd.DataFrame([
    {"task": task, "split": "validation", "metric": "accuracy", "score": score, "chance": 0.5, "method": method, "seed": seed, "examples": 9,
     "model": "bert", "sampling": "annealed"}
    for method, seed, values in (
        ("multi-task", 0, (0.70, 0.80)), ("multi-task", 1, (0.74, 0.84)), ("iat", 0, (0.75, 0.81)), ("iat", 1, (0.76, 0.88))
    )
    for task, score in zip(("qnli", "sst2"), values, strict=True)
])  # fmt: skip


def test_training_tables_means_over_seeds_and_pairs_seeds() -> None:
    table = training.wide(SCORES).set_index("task")
    assert table.loc["qnli", "multi-task"] == "72.0 ± 2.8"
    assert table.loc["average", "iat"] == "80.0 ± 2.8"
    assert table.loc["sst2", "chance"] == "50.0"
    said = " ".join(training.training_findings(SCORES))
    assert "77.0" in said
    assert "+3.00" in said  # (75 + 81)/2 − 75 and (76 + 88)/2 − 79, seed by seed and on average
    assert "chance" not in said
    weak = SCORES.assign(score=np.where(SCORES["task"] == "sst2", 0.5, SCORES["score"]))
    assert any("chance" in sentence and "sst2" in sentence for sentence in training.training_findings(weak))


def test_the_embedded_model_is_called_by_its_name() -> None:
    history = pd.DataFrame({"step": [0], "task": ["sst2"], "loss": [1.0]})
    description = {"model": default_model(), "tasks": {"sst2": "x"}, "method": "iat", "settings": {"seed": 0}}
    found = SimpleNamespace(
        scores=SCORES[SCORES["seed"] == 0], history=history, description=description, folder="runs/x"
    )
    section = training.trainings_section([found])
    assert section.methods.startswith("MiniLM (embedded) was trained on sst2; one task per step.")
    assert ">MiniLM (embedded)<" in render([section], "x")
    assert default_model() not in render([section], "x")


def test_training_charts_hold_every_seed_and_the_losses() -> None:
    ax = training.score_chart(SCORES).draw().axes[0]
    assert {line.get_label(): line.get_ydata().tolist() for line in ax.lines} == {
        "multi-task": pytest.approx([70, 80, 74, 84]),
        "iat": pytest.approx([75, 81, 76, 88]),
    }
    assert [text.get_text() for text in ax.get_xticklabels()] == ["qnli", "sst2"]
    assert [np.round(line.get_xdata()).tolist() for line in ax.lines] == [[0, 1, 0, 1]] * 2
    history = pd.DataFrame(
        {
            "step": range(4),
            "task": ["a", "a", "b", "b"],
            "loss": [4.0, 3.0, 2.0, 1.0],
            "method": "iat",
            "seed": 0,
        }
    )
    ax = figures.losses(pd.concat([history.assign(seed=1, loss=9.0), history])).axes[0]
    assert {line.get_label(): line.get_ydata().tolist() for line in ax.lines} == {
        "a, iat": [4.0, 3.0],
        "b, iat": [2.0, 1.0],
    }
    assert ax.get_ylabel() == "training loss"


def test_a_training_study_is_grouped_by_model_and_sampling() -> None:
    run = Kept(
        {
            "scores": SCORES,
            "training": pd.DataFrame(
                {"model": ["bert"], "method": ["iat"], "task": ["qnli"], "mean": [75.5]}
            ),
        }
    )
    section = grids.of_training(run)
    page = on_the_page(section)
    assert section.findings
    assert [part.name for part in section.blocks if isinstance(part, Chart)] == [
        "training-scores-bert, annealed"
    ]
    assert all(sentence.startswith("bert, annealed: ") for sentence in section.findings)
    assert "a &lt;title&gt;" in page


def test_variants_are_compared_with_their_methods_and_folders_shown_by_name() -> None:
    drift = SCORES[SCORES["method"] == "iat"].assign(
        method="iat-drift", score=lambda part: part["score"] - 0.01
    )
    run = Kept(
        {"scores": pd.concat([SCORES, drift]).assign(model="/a/long/path/bert")},
        recipe={"variants": {"iat-drift": {"method": "iat", "options": {"drift": True}}}},
    )
    said = grids.of_training(run).findings
    assert all(sentence.startswith("bert, annealed: ") for sentence in said)
    assert sum("iat-drift is -1.00 points from iat on average" in sentence for sentence in said) == 1
    assert sum("points from multi-task" in sentence for sentence in said) == 2
    same = pd.concat([SCORES.assign(model=f"/{folder}/bert") for folder in "ab"])
    assert {sentence.split(",")[0] for sentence in grids.of_training(Kept({"scores": same})).findings} == {
        "/a/bert",
        "/b/bert",
    }
    embedded = grids.of_training(Kept({"scores": SCORES.assign(model=default_model())}))
    assert embedded.findings[0].startswith("MiniLM (embedded), annealed: ")


def test_a_specialization_study_shows_its_grid() -> None:
    grid = pd.DataFrame(
        {"label": ["bert", "gpt2"], "a–b": [12.0, -3.0], "a–c": [4.0, 1.0], "average": [8.0, -1.0]}
    )
    pairs = pd.DataFrame({"A": ["a"], "B": ["b"], "D": [12.34]})
    section = grids.of_specialization(Kept({"grid": grid, "pairs-mean": pairs}))
    on_the_page(section)
    cells = block(section, "grid").draw().axes[0].collections[0]
    assert cells.get_array().tolist() == [[12.0, 4.0, 8.0], [-3.0, 1.0, -1.0]]
    assert [("8.0" in said, "2 of 2" in said) for said in section.findings[:1]] == [(True, True)]
    assert "1 of 2" in section.findings[1]


def test_a_probing_study_maps_every_model() -> None:
    values = xr.DataArray(
        np.random.default_rng(0).random((1, 2, 2, 3)), dims=("model", "task", "layer", "head"),
        coords={"model": ["bert"], "task": ["Depth", "Tense"]},
    )  # fmt: skip
    rows = [
        ("Depth", "last layer", 0.3),
        ("Depth", "top 3 heads", 0.5),
        ("Tense", "last layer", 0.6),
        ("Tense", "top 3 heads", 0.5),
    ]
    embeddings = pd.DataFrame(rows, columns=["task", "embedding", "test"]).assign(model="bert")
    section = grids.of_probing(Kept({"embeddings": embeddings, "probing": embeddings}, {"test": values}))
    on_the_page(section)
    np.testing.assert_array_equal(block(section, "heads-bert").values, values[0])
    assert "1 of 2" in section.findings[0]


def test_saved_probes_name_the_head_chosen_on_validation(tmp_path: Any) -> None:
    data = xr.Dataset(
        {
            "test": (("task", "layer", "head"), [[[0.9, 0.6], [0.5, 0.4]]]),
            "validation": (("task", "layer", "head"), [[[0.5, 0.8], [0.5, 0.4]]]),
            "majority": ("task", [0.5]),
        },
        coords={"task": ["Depth"]},
    )
    rows = {"last layer": 0.31, "best layer": 0.42, "top 2 heads": 0.73}
    embeddings = pd.DataFrame({"task": "Depth", "embedding": list(rows), "test": list(rows.values())})
    sweep = pd.DataFrame({"task": "Depth", "n": [2, 1], "test": [0.73, 0.6], "stderr": 0.01})
    section = Probes(
        data.assign(synthetic=("task", [False] * data.sizes["task"])).assign_attrs(seed=3),
        embeddings,
        sweep,
        {},
        {},
    ).section()
    on_the_page(section)
    table = block(section, "probing").frame.set_index("task").loc["Depth"]
    assert table[
        ["last layer", "best layer", "top 2 heads", "best head", "majority"]
    ].tolist() == pytest.approx([31, 42, 73, 60, 50])
    assert any(
        "0.1" in said and "60.0" in said for said in section.findings
    )  # head 0.1, not 0.0, which is best on test
    assert block(section, "head-sweep").draw().axes[0].lines[0].get_ydata().tolist() == pytest.approx(
        [0.6, 0.73]
    )
    drawn = block(section, "embeddings").draw()
    assert [bar.get_height() for bar in drawn.axes[0].patches] == [
        pytest.approx(100 * v) for v in rows.values()
    ]
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == list(rows)


def test_top_heads_are_listed_task_by_task() -> None:
    wide = xr.DataArray(
        np.arange(16.0).reshape(2, 2, 4), dims=("task", "layer", "head"), coords={"task": ["z", "a"]}
    )
    table = block(HeadScores(wide.assign_attrs(method="l0")).section(), "top-heads").frame
    assert list(zip(table["task"], table["head"], strict=True)) == [
        ("z", "1.3"),
        ("z", "1.2"),
        ("a", "1.3"),
        ("a", "1.2"),
    ]


def test_similarity_shows_matrices_and_the_link() -> None:
    tasks = ["a", "b", "c"]
    matrix = xr.DataArray(np.eye(3) + 0.25, dims=("task", "other"), coords={"task": tasks, "other": tasks})
    pairs = pd.DataFrame(
        {
            "task": ["a", "a", "b"],
            "other": ["b", "c", "c"],
            "DSE": [0.1, 0.2, 0.4],
            "dissociation": [0.03, 0.05, 0.04],
        }
    )
    tests = pd.DataFrame({"similarity": ["DSE"], "kind": ["pearson"], "correlation": [0.37], "p": [0.5]})
    section = similarity.section(Kept({"similarity-pairs": pairs, "similarity-link": tests}, {"dse": matrix}))
    on_the_page(section)
    cells = block(section, "similarity-dse").draw().axes[0].collections[0]
    assert cells.get_array().tolist() == matrix.values.tolist()
    points = block(section, "link-dse").draw().axes[0].collections[0]
    assert points.get_offsets().tolist() == [[0.1, 3.0], [0.2, 5.0], [0.4, 4.0]]
    assert "0.37" in section.findings[0]
    assert "0.5" in section.findings[0]
    alone = similarity.section(Kept({"similarity-pairs": pairs}, {"dse": matrix}))
    assert "b and c are most alike (0.40)" in alone.findings[0]


def test_stem_cells_show_claims_and_effects() -> None:
    claims = xr.DataArray(
        np.random.default_rng(1).random((2, 2, 2, 3)) < 0.5,
        dims=("run", "task", "layer", "head"),
        coords={"task": ["pos", "dep"]},
    )
    tests = pd.DataFrame({"gates": ["l0"], "found": [7], "expected": [3.2], "p": [0.04]})
    effects = pd.DataFrame(
        {"gates": ["l0"], "effect": ["stem − alone"], "mean": [-0.0123], "low": [-0.03], "high": [0.004]}
    ).assign(note="")
    section = stemcells.section(Kept({"stem-cells": tests, "effects": effects}, {"claims-l0": claims}))
    on_the_page(section)
    maps = block(section, "claims-l0")
    np.testing.assert_array_equal(maps.values, claims.mean("run"))
    for ax, task in zip(maps.draw().axes, ("pos", "dep"), strict=False):
        assert len(ax.patches) == int(claims.sel(task=task).all("run").sum())  # frames: claimed in every run
    drawn = block(section, "effects", Chart).draw().axes[0]
    assert drawn.lines[0].get_xdata().tolist() == pytest.approx([-1.23])
    assert "7" in section.findings[0]
    assert "3.2" in section.findings[0]
    assert "-1.23" in section.findings[1].replace("−", "-")


def test_transfer_shows_scores_over_shots() -> None:
    rows = [
        ("cola", "iat", 4, 61.0, 2.0),
        ("cola", "iat", 16, 66.0, 1.5),
        ("cola", "multi-task", 4, 60.0, 2.5),
        ("cola", "multi-task", 16, 65.5, 1.0),
    ]
    scores = pd.DataFrame(rows, columns=["task", "method", "shots", "mean", "sd"])
    scores = scores.assign(runs=30, sources=3)
    facts = {"metric": "accuracy", "max_length": 128, "tuning": "full", "chance": 0.5, "note": ""}
    section = transfer.section(
        Kept({"transfer": scores, "few-shot": pd.DataFrame([{"task": "cola"} | facts])})
    )
    on_the_page(section)
    groups = block(section, "transfer", Chart).draw().axes[0].containers
    drawn = {group.get_label(): group for group in groups}
    assert drawn["cola, iat"].lines[0].get_ydata().tolist() == [61.0, 66.0]
    spans = [part[:, 1].tolist() for part in drawn["cola, multi-task"].lines[2][0].get_segments()]
    assert spans == [[57.5, 62.5], [64.5, 66.5]]
    table = block(section, "transfer", Table).frame
    row = table[table["method"] == "iat"].iloc[0]
    assert (row["4"], row["16"]) == ("61.0 ± 2.0", "66.0 ± 1.5")
    assert "61.0" in section.findings[0]


def test_text_from_results_stays_text(tmp_path: Any) -> None:
    hostile = SCORES.assign(task="<b>x</b>", method="<img src=x>")
    section = Section(
        "t",
        training.training_findings(hostile),
        [training.score_chart(hostile)],
        "",
        {"<i>": "<u>"},
        {},
        "<s>",
    )
    page = render([section], "t")
    for tag in ("<b>x</b>", "<img src=x>", "<i>", "<u>", "<s>"):
        assert tag not in page
    assert "&lt;b&gt;x&lt;/b&gt;</text>" in page  # at the axis of the figure
    write_text(tmp_path / "page.html", page)


def test_copying_heads_lead_with_the_finding_and_its_figure(tmp_path) -> None:  # type: ignore[no-untyped-def]
    from headwise.heads import HeadSet
    from headwise.report import read
    from headwise.studies._induction import LESIONS, Induction

    scores = xr.DataArray(np.arange(6.0).reshape(2, 3) / 6, dims=("layer", "head"))
    accuracy = pd.DataFrame([[0.8, 0.0, 0.7], [0.6, 0.1, 0.7]] * 4, columns=list(LESIONS))
    found = Induction(scores, HeadSet([(1, 2)]), accuracy, "tiny <model>")
    found.save(tmp_path / "copying")
    (section,) = read([tmp_path / "copying"])
    assert section.findings[0].startswith(
        "tiny <model> predicts 70 % (61 to 79) of repeated random tokens; with 1 of its 6 heads"
    )
    page = render([section], "t")
    assert "tiny &lt;model&gt; predicts" in page
    data = json.loads(re.search(r'id="report-data">(.*?)</script>', page, re.DOTALL).group(1))  # type: ignore[union-attr]
    assert [row[:2] for row in data["maps"][0]["effects"]["induction"]] == [
        ["intact", 70],
        [LESIONS[1], 5],
        [LESIONS[2], 70],
    ]
    assert (
        page.index('class="headline"')
        < page.index('id="map-0"')
        < page.index("Repeated tokens predicted, in percent")
    )


def test_d_after_every_method_is_drawn_for_each_way_to_score_heads() -> None:
    """One chart would draw ways to score heads as if they were seeds."""
    places = [(method, scoring) for method in ("multi-task", "iat") for scoring in ("eq4", "iat")]
    rows = [
        {"model": "m", "method": method, "scoring": scoring, "seed": 0, "D": 10.0 * n}
        for n, (method, scoring) in enumerate(places)
    ]
    found = grids.of_specialization(
        SimpleNamespace(files={"d.parquet"}, table=lambda _: pd.DataFrame(rows), recipe={})
    )
    charts = [block for block in found.blocks if block.name.startswith("methods")]
    assert [chart.title for chart in charts] == [
        f"Dissociation after every method, heads scored by {name} (Fig. 8)" for name in ("eq4", "iat")
    ]
    bars = [[bar.get_height() for bar in chart.draw().axes[0].patches] for chart in charts]
    assert bars == [[0.0, 20.0], [10.0, 30.0]]


def test_a_table_without_columns_shows_its_title() -> None:
    assert str(Section("", [], [Table("rows", "runs in results", pd.DataFrame())])) == "runs in results"
