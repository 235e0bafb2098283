"""The whole way from a model to verdicts, on models whose truth is known."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr

import headwise
import planted
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet
from headwise.lesions import Dissociation, dissociate, lesion
from headwise.lesions._tables import TABLES
from headwise.tasks._metrics import METRICS, Metric
from headwise.tasks._task import Task
from pictures import assert_drawn

ONE_OF_EIGHT = 1 / 8


@pytest.fixture(scope="module")
def both() -> dict[str, Task]:
    return planted.tasks()


@pytest.fixture(scope="module")
def found(both: dict[str, Task]) -> Dissociation:
    model = planted.model({"a": (0, 2), "b": (1, 1)}, both)
    return dissociate(
        model,
        list(both.values()),
        fraction=ONE_OF_EIGHT,
        random_draws=4,
        fractions=(0.25, 0.5),
        also=("mean", "resample"),
        test_draws=199,
        bootstrap=200,
        quiet=True,
    )


def test_separate_heads_are_called_distinct(found: Dissociation) -> None:
    assert found.sets == {"a": HeadSet([(0, 2)]), "b": HeadSet([(1, 1)])}
    (row,) = found.table("pairs").to_dict("records")
    assert row["verdict"] == "distinct"
    assert row["D"] == pytest.approx(
        50, abs=12
    )  # each task falls from 100 % to a guess, and only under its own lesion
    assert row["D_low"] > 30
    for shown in (repr(found), repr(found.lesions)):  # a table, not every example's prediction
        assert "intact" in shown
        assert "array(" not in shown
        assert len(shown) < 5000
    assert row["D_corrected"] == pytest.approx(100, abs=24)


def test_a_metric_where_lower_is_better_is_refused(
    both: dict[str, Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    def errors(predictions: np.ndarray, labels: np.ndarray) -> float:
        return float(np.mean(predictions != labels))

    monkeypatch.setitem(METRICS, "errors", Metric(errors, higher_is_better=False, kinds=("classes",)))
    splits = {name: both["b"].split(name) for name in both["b"].splits}
    model = planted.model({"a": (0, 2), "b": (1, 1)}, both)
    tasks = [both["a"], Task.from_examples("b", splits, metric="errors")]
    with pytest.raises(HeadwiseError, match="task 'b' is judged by errors, where lower is better"):
        dissociate(model, tasks, fraction=ONE_OF_EIGHT, quiet=True)


def test_shared_heads_are_not(both: dict[str, Task]) -> None:
    model = planted.model({"a": (0, 2), "b": (0, 2)}, both)
    result = dissociate(
        model,
        list(both.values()),
        fraction=ONE_OF_EIGHT,
        random_draws=2,
        test_draws=199,
        bootstrap=199,
        quiet=True,
    )
    (row,) = result.table("pairs").to_dict("records")
    assert row["verdict"] not in ("distinct", "double")
    assert row["overlap"] == 100
    assert np.isnan(row["p"])  # equal sets: nothing to re-split
    assert any("no test of D" in note for note in result.notes)


def test_the_matrix_equals_lesions_by_hand(found: Dissociation, both: dict[str, Task]) -> None:
    model = planted.model({"a": (0, 2), "b": (1, 1)}, both)
    heads = Heads(model.encoder)
    table = found.table("performance")
    for name, task in both.items():
        examples = task.split("validation")
        for row, silenced in (("a†", found.sets["a"]), ("b†", found.sets["b"]), ("intact", HeadSet())):
            right = 0
            for text, label in examples:
                inputs = model.tokenizer(text[0], return_tensors="pt")
                with torch.no_grad(), heads.silenced(silenced):
                    state = model.encoder(**inputs).last_hidden_state[:, 0]
                decoder = model.decoders[name]
                logits = decoder.out(torch.tanh(decoder.dense(state)))
                right += int(logits.argmax()) == label
            assert table.loc[row, name] == pytest.approx(100 * right / len(examples))


def test_tables_have_the_papers_layout(found: Dissociation) -> None:
    assert list(found.table("performance").index) == [
        "a†",
        "b†",
        "random",
        "random lowest",
        "random highest",
        "intact",
        "D_i",
    ]
    assert list(found.table("summary").index) == ["a", "b", "all"]
    assert found.table("overlap").loc["a", "b"] == 0
    assert found.table("layers")["a"].tolist() == [1, 0]
    assert found.table("sweep")["fraction"].tolist() == [0.125, 0.25, 0.5]
    performance, pairwise = found.table("performance"), found.table("pairwise")
    for a, b in (
        ("a", "b"),
        ("b", "a"),
    ):  # Eq. 5: how much less is left to A under its own lesion than under B's, of what it can do intact
        own, other, intact = (performance.loc[row, a] for row in (f"{a}†", f"{b}†", "intact"))
        assert pairwise.loc[b, a] == pytest.approx(100 * (other - own) / intact)
    assert pairwise.loc["b", "a"] != pytest.approx(pairwise.loc["a", "b"], abs=0.5)
    with pytest.raises(HeadwiseError, match="performance"):
        found.table("nonsense")


def test_p_of_planted_heads_is_the_share_of_splits_at_least_as_dissociated(both: dict[str, Task]) -> None:
    """Each set: the task's own head and two that carry nothing. Of the 20 splits of these six heads 6 leave both carriers where they are,
    and D is high under just these (the others stir fillers, which moves it a little)."""
    model = planted.model({"a": (0, 2), "b": (1, 1)}, both)
    ranks = np.zeros((2, 2, 4))
    ranks[0, 0, 2], ranks[0, 0, 0], ranks[0, 0, 1] = 3, 2, 1
    ranks[1, 1, 1], ranks[1, 1, 0], ranks[1, 1, 2] = 3, 2, 1
    scores = xr.DataArray(ranks, dims=("task", "layer", "head"), coords={"task": ["a", "b"]})
    result = dissociate(
        model,
        list(both.values()),
        scores=scores,
        fraction=3 / 8,
        random_draws=1,
        test_draws=199,
        bootstrap=0,
        quiet=True,
    )
    test = result.tests["a", "b"]
    assert (len(test.null), test.exact) == (20, True)
    ordered = np.sort(test.null)[::-1]
    assert ordered[5] > ordered[6] + 0.1
    assert test.d >= ordered[5]
    assert test.p == np.mean(test.null >= test.d - 1e-12) <= 6 / 20
    assert result.table("pairs")["p"].item() == test.p


def test_one_head_each_is_too_few_for_a_p(found: Dissociation) -> None:
    assert np.isnan(found.table("pairs")["p"].item())
    assert any("leaves 2 ways to split" in note for note in found.notes)
    assert np.isnan(found.permutation.p)


def test_few_examples_have_no_interval(found: Dissociation) -> None:
    few = dissociate(
        planted.model({"a": (0, 2), "b": (1, 1)}, planted.tasks()), list(planted.tasks().values()), fraction=ONE_OF_EIGHT,
        random_draws=1, bootstrap=199, examples=49, quiet=True,
    )  # fmt: skip
    assert np.isnan(few.table("summary")[["D low", "D high"]].to_numpy(float)).all()
    assert any("49 held-out examples; 50 are needed" in note for note in few.notes)
    assert np.isfinite(found.table("summary")[["D low", "D high"]].to_numpy(float)).all()  # 64 examples


def test_saving_and_loading_give_the_same_tables_and_figures(found: Dissociation, tmp_path: Path) -> None:
    found.save(tmp_path / "study")
    again = headwise.load(tmp_path / "study")
    for kind in TABLES:
        pd.testing.assert_frame_equal(found.table(kind), again.table(kind))
    assert again.scores.attrs == found.scores.attrs
    for kind in ("relative", "corrected"):
        table = again.table(kind)
        ax = again.plot(kind).axes[0]
        np.testing.assert_allclose(ax.collections[0].get_array().filled(np.nan), table.to_numpy(float))
        assert [text.get_text() for text in ax.get_yticklabels()] == list(table.index)
    (ax,) = again.plot("pairs").axes
    assert [bar.get_width() for bar in ax.patches] == pytest.approx(found.table("pairs")["D"].tolist())
    for kind in ("layers", "overlap", "scores", "sweep", "null"):
        again.plot(kind).savefig(tmp_path / f"{kind}.png")
        assert_drawn(tmp_path / f"{kind}.png")
    with pytest.raises(HeadwiseError, match="exists already"):
        found.save(tmp_path / "study")


def test_one_row_per_lesion_task_and_example(both: dict[str, Task]) -> None:
    model = planted.model({"a": (0, 2), "b": (1, 1)}, both)
    result = lesion(
        model, list(both.values()), {"own": [(0, 2)]}, quiet=True
    )  # a plain list of pairs will do
    assert result.sets["own"] == HeadSet([(0, 2)])
    table = result.table()
    assert len(table) == 2 * 2 * 64
    rows = table[(table["lesion"] == "own") & (table["task"] == "a")]
    assert rows["example"].tolist() == list(range(64))
    assert (
        (rows["prediction"] == rows["label"]).mean()
        == pytest.approx(rows["value"].iloc[0])
        == pytest.approx(0.5, abs=0.12)
    )
    assert result.performance.loc["intact", "a"] == 1


def test_results_do_not_depend_on_batches_and_repeat_with_the_seed(both: dict[str, Task]) -> None:
    model = planted.model({"a": (0, 2), "b": (1, 1)}, both)
    options = {"fraction": 0.25, "random_draws": 3, "bootstrap": 0, "quiet": True}
    one, other = (dissociate(model, list(both.values()), **options, batch_size=size) for size in (64, 5))  # type: ignore[arg-type]
    np.testing.assert_allclose(one.scores, other.scores, rtol=1e-5, atol=1e-9)
    pd.testing.assert_frame_equal(one.table("performance"), other.table("performance"))


def test_other_ways_of_silencing(found: Dissociation, both: dict[str, Task]) -> None:
    kinds = found.table("kinds").set_index("silenced by")
    assert list(kinds.index) == ["zero", "mean", "resample"]
    assert (
        kinds["D"] > 30
    ).all()  # nothing about the example comes through, whatever stands in the head's place
    model = planted.model({"a": (0, 2), "b": (1, 1)}, both)
    one, other = (
        lesion(model, both["a"], [HeadSet([(0, 2)])], how="mean", batch_size=size, quiet=True)
        for size in (64, 7)
    )
    np.testing.assert_allclose(one.tasks["a"].losses, other.tasks["a"].losses, rtol=1e-4, atol=1e-6)
    tokenizer, heads = model.tokenizer, Heads(model.encoder)
    means = heads.mean_outputs(
        [dict(tokenizer(text[0], return_tensors="pt")) for text, _ in both["a"].split("train")]
    )
    text, label = both["a"].split("validation")[5]
    with torch.no_grad(), heads.silenced(HeadSet([(0, 2)]), how="mean", reference=means):
        state = model.encoder(**tokenizer(text[0], return_tensors="pt")).last_hidden_state[:, 0]
    logits = model.decoders["a"].out(torch.tanh(model.decoders["a"].dense(state)))
    assert one.tasks["a"].losses[1, 5] == pytest.approx(
        torch.nn.functional.cross_entropy(logits, torch.tensor([label])).item(), rel=1e-4
    )


def test_mistakes_are_named(both: dict[str, Task]) -> None:
    model = planted.model({"a": (0, 2), "b": (1, 1)}, both)
    with pytest.raises(HeadwiseError, match="two tasks or more"):
        dissociate(model, [both["a"]])
    with pytest.raises(HeadwiseError, match="one HeadSet"):
        lesion(model, both["a"], HeadSet([(0, 1)]))
    with pytest.raises(HeadwiseError, match="not in this"):
        lesion(model, both["a"], [HeadSet([(9, 1)])], quiet=True)
    with pytest.raises(HeadwiseError, match="called 'intact'"):
        dissociate(model, [both["a"], Task("intact", data=[("x", 0), ("y", 1)])])
