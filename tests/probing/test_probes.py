"""Probing end to end: planted truth, choice on validation alone, controls, cross-validation, numbers, saving."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn.linear_model import LogisticRegression
from transformers import BertConfig, BertModel

import planted
from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.probing import Probe
from headwise.probing._encoder import Encoder
from headwise.probing._errors import score_interval, standard_error
from headwise.probing._fits import Labels, choose, fold_order
from headwise.probing._probes import probe
from headwise.probing._recording import record
from headwise.probing._results import Probes, ranked_heads
from headwise.probing._shifts import shift
from headwise.probing._splits import three_splits
from headwise.store._loading import load
from headwise.tasks import Task

PLACE = (1, 2)


def planted_model() -> tuple[Any, Any]:
    """A random BERT in which a0 and a1 differ along two axes alone, which no weight reads but the values of head 1.2."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(planted.WORDS), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32,
        max_position_embeddings=32,
    )  # fmt: skip
    model = BertModel(config).eval()
    with torch.no_grad():
        table = model.embeddings.word_embeddings.weight
        for word, sign in (("a0", -1.0), ("a1", 1.0)):
            table[planted.WORDS.index(word)] = table[planted.WORDS.index("a0")]
            # equal and opposite: mean and variance stay, so that layer norms leak nothing to the other axes
            table[planted.WORDS.index(word), :2] = torch.tensor([sign, -sign]) * 0.3
        for layer in model.encoder.layer:
            attention = layer.attention.self
            for part in (attention.query, attention.key, attention.value, layer.intermediate.dense):
                part.weight[:, :2] = 0
        model.encoder.layer[PLACE[0]].attention.self.value.weight[PLACE[1] * 8 : PLACE[1] * 8 + 8, 0] = 1.0
    return model, planted.tokenizer()


def sentences(size: int, seed: int) -> list[tuple[str, int]]:
    rng = np.random.default_rng(seed)
    labels = rng.permutation(size) % 2
    return [
        (
            " ".join(rng.permutation([f"a{label}", *rng.choice(planted.FILLERS, rng.integers(2, 8))])),
            int(label),
        )
        for label in labels
    ]


@pytest.fixture(scope="module")
def task() -> Task:
    data = {"train": sentences(300, 0), "validation": sentences(100, 1), "test": sentences(200, 2)}
    return Task("planted", data=data, kind="classes", classes=["0", "1"])


@pytest.fixture(scope="module")
def found(task: Task) -> Probes:
    model, tokenizer = planted_model()
    return probe(
        model, task, tokenizer=tokenizer, controls=("labels", "encoder"), sweep=(-1,), top=2, quiet=True
    )


def test_a_property_written_into_one_head_is_found_there_and_nowhere_else(found: Probes) -> None:
    scores = found.scores.sel(task="planted").values
    assert scores[PLACE] > 0.99
    others = [scores[place] for place in np.ndindex(scores.shape) if place != PLACE]
    assert max(others) < 0.62
    assert found.top(1) == HeadSet([PLACE])
    assert found.data["layer_test"].values[0, 0] < 0.62 < 0.99 < found.data["layer_test"].values[0, 1]
    assert found.profile(*PLACE).loc[0, "rank"] == 1


def test_controls(found: Probes) -> None:
    assert abs(found.data["control"].values - 0.5).max() < 0.15
    # random weights mix the words of a text, and leave nothing out: which word it was can be read from every head
    assert found.data["random_encoder"].values.min() > 0.65
    assert found.selectivity.sel(task="planted").values[PLACE] > 0.35
    assert found.data["majority"].item() == 0.5
    row = found.controls().loc["planted"]
    assert row["best head"] == found.data["test"].values[0][PLACE]
    assert row["best head, shuffled labels"] == found.data["control"].values[0][PLACE]
    assert row["mean head"] == pytest.approx(
        sum(found.data["test"].values[0, i, j] for i in range(2) for j in range(4)) / 8
    )
    assert row["mean head, random weights"] == pytest.approx(found.data["random_encoder"].values.mean())


def test_table_holds_last_best_and_top(found: Probes) -> None:
    row = found.table().loc["planted"]
    assert {"last", "best", "top", "best head", "majority"} <= set(row.index)
    assert row["top"] > 0.99
    assert sorted(found.sweep["n"]) == [1, 2, 4, 8]
    assert (found.sweep["test"] > 0.95).all()
    assert len(found.embeddings) == 3
    chosen = HeadSet.from_json(found.embeddings.iloc[2]["heads"])
    assert PLACE in chosen
    assert len(chosen) == 2


