"""What a dissociation says beside its figures: advice that can be followed, why something is missing, what a range is not."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from transformers import BertConfig, BertModel
from typer.testing import CliRunner

import headwise
import planted
from headwise._base.least import MIN_DRAWS, least_random, least_resamples
from headwise.cli import app
from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.lesions import Dissociation
from headwise.lesions._evaluation import INTACT, Lesions, TaskOutcome
from headwise.lesions._intervals import interval, why_none
from headwise.lesions._notes import random_note
from headwise.lesions._statistics import too_few_splits
from headwise.models import MultiTaskModel
from headwise.models._memory import remember
from headwise.sections._cells import shown_columns
from headwise.sections._terminal import table_text
from headwise.tasks._source import TaskSource
from headwise.training._evaluation import evaluate
from words import BERT, word_tokenizer

SETTINGS = {
    "bootstrap": 299,
    "level": 0.95,
    "seed": 0,
    "within_layers": False,
    "method": "given",
    "heads_each": 3,
    "heads_total": 24,
}


def heads(*numbers: int) -> HeadSet:
    return HeadSet((number // 12, number % 12) for number in numbers)


def made_up(
    sets: dict[str, HeadSet],
    right: dict[str, float],
    chance: float = 0.5,
    random: int = 0,
    n: int = 80,
    **settings: Any,
) -> Dissociation:
    """A dissociation of tasks with one and the same outcome: by lesion, the share of n examples that are right."""
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=n)
    order = rng.permutation(n)  # the same examples break first under every lesion
    shares = {
        INTACT: right["intact"],
        **{name: right[name] for name in sets},
        **{f"random {i}": 0.6 for i in range(random)},
    }
    predictions = np.stack(
        [np.where(order < round(share * n), labels, 1 - labels) for share in shares.values()]
    )
    outcome = TaskOutcome("classes", "accuracy", predictions, np.zeros(predictions.shape), labels, chance, {})
    lesions = Lesions({name: HeadSet() for name in shares}, dict.fromkeys(sets, outcome), {})
    scores = xr.DataArray(
        np.zeros((len(sets), 2, 12)), dims=("task", "layer", "head"), coords={"task": list(sets)}
    )
    return Dissociation(scores, sets, lesions, 0.125, (), (), {}, {**SETTINGS, **settings})


def test_the_resplit_test_is_advised_only_where_it_can_be_run() -> None:
    right = {"intact": 0.9, "a": 0.6, "b": 0.8}
    able = made_up({"a": heads(0, 1, 2), "b": heads(3, 4, 5)}, right).permutation.note
    assert able.startswith(
        "2 tasks have 2 permutations; 20 are needed for p to reach 0.05, so 4 tasks or more; "
    )
    assert able.endswith("the re-split test can be run instead (--test-draws 199; in Python, test_draws=199)")
    shared = made_up({"a": heads(0, 1, 2, 3), "b": heads(0, 1, 2, 4)}, right).permutation.note
    assert "can be run" not in shared
    assert "share 3 of 4 heads, which leaves 2 ways" in shared
    assert "a model with more heads would help, or a smaller fraction" in shared
    assert "a larger fraction" in made_up({"a": heads(0, 1), "b": heads(2, 3)}, right).permutation.note
    three = {"a": heads(0, 1, 2), "b": heads(3, 4, 5), "c": heads(0, 1, 3)}
    some = made_up(three, {**right, "c": 0.7})
    assert some.permutation.note.endswith(
        "can be run instead for 1 of 3 pairs (--test-draws 199; in Python, test_draws=199)"
    )
    assert any("no permutation test of D: 3 tasks" in note for note in some.notes)
    four = made_up({**three, "d": heads(9, 10, 11)}, {**right, "c": 0.7, "d": 0.5})
    assert (four.permutation.note, np.isnan(four.permutation.p)) == ("", False)  # four tasks: 24 permutations


def test_splits_within_layers_may_be_too_few_where_splits_across_them_are_not() -> None:
    a, b = heads(0, 1, 12), heads(2, 13, 14)
    assert too_few_splits(a, b) == ""
    assert "within layers; 20 are needed (splits across layers would be enough)" in too_few_splits(
        a, b, within_layers=True
    )


def test_a_range_of_few_random_sets_is_no_interval() -> None:
    assert least_random(0.95) == 39
    assert (
        random_note(2, 0.95)
        == "random: mean and range of 2 sets, not an interval (39 sets are needed for 95 %)"
    )
    assert "not an interval" in random_note(38, 0.95)
    assert random_note(39, 0.95).endswith("a further one lies within the range with probability 95 %")
    assert random_note(1, 0.95) == "random: one set, without a range"
    assert random_note(0, 0.95) == ""
    assert made_up(
        {"a": heads(0), "b": heads(1)}, {"intact": 0.9, "a": 0.6, "b": 0.8}, random=5
    ).random_note.startswith("random: mean and range of 5 sets, not an interval")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"bootstrap": 100}, "bootstrap: given 100; intervals at 95 % need 199 resamples or more"),
        (
            {"bootstrap": 500, "level": 0.99},
            "bootstrap: given 500; intervals at 99 % need 999 resamples or more",
        ),
        ({"test_draws": 19}, "test_draws: given 19; the test needs 199 re-splits or more"),
    ],
)
def test_too_few_draws_are_refused_before_any_work(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(HeadwiseError, match=said):
        headwise.dissociate("no model is opened", [], **wrong)  # type: ignore[arg-type]
    assert MIN_DRAWS == least_resamples(0.95) == 199


def test_help_message_and_page_name_the_same_numbers() -> None:
    fields = headwise.lesions.Dissociate.model_fields
    assert "199" in str(fields["test_draws"].description)
    assert "199" in str(fields["bootstrap"].description)
    page = (Path(__file__).parents[2] / "docs" / "statistics.md").read_text(encoding="utf-8")
    rows = {
        line.split(" | ")[0].strip("| "): line.split(" | ")[3]
        for line in page.splitlines()
        if line.count(" | ") == 4
    }
    assert rows["re-split test of D: p (`test_draws`)"].startswith("20 splits; 199 draws")
    assert rows["permutation test of D: p (`result.permutation`)"].startswith(
        "4 tasks (24 permutations; 20 are needed)"
    )
    assert rows["D, D_i, D of a pair: interval (`dissociate`)"].startswith(
        "50 examples a task, 199 resamples"
    )


def test_results_of_too_few_resamples_have_no_interval() -> None:
    """As an older version saved them."""
    rng = np.random.default_rng(0)
    draws = rng.normal(size=198)
    assert np.isnan(interval(draws)).all()
    assert why_none(draws) == "198 resamples; 199 are needed for 95 %"
    draws = rng.normal(size=(199, 2))
    low, high = interval(draws)
    assert np.isfinite([low, high]).all()
    assert why_none(draws[:, 0]) == ""
    old = made_up({"a": heads(0), "b": heads(1)}, {"intact": 0.9, "a": 0.6, "b": 0.8}, bootstrap=100)
    assert any("no interval of D, since 100 resamples; 199 are needed" in note for note in old.notes)


def test_what_does_not_vary_has_no_interval_but_a_reason(tmp_path: Path) -> None:
    same = made_up({"a": heads(0, 1, 2), "b": heads(0, 1, 2)}, {"intact": 0.9, "a": 0.6, "b": 0.6})
    reason = "the lesions leave the same predictions on every example"
    assert same.d == 0
    assert same.analysis.d_bounds()[2] == reason
    for kind, column in (("pairs", "D_low"), ("summary", "D low"), ("sweep", "D_low")):
        same.save(tmp_path / kind)
        table = pd.read_csv(tmp_path / kind / f"{kind}.csv")
        assert table[column].isna().all()
        assert table["note"].str.startswith(f"no interval: {reason}").all(), kind
    assert f"a and b: no interval of D, since {reason}" in same.notes
    whole = made_up(
        {"a": heads(0), "b": heads(1)}, {"intact": 1.0, "a": 0.0, "b": 1.0}
    )  # D_A of a is 1 on each example
    low, high, why = whole.analysis.d_i_bounds()[0]
    assert np.isnan([low, high]).all()
    assert why == "every resample of the examples has the same value, which says nothing about its spread"


def test_undefined_resamples_and_no_resamples_are_named() -> None:
    assert why_none([0.1, np.nan] * 200) == "the value is undefined in some resamples"
    none = made_up({"a": heads(0), "b": heads(1)}, {"intact": 0.9, "a": 0.6, "b": 0.8}, bootstrap=0)
    assert none.analysis.d_bounds()[2] == "no resamples were asked for (bootstrap is 0)"


def test_captions_say_which_pairs_have_an_interval_and_why_others_have_none() -> None:
    """Of all pairs, of two of three (the lesions of b and c leave the same answers), and of none."""
    sets = {name: heads(number) for number, name in enumerate("abc")}

    def texts(c: float, **settings: Any) -> tuple[str, str]:
        blocks = made_up(sets, {"intact": 0.9, "a": 0.6, "b": 0.8, "c": c}, **settings).section().blocks
        captions = [block.caption for block in blocks if getattr(block, "caption", "").startswith("Bars: ")]
        (note,) = (block.caption for block in blocks if getattr(block, "name", "") == "summary")
        return captions[0], note

    caption, note = texts(c=0.7)
    assert caption.startswith("Bars: D with its 95 % interval; ")
    assert caption.endswith(" count as distinct.")
    assert note == "Percent, with 95 % intervals of D."
    caption, note = texts(c=0.8)
    assert caption.startswith("Bars: D, with its 95 % interval where it has one; ")
    assert caption.endswith(" No interval: the lesions leave the same predictions on every example.")
    assert note == "Percent, with 95 % intervals of D."
    caption, note = texts(c=0.7, bootstrap=0)
    assert caption.startswith("Bars: D; ")
    assert caption.endswith(" No interval: no resamples were asked for (bootstrap is 0).")
    assert note == "Percent. No interval: no resamples were asked for (bootstrap is 0)."


@pytest.mark.parametrize(
    ("settings", "how"),
    [
        ({"method": "gate-gradient"}, "gate-gradient (Eq. 4)"),
        ({"method": "gate-gradient", "variant": "michel"}, "gate-gradient, variant michel"),
        ({"method": "ablation"}, "ablation"),
    ],
)
def test_methods_say_how_heads_were_scored(settings: dict[str, str], how: str) -> None:
    right = {"intact": 0.9, "a": 0.6, "b": 0.8}
    methods = made_up({"a": heads(0), "b": heads(1)}, right, **settings).section().methods
    assert methods.startswith(f"Heads were scored by {how} on training data; ")


def test_a_missing_corrected_d_has_its_reason() -> None:
    weak = made_up({"a": heads(0), "b": heads(1)}, {"intact": 0.5, "a": 0.4, "b": 0.45}, chance=0.55)
    (row,) = weak.table("pairs").to_dict("records")
    assert np.isnan(row["D_corrected"])
    assert "no D_corrected: a and b are not above chance when intact" in row["note"]
    pairs = next(table for table in weak.section().tables if table.name == "pairs")
    shown = {column.heading: column.cells for column in shown_columns(pairs)}  # empty columns are left out
    assert list(shown) == ["A", "B", "D_A", "D_B", "D", "D interval", "verdict", "overlap", "note"]
    lines = table_text(pairs, 100).splitlines()  # on a terminal: a number, and the reason below
    assert lines[3].endswith("[1]")
    assert lines[4] == f"[1] {row['note']}"
    certain = weak.table("pairs").assign(note="", D_low=-1.23, D_high=4.56, p=0.031, p_fdr=0.031)
    shown = {column.heading: column.cells for column in shown_columns(replace(pairs, frame=certain))}
    assert (shown["D interval"], shown["p"]) == (["-1.23 to 4.56"], ["0.0310"])
    assert "note" not in shown
    assert "no D corrected: a is not above chance" in weak.table("summary").loc["a", "note"]
    assert any(
        note.startswith("a: the intact model is at chance (0.5; ") and "D_corrected" in note
        for note in weak.notes
    )


@pytest.mark.parametrize("share", [0.5, 0.55, 0.6, 0.7, 0.9])
def test_training_and_dissociation_call_the_same_models_at_chance(share: float) -> None:
    """The planted model's predictions, all but a share of them turned round, through both."""
    task = planted.tasks(size=40)["a"]
    model = planted.model({"a": (0, 2)}, {"a": task})
    found = evaluate(model, task, quiet=True)
    labels = np.asarray(found.labels)
    turned = np.where(np.arange(len(labels)) < round(share * len(labels)), labels, 1 - labels)
    trained = replace(found, predictions=turned)
    lesioned = TaskOutcome(
        "classes", "accuracy", turned[None], found.losses[None], labels, trained.chance, {}
    )
    assert lesioned.at_chance == trained.at_chance == (share < 0.65)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that remembers two tasks of the embedded grammar and whose predictions are constant."""
    folder = tmp_path_factory.mktemp("synthetic")
    tasks = TaskSource(names=("grammar:tense", "grammar:topic"), size=480).find()
    found = sorted({word for task in tasks for (text,) in task.split("train").texts for word in text.split()})
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 8}
    model = MultiTaskModel(
        BertModel(BertConfig(vocab_size=len(BERT) + len(found), **size)),
        word_tokenizer([*BERT, *found], "[CLS]", "[SEP]"),
        tasks,
    )
    for decoder in model.decoders.values():
        torch.nn.init.zeros_(decoder.out.weight)  # type: ignore[arg-type, union-attr]
    remember(model, tasks, 16)
    model.save(folder / "model")
    return folder


def said(*words: object) -> str:
    found = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return " ".join(found.stdout.split())


def test_the_verb_says_all_of_it(place: Path) -> None:
    asked = [
        "dissociate",
        "--model",
        place / "model",
        "--random-draws",
        2,
        "--no-figures",
        "--out",
        place / "d",
        "--device",
        "cpu",
    ]
    text = said(*asked)
    assert "The text of tense, topic is synthetic." in text
    assert "random: mean and range of 2 sets, not an interval (39 sets are needed for 95 %)" in text
    assert "tense: the intact model is at chance" in text
    assert "docs/statistics.md" in text
    assert f"tables in {place / 'd'}" in text
    assert "tables and figures in" not in text
    record = json.loads(CliRunner().invoke(app, [*map(str, asked), "--json"]).stdout)
    assert record["synthetic"] == ["tense", "topic"]
    assert record["random_note"].startswith("random: mean and range of 2 sets, not an interval")
    assert record["permutation_note"].startswith("2 tasks have 2 permutations")
    assert f"[1] {' '.join(record['tables']['pairs'][0]['note'].split())}" in text
    assert "no p: the re-split test was not run (--test-draws 199)" in text
    assert (record["D_interval"] is None) == bool(record["D_interval_note"])
    page = said("report", place / "d", "--out", place / "report.html") and (place / "report.html").read_text(
        encoding="utf-8"
    )
    assert "Over 2 tasks of synthetic text" in page
    assert "The text of tense, topic is synthetic." in page


def test_lesions_that_all_end_at_chance_are_said_to() -> None:
    sets = {"a": heads(0, 1, 2), "b": heads(3, 4, 5)}
    floor = made_up(sets, {"intact": 0.9, "a": 0.5, "b": 0.45}).notes
    assert [note for note in floor if "brings it to chance" in note] == [
        f"{name}: every task's lesion brings it to chance, so they cannot be compared; try a smaller fraction"
        for name in sets
    ]
    assert not any("brings it" in note for note in made_up(sets, {"intact": 0.9, "a": 0.5, "b": 0.8}).notes)
