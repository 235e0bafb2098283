"""Each estimator against an oracle of its own: completeness, finite differences, brute force, scipy."""

from contextlib import nullcontext
from itertools import permutations
from math import factorial
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from scipy import stats
from transformers import BertConfig, BertForSequenceClassification

import planted
from headwise._passes.frozen import frozen
from headwise._passes.lesioned import evaluate
from headwise._passes.subject import TaskSubject, task_subject
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet
from headwise.heads._use.attention import eager
from headwise.scoring import _concrete as concrete, compare_scores, score, top_heads
from headwise.scoring._attribution import attributions
from headwise.scoring._subset import soft_top_k
from headwise.scoring._taylor import mean_outputs
from headwise.tasks import Task, collate
from headwise.tasks._metrics import METRICS, Metric

pytestmark = pytest.mark.filterwarnings("ignore:task .t.")
RNG = np.random.default_rng(2)
TEXTS = [" ".join(RNG.choice(planted.FILLERS, RNG.integers(2, 9))) for _ in range(11)]
ROWS = [(text, i % 2) for i, text in enumerate(TEXTS)]
TASK = Task("t", data={"train": ROWS, "validation": ROWS[:2]}, kind="classes")


def bert(layers: int = 2, heads: int = 4) -> Any:
    torch.manual_seed(5)
    config = BertConfig(
        vocab_size=len(planted.WORDS), hidden_size=4 * heads, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=16,
        max_position_embeddings=40, num_labels=2, initializer_range=0.2,
    )  # fmt: skip
    return BertForSequenceClassification(config).eval()


@pytest.fixture(scope="module")
def model() -> Any:
    return bert()


@pytest.fixture(scope="module")
def subject(model: Any) -> TaskSubject:
    return task_subject(model, TASK, tokenizer=planted.tokenizer(), quiet=True)


def run(model: Any, method: str, **options: Any) -> xr.DataArray:
    return score(model, TASK, method=method, tokenizer=planted.tokenizer(), quiet=True, **options)


def mean_loss(subject: TaskSubject, gates: torch.Tensor) -> float:
    with frozen(subject.model), torch.no_grad():
        return float(
            torch.cat([subject.forward(batch, gates).loss for batch in subject.read(subject.plan())]).mean()
        )


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_ablation_gives_a_metric_predictions_and_labels_in_that_order(
    model: Any, monkeypatch: pytest.MonkeyPatch, higher_is_better: bool
) -> None:
    """Of metrics that do not take one for the other: which share of the examples of the second class is found."""

    def recall(predictions: Any, labels: Any) -> float:
        return float(np.mean(predictions[labels == 1] == 1))

    metric = Metric(recall, higher_is_better=higher_is_better, kinds=("classes",))
    monkeypatch.setitem(METRICS, "recall", metric)
    task = Task("t", data={"train": ROWS, "validation": ROWS[:2]}, kind="classes", metric="recall")
    found = score(model, task, method="ablation", measure="metric", tokenizer=planted.tokenizer(), quiet=True)
    heads, tokenizer = Heads(model), planted.tokenizer()
    labels = np.array([label for _, label in ROWS])

    def value(silenced: HeadSet) -> float:
        with torch.no_grad(), heads.silenced(silenced):
            predictions = [int(model(**tokenizer(t, return_tensors="pt")).logits.argmax()) for t, _ in ROWS]
        return recall(np.array(predictions), labels)

    sign = -1 if higher_is_better else 1
    expected = [sign * (value(HeadSet([head])) - value(HeadSet())) for head in heads.all()]
    assert [float(found[head]) for head in heads.all()] == pytest.approx(expected)
    assert np.ptp(expected) > 0


@pytest.mark.parametrize("measure", ["metric", "loss"])
def test_ablation_equals_a_loop(model: Any, measure: str) -> None:
    found = run(model, "ablation", measure=measure)
    heads, tokenizer = Heads(model), planted.tokenizer()

    def value(silenced: HeadSet) -> float:
        values = []
        for text, label in ROWS:
            with torch.no_grad(), heads.silenced(silenced):
                logits = model(**tokenizer(text, return_tensors="pt")).logits
            loss = torch.nn.functional.cross_entropy(logits, torch.tensor([label]))
            values.append(float(loss) if measure == "loss" else -float(int(logits.argmax()) == label))
        return float(np.mean(values))

    intact = value(HeadSet())
    for head in heads.all():
        assert float(found[head]) == pytest.approx(value(HeadSet([head])) - intact, abs=1e-5)


def test_integrated_gradients_are_complete(model: Any, subject: TaskSubject) -> None:
    found = run(model, "integrated-gradients", signed=True, steps=24)
    ones = subject.base
    assert float(found.sum()) == pytest.approx(
        mean_loss(subject, 0 * ones) - mean_loss(subject, ones), rel=1e-3
    )
    assert (run(model, "integrated-gradients") >= abs(found) - 1e-6).all()  # |mean| ≤ mean of |·|