def test_standard_errors_and_predictions_agree_with_scores(found: Probes) -> None:
    predictions, labels = found.predictions["planted"], found.labels["planted"]
    np.testing.assert_allclose((predictions == labels).mean(-1), found.scores.sel(task="planted").values)
    p = (200 * found.scores.values + 0.5) / 201  # one more example, half right
    np.testing.assert_allclose(found.data["stderr"].values, np.sqrt(p * (1 - p) / 201))
    for row in found.sweep.to_dict("records"):
        exact = stats.binomtest(round(200 * row["test"]), 200).proportion_ci(method="exact")
        assert (row["low"], row["high"]) == pytest.approx((exact.low, exact.high))


def test_one_head_equals_scikit_learn_with_the_strength_chosen_on_validation(
    task: Task, found: Probes, tmp_path: Path
) -> None:
    model, tokenizer = planted_model()
    encoder = Encoder.of(model, tokenizer)
    x = {
        s: record(encoder, task.split(s), tmp_path / s, quiet=True).heads([(0, 1)])[0].double().numpy()
        for s in task.splits
    }
    y = {s: np.asarray(task.split(s).labels) for s in task.splits}
    fitted = [
        LogisticRegression(C=1 / (300 * s), tol=1e-8, max_iter=5000).fit(x["train"], y["train"])
        for s in Probe().strengths
    ]
    scores = [model.score(x["validation"], y["validation"]) for model in fitted]
    assert abs(found.data["validation"].sel(task="planted").values[0, 1] - max(scores)) <= 0.011
    best = fitted[max(i for i, s in enumerate(scores) if s == max(scores))]
    assert abs(found.scores.sel(task="planted").values[0, 1] - best.score(x["test"], y["test"])) <= 0.011


def test_cross_validation_chooses_and_fits_again(task: Task) -> None:
    model, tokenizer = planted_model()
    crossed = probe(model, task, tokenizer=tokenizer, folds=4, controls=(), layers=False, quiet=True)
    assert crossed.top(1) == HeadSet([PLACE])
    assert crossed.scores.sel(task="planted").values[PLACE] > 0.99
    assert "control" not in crossed.data
    assert list(crossed.controls()) == ["best head", "mean head"]
    with pytest.raises(HeadwiseError, match="without the control"):
        _ = crossed.selectivity


def test_folds_spread_every_class_and_hold_every_example_once() -> None:
    labels = np.repeat([0, 1, 2], [50, 30, 20])
    order, sizes = fold_order(labels, 5, "classes", 0)
    assert sorted(order) == list(range(100))
    assert sizes == [20] * 5
    for start in range(0, 100, 20):
        assert list(np.bincount(labels[order[start : start + 20]])) == [10, 6, 4]


def test_memory_limit_does_not_change_results() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 150, 4, generator=generator)
    y = (x[2, :, 0] > 0).long().numpy()
    labels = Labels("classes", "accuracy", 2, y[:80], y[80:110], y[110:])
    parts = {"train": x[:, :80], "validation": x[:, 80:110], "test": x[:, 110:]}
    together = choose(parts.__getitem__, labels, Probe())
    for number in range(6):
        alone = choose(lambda name, n=number: parts[name][n : n + 1], labels, Probe())
        assert alone.strengths[0] == together.strengths[number]
        np.testing.assert_array_equal(alone.predictions[0], together.predictions[number])


def test_numbers_are_probed_by_ridge(tmp_path: Path) -> None:
    model, tokenizer = planted_model()
    rows = {
        split: [(text, label * 2.0 + 0.01 * len(text)) for text, label in sentences(120, seed)]
        for seed, split in enumerate(("train", "validation", "test"))
    }
    task = Task("score", data=rows, kind="number", metric="pearson")
    found = probe(model, task, tokenizer=tokenizer, controls=("labels",), quiet=True)
    assert found.top(1) == HeadSet([PLACE])
    assert found.scores.values.max() > 0.9
    assert found.data["stderr"].values[0][PLACE] < 0.04
    assert found.predictions["score"].dtype == np.float32


def test_standard_error_by_bootstrap_is_near_the_formula() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=500)
    y = 0.6 * x + 0.8 * rng.normal(size=500)
    labels = Labels("number", "pearson", 0, y, y, y)
    assert standard_error(x, labels) == pytest.approx((1 - 0.6**2) / np.sqrt(500), rel=0.25)


def test_a_perfect_probe_has_an_error_and_an_interval() -> None:
    y = np.arange(80) % 2
    for metric in ("accuracy", "f1", "matthews"):
        error = standard_error(y, Labels("classes", metric, 2, y, y, y))
        assert 0.002 < error < 0.04
        low, high = score_interval(1.0, error, 80, metric)
        assert 0.6 < low < 0.99
        assert high == 1
    assert np.isnan(score_interval(0.9, 0.1, 49, "accuracy")).all()


def test_intervals_of_correlations_and_shares_are_those_of_fisher_and_the_logit() -> None:
    t = stats.t.ppf(0.975, 119)
    low, high = score_interval(0.7, 0.05, 120, "pearson")
    z, slope = np.arctanh(0.7), 0.05 / (1 - 0.7**2)
    assert (low, high) == pytest.approx(tuple(np.tanh([z - t * slope, z + t * slope])))
    low, high = score_interval(0.9, 0.03, 120, "macro-f1")
    logit, slope = np.log(0.9 / 0.1), 0.03 / (0.9 * 0.1)
    assert (low, high) == pytest.approx(
        tuple(1 / (1 + np.exp(-np.array([logit - t * slope, logit + t * slope]))))
    )


def test_a_task_without_test_split_is_tested_on_validation(task: Task) -> None:
    two = Task(
        "two",
        data={"train": sentences(200, 5), "validation": sentences(50, 6)},
        kind="classes",
        classes=["0", "1"],
    )
    splits = three_splits(two)
    assert splits["test"].texts == two.split("validation").texts
    assert not set(splits["train"].texts) & set(splits["validation"].texts)
    assert len(splits["train"]) + len(splits["validation"]) == 200
    assert len(three_splits(task, examples=30)["test"]) == 30


def test_saving_and_loading(found: Probes, tmp_path: Path) -> None:
    found.save(tmp_path / "run")
    again = load(tmp_path / "run")
    assert again.data.equals(found.data)
    assert again.data.attrs == found.data.attrs
    pd.testing.assert_frame_equal(again.embeddings, found.embeddings)
    np.testing.assert_array_equal(again.predictions["planted"], found.predictions["planted"])
    with pytest.raises(HeadwiseError, match="exists already"):
        found.save(tmp_path / "run")


def test_shift_before_and_after(found: Probes) -> None:
    changed = Probes(
        found.data.assign(test=found.data["test"] + 0.1),
        found.embeddings,
        found.sweep,
        found.predictions,
        found.labels,
    )
    result = shift(found, changed)
    assert result.table.loc[0, "change"] == pytest.approx(0.1)
    assert result.table.loc[0, "pearson"] == pytest.approx(1)
    assert result.table.loc[0, "rose"] == 1
    assert float(result.change.mean()) == pytest.approx(0.1)
    assert len(result.plot().axes) == 3


def test_figures_show_the_results(found: Probes) -> None:
    np.testing.assert_array_equal(
        found.heatmap().axes[0].collections[0].get_array(), found.scores.sel(task="planted")
    )
    image = found.heatmap("selectivity", sort=True, shared=True).axes[0].collections[0]
    np.testing.assert_array_equal(
        image.get_array(), np.sort(found.selectivity.sel(task="planted"), axis=1)[:, ::-1]
    )
    swept = found.sweep.sort_values("n")
    np.testing.assert_allclose(found.sweep_plot().axes[0].lines[0].get_xydata(), swept[["n", "test"]])
    with pytest.raises(HeadwiseError, match="none of the syntactic"):
        found.scatter()
    assert len(found.syntactic_semantic(["planted"], ["planted"])) == 8


def test_ranking_breaks_ties_by_place_and_leaves_missing_heads_out() -> None:
    assert ranked_heads([[0.5, np.nan], [0.7, 0.5]]) == [(1, 0), (0, 0), (1, 1)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"controls": ("nothing",)}, "controls.*nothing"),
        ({"sweep": (99,)}, "sweep over 99"),
        ({"folds": 1}, "folds: given 1"),
        ({"pairs": "x"}, "pairs: given"),
    ],
)
def test_wrong_settings_are_named(task: Task, changes: dict[str, Any], message: str) -> None:
    model, tokenizer = planted_model()
    with pytest.raises(HeadwiseError, match=message):
        probe(model, task, tokenizer=tokenizer, quiet=True, examples=20, **changes)


def test_structured_tasks_are_refused() -> None:
    model, tokenizer = planted_model()
    tags = Task(
        "tags", data={"train": [{"words": ["a"], "tags": ["X"]}] * 3}, text="words", label="tags", kind="tags"
    )
    with pytest.raises(HeadwiseError, match="probes read tasks of kind"):
        probe(model, tags, tokenizer=tokenizer, quiet=True)
    with pytest.raises(HeadwiseError, match="no tasks"):
        probe(model, [], tokenizer=tokenizer, quiet=True)