def test_attributions_are_complete_and_attention_is_switched_back(model: Any, subject: TaskSubject) -> None:
    assert model.config._attn_implementation == "sdpa"
    batch = collate(subject.encoded, np.arange(6))
    for site in subject.heads.sites:
        with frozen(subject.model), eager(model):
            attr = attributions(subject, batch, site, steps=24)  # (rows, heads, queries, keys)
        off = subject.base.clone()
        off[site.index] = 0
        with torch.no_grad():
            whole, without = (torch.exp(-subject.forward(batch, gates).loss) for gates in (subject.base, off))
        torch.testing.assert_close(attr.sum(dim=(1, 2, 3)), whole - without, rtol=1e-3, atol=1e-4)
    assert model.config._attn_implementation == "sdpa"


def test_attention_attribution_is_the_mean_of_each_examples_largest(model: Any, subject: TaskSubject) -> None:
    """Example by example, so that there is no padding."""
    found = run(model, "attention-attribution", steps=8)
    for site in subject.heads.sites:
        largest = []
        for example in range(len(subject.encoded)):
            with frozen(subject.model), eager(model):
                maps = attributions(subject, collate(subject.encoded, np.array([example])), site, steps=8)
            largest.append([max(of_head.flatten().tolist()) for of_head in maps[0]])
        np.testing.assert_allclose(
            found.sel(layer=site.index), np.mean(largest, axis=0), rtol=1e-3, atol=1e-7
        )


def test_attention_attribution_does_not_depend_on_padding(model: Any) -> None:
    one, all_at_once = (run(model, "attention-attribution", batch_size=size) for size in (1, 11))
    np.testing.assert_allclose(one, all_at_once, rtol=1e-3, atol=1e-7)
    assert model.config._attn_implementation == "sdpa"


def test_attention_attribution_says_where_maps_cannot_be_had(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "headwise.scoring._attribution.Watcher", lambda **_: nullcontext()
    )  # a kernel that shows no probabilities
    with pytest.raises(HeadwiseError, match="choose another method"):
        run(model, "attention-attribution")


def test_taylor_mean_is_a_derivative(model: Any, subject: TaskSubject) -> None:
    """Against finite differences: every head moved a little towards its mean."""
    found = run(model, "taylor-mean")
    with frozen(subject.model):
        means = mean_outputs(subject)

    class Towards:
        def __init__(self, head: tuple[int, int], step: float) -> None:
            self.head, self.step = head, step

        def start(self, arguments: dict[str, Any]) -> None: ...

        def apply(self, site: Any, x: torch.Tensor) -> torch.Tensor:
            if site.index != self.head[0]:
                return x
            rows = x.unflatten(-1, (site.n_heads, site.head_dim)).clone()
            rows[..., self.head[1], :] += self.step * (
                means[site.index][self.head[1]] - rows[..., self.head[1], :]
            )
            return rows.flatten(-2)

    tokenizer = planted.tokenizer()
    double = bert().double()
    heads = Heads(double)
    for head in [(0, 1), (1, 3)]:
        slopes = []
        for text, label in ROWS:
            ends = []
            for step in (-1e-4, 1e-4):
                with torch.no_grad(), heads.edited(Towards(head, step)):
                    logits = double(**tokenizer(text, return_tensors="pt")).logits
                ends.append(float(torch.nn.functional.cross_entropy(logits, torch.tensor([label]))))
            slopes.append(abs(ends[1] - ends[0]) / 2e-4)
        assert float(found[head]) == pytest.approx(np.mean(slopes), rel=1e-3)


def test_mean_outputs_leave_padding_out(subject: TaskSubject) -> None:
    with frozen(subject.model):
        together = mean_outputs(subject)
        alone = mean_outputs(task_subject(subject.model, TASK, batch_size=1, quiet=True))
    for a, b in zip(together, alone, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_shapley_values_against_every_coalition() -> None:
    model = bert(layers=1, heads=3)
    found = run(model, "shapley", permutations=60)
    subject = task_subject(model, TASK, tokenizer=planted.tokenizer(), quiet=True)
    heads = list(subject.heads.all())
    every = [HeadSet(h for i, h in enumerate(heads) if number >> i & 1) for number in range(8)]  # silenced
    value = dict(zip(every, -evaluate(subject, every).losses.mean(axis=1, dtype=float), strict=True))
    for head in heads:
        exact = 0.0
        for order in permutations(heads):
            after = HeadSet(order[order.index(head) + 1 :])  # silenced while head is added
            exact += (value[after] - value[HeadSet([*after, head])]) / factorial(3)
        assert float(found[head]) == pytest.approx(exact, abs=4 * float(found["error"][head]) + 1e-6)
    assert float(found.sum()) == pytest.approx(value[HeadSet()] - value[HeadSet(heads)], rel=1e-4)


def test_shapley_errors_are_those_of_a_mean_over_orders() -> None:
    """Three heads have three orders, each with its reverse; from two drawn orders the error of the mean is half their difference."""
    model = bert(layers=1, heads=3)
    subject = task_subject(model, TASK, tokenizer=planted.tokenizer(), quiet=True)
    heads = list(subject.heads.all())
    every = [HeadSet(h for i, h in enumerate(heads) if number >> i & 1) for number in range(8)]
    value = dict(zip(every, -evaluate(subject, every).losses.mean(axis=1, dtype=float), strict=True))
    shares = []
    for order in [(0, 1, 2), (0, 2, 1), (1, 0, 2)]:
        share = np.zeros(3)
        for sequence in (order, order[::-1]):
            for place, number in enumerate(sequence):
                gone = [heads[i] for i in sequence[:place]]
                share[number] += (value[HeadSet(gone)] - value[HeadSet([*gone, heads[number]])]) / 2
        shares.append(share)
    differ = 0
    for seed in range(4):
        found = run(model, "shapley", permutations=2, seed=seed)
        means = {(i, j): (shares[i] + shares[j]) / 2 for i in range(3) for j in range(i, 3)}
        i, j = min(means, key=lambda pair: float(np.abs(means[pair] - found.to_numpy()[0]).max()))
        np.testing.assert_allclose(found.to_numpy()[0], means[i, j], atol=1e-5)
        np.testing.assert_allclose(found["error"].to_numpy()[0], np.abs(shares[i] - shares[j]) / 2, atol=1e-5)
        differ += i != j
    assert differ


def test_hard_concrete_gates() -> None:
    torch.manual_seed(0)
    log_a = torch.tensor([[-2.0, 0.0, 1.5]])
    drawn = concrete.sample(log_a, torch.rand(200_000, 1, 3))
    np.testing.assert_allclose((drawn > 0).double().mean(0), concrete.open_probability(log_a), atol=0.005)
    assert (drawn == 0).any()
    assert (drawn == 1).any()
    assert drawn.min() >= 0
    assert drawn.max() <= 1
    torch.testing.assert_close(concrete.at_test(log_a), (1.2 * torch.sigmoid(log_a) - 0.1).clamp(0, 1))
    assert concrete.open_probability(torch.tensor(0.3)).item() == pytest.approx(
        1 / (1 + np.exp(-(0.3 - 0.33 * np.log(0.1 / 1.1))))
    )


def test_l0_holds_the_wanted_share_open(model: Any) -> None:
    found = run(model, "l0", fraction=0.5, steps=150, lr=0.2)
    assert concrete.open_probability(torch.tensor(found.to_numpy())).sum().item() == pytest.approx(4, abs=1.3)
    assert found.attrs["final_penalty"] != 0
    dear = run(model, "l0", penalty=5.0, steps=80, lr=0.2)
    assert (dear["gate"] < 1e-3).all()  # at such a price every gate closes
    assert dear.attrs["final_penalty"] == 5.0


def test_l0_says_the_last_price_of_one_gate(model: Any) -> None:
    """After one step: a twentieth of the share of gates that are open too many, over the heads."""
    found = run(model, "l0", fraction=0.5, steps=1, start=1.0)
    open_share = 1 / (1 + np.exp(-(1.0 - 0.33 * np.log(0.1 / 1.1))))
    assert found.attrs["final_penalty"] == pytest.approx(0.05 * (open_share - 0.5) / 8, rel=1e-5)


def test_soft_top_k_sums_to_k_and_hardens() -> None:
    keys = torch.tensor([3.0, -1.0, 40.0, 0.5, 0.4])
    for temperature in (1000.0, 1.0, 1e-8):
        assert soft_top_k(keys, 3, temperature).sum().item() == pytest.approx(3, abs=1e-3)
    torch.testing.assert_close(soft_top_k(keys, 3, 1e-8), torch.tensor([1.0, 0, 1, 1, 0]))


@pytest.mark.parametrize("straight_through", [False, True])
def test_subset_keeps_exactly_k(model: Any, straight_through: bool) -> None:
    found = run(model, "subset", k=3, steps=25, straight_through=straight_through)
    assert found["kept"].sum() == 3
    assert HeadSet.from_mask(found["kept"].to_numpy().astype(int)) == top_heads(found, n=3)
    with pytest.raises(HeadwiseError, match="between 1 and 8"):
        run(model, "subset", k=9)


def test_causal_gating_tells_needed_harmful_and_replaceable() -> None:
    both = planted.tasks()
    model = planted.model({"a": (0, 2), "b": (1, 1)}, both)
    with torch.no_grad():  # head (1, 3) undoes half of what head (0, 2) does for task a
        layer = model.encoder.encoder.layer[1].attention
        layer.self.value.weight[3 * planted.WIDTH : 4 * planted.WIDTH] = 0
        layer.self.value.weight[3 * planted.WIDTH, 0] = 1.0
        layer.output.dense.weight[:, 3 * planted.WIDTH : 4 * planted.WIDTH] = 0
        layer.output.dense.weight[2, 3 * planted.WIDTH] = -2.0
    found = score(model, both["a"], method="causal-gating", steps=60, lr=0.3, pressure=0.02, quiet=True)
    assert found[0, 2] > 0.5
    assert found[1, 3] < -0.5
    others = found.to_numpy().copy()
    others[0, 2] = others[1, 3] = 0
    assert np.abs(others).max() < 0.5


def test_learnt_estimators_repeat_with_the_seed_and_leave_no_trace(model: Any) -> None:
    for method in ("l0", "subset", "causal-gating"):
        one, again, other = (run(model, method, steps=6, seed=seed, batch_size=4) for seed in (1, 1, 2))
        assert (one == again).all()
        assert (one != other).any()
    assert all(weight.requires_grad and weight.grad is None for weight in model.parameters())


def test_compare_scores_against_scipy() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 12))
    y = x + rng.normal(size=(12, 12))
    x[3, 4] = np.nan
    arrays = {name: xr.DataArray(v, dims=("layer", "head")) for name, v in (("x", x), ("y", y))}
    with pytest.raises(HeadwiseError, match="below 0"):
        compare_scores(arrays)
    sized = {"x": arrays["x"].assign_attrs(sense="signed"), "y": np.abs(arrays["y"])}
    (row,) = compare_scores(sized).to_dict("records")
    (expected,) = compare_scores({"x": np.abs(arrays["x"]), "y": np.abs(arrays["y"])}).to_dict("records")
    assert row["spearman"] == expected["spearman"]
    assert row["overlap"] == expected["overlap"]
    (row,) = compare_scores(arrays, by="signed").to_dict("records")
    both = ~np.isnan(x)
    assert row["spearman"] == pytest.approx(stats.spearmanr(x[both], y[both]).statistic)
    tops = [set(np.argsort(-v[both], kind="stable")[:42]) for v in (x, y)]
    assert row["overlap"] == pytest.approx(len(tops[0] & tops[1]) / 42)
    assert np.isnan([row["spearman_low"], row["overlap_high"]]).all()  # one model: nothing to generalise from
    assert row["over"] == ""
    assert row["chance"] == pytest.approx(42 / 143)


def test_a_fraction_of_no_head_has_no_overlap_over_seeds() -> None:
    values = np.random.default_rng(0).random((2, 9, 4, 4))
    scores = xr.DataArray(values, dims=("method", "seed", "layer", "head"))
    (row,) = compare_scores(scores, fraction=0.05).to_dict("records")  # of 16 heads
    assert row["heads"] == row["chance"] == 0
    assert np.isnan([row["overlap"], row["overlap_low"], row["overlap_high"]]).all()
    assert row["spearman_low"] < row["spearman"] < row["spearman_high"]


def test_compare_scores_over_seeds_and_dims() -> None:
    rng = np.random.default_rng(0)
    scores = xr.DataArray(
        rng.random((3, 9, 4, 4)), dims=("method", "seed", "layer", "head"), coords={"method": ["a", "b", "c"]}
    )
    table = compare_scores(scores)
    assert table[["a", "b"]].to_numpy().tolist() == [["a", "b"], ["a", "c"], ["b", "c"]]
    assert set(table["over"]) == {"seeds"}
    rho = [stats.spearmanr(*scores[:2, s].to_numpy().reshape(2, -1)).statistic for s in range(9)]
    oracle = stats.ttest_1samp(rho, 0).confidence_interval()
    assert (table["spearman_low"][0], table["spearman_high"][0]) == pytest.approx((oracle.low, oracle.high))
    few = compare_scores(scores.isel(seed=slice(0, 7)))
    assert set(few["over"]) == {""}
    seeds = compare_scores(scores.sel({"method": "a"}))
    assert len(seeds) == 36
    with pytest.raises(HeadwiseError, match="shapes"):
        compare_scores({"a": scores[0, 0], "b": scores[0, 0, :2]})


def test_mistakes_are_named(model: Any) -> None:
    with pytest.raises(HeadwiseError, match="gate-gradient"):
        run(model, "nonsense")
    with pytest.raises(HeadwiseError, match="tokenizer="):
        score(bert(), TASK)
    with pytest.raises(HeadwiseError, match="less than one head"):
        run(model, "gate-gradient", iterative=0.01)
