"""D: intervals over examples and over seeds, the re-split and permutation tests, and the false discovery rate over pairs."""

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from level import DRAWS, LEAST_COVERED, MOST_REJECTED, covered, rejected
from scipy import stats

from headwise._base.inference import MIN_EXAMPLES, false_discovery
from headwise._base.least import least_resamples
from headwise.heads import HeadSet
from headwise.lesions._analysis import analyse
from headwise.lesions._dissociation import overall
from headwise.lesions._evaluation import Lesions, TaskOutcome
from headwise.lesions._resampling import metric_draws
from headwise.lesions._statistics import permutation_test, resplit, resplit_test
from headwise.lesions._tables import performance
from headwise.studies._specialization_tables import pairs_over_seeds

LAYERS, HEADS = 4, 6
EVERY = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]


class SimulatedModel:
    """A make-believe model: each head carries some weight for each of two tasks, and a lesion breaks the examples it outweighs."""

    def __init__(self, rng: np.random.Generator, specific: float = 0.0, sets: tuple[HeadSet, HeadSet] | None = None) -> None:
        self.weight = rng.gamma(1.0, size=(LAYERS, HEADS, 2))  # (layers, heads, tasks)
        if sets is not None:
            for task in range(2):
                self.weight[..., task] += specific * sets[task].to_mask((LAYERS, HEADS))
        self.strength = rng.gamma(12.0, size=(60, 2))  # (examples, tasks): how much damage an example survives

    def d_of(self, pairs: Sequence[tuple[HeadSet, HeadSet]]) -> list[float]:
        masks = np.array(
            [[s.to_mask((LAYERS, HEADS)) for s in pair] for pair in pairs], dtype=float
        )  # (pairs, lesions, layers, heads)
        damage = np.einsum("pslh,lht->pst", masks, self.weight)  # (pairs, lesions, tasks)
        right = (self.strength[None, None] > damage[:, :, None]).mean(axis=2)  # (pairs, lesions, tasks)
        return overall(right).tolist()


def random_pair(rng: np.random.Generator) -> tuple[HeadSet, HeadSet]:
    order = rng.permutation(len(EVERY))
    shared = [EVERY[i] for i in order[:3]]
    return HeadSet(shared + [EVERY[i] for i in order[3:9]]), HeadSet(shared + [EVERY[i] for i in order[9:15]])


@pytest.mark.parametrize("within_layers", [False, True])
def test_the_level_of_the_resplit_test(within_layers: bool) -> None:
    p = []
    for study in range(DRAWS):
        rng = np.random.default_rng([11, study])
        model = SimulatedModel(rng)
        observed = resplit(*random_pair(rng), rng, within_layers)  # the null: the observed split is itself drawn at random
        found = resplit_test(model.d_of([observed])[0], *observed, model.d_of, draws=39, seed=study, within_layers=within_layers)
        p.append(1.0 if np.isnan(found.p) else found.p)  # too few splits within layers: no p, nothing rejected
    assert rejected(p) <= MOST_REJECTED
    assert rejected(p) >= 0.02


def test_the_resplit_test_finds_specific_heads() -> None:
    found = 0
    for study in range(30):
        rng = np.random.default_rng([12, study])
        pair = random_pair(rng)
        model = SimulatedModel(rng, specific=2.0, sets=pair)
        found += resplit_test(model.d_of([pair])[0], *pair, model.d_of, draws=99, seed=study).p <= 0.05
    assert found >= 27


def test_the_level_of_the_permutation_test() -> None:
    """Tasks differ in how much they suffer, and lesions in how much they harm; whose lesion is whose is arbitrary."""
    rng = np.random.default_rng(5)
    rp = 1 - rng.random((DRAWS, 5, 1)) * rng.random((DRAWS, 1, 5)) - 0.05 * rng.random((DRAWS, 5, 5))
    assert 0.02 <= rejected([permutation_test(matrix).p for matrix in rp]) <= MOST_REJECTED
    assert rejected([permutation_test(matrix - 0.2 * np.eye(5)).p for matrix in rp]) >= 0.8  # power


def answers(rng: np.random.Generator, n: int, shares: Sequence[float]) -> np.ndarray:
    """(lesions, n) right or wrong: hard examples are hard under every lesion."""
    hard = rng.normal(size=n)
    right = 0.8 * hard + 0.6 * rng.normal(size=(len(shares), n)) < stats.norm.ppf(shares)[:, None]
    return right.astype(int)


def d_intervals(metric: str, n: int, shares: Sequence[float], studies: int, balance: float, seed: int) -> tuple[np.ndarray, ...]:
    """Intervals of D and of D_A of two tasks of n examples each: intact, own and other lesion right on `shares` of examples."""
    rng = np.random.default_rng(seed)
    bounds, halves = [], []
    sets = {name: HeadSet() for name in ("intact", "a", "b")}
    for study in range(studies):
        tasks = {}
        for name, order in (("a", [0, 1, 2]), ("b", [0, 2, 1])):  # intact, lesion of a's heads, lesion of b's
            right, labels = answers(rng, n, shares)[order], (rng.random(n) < balance).astype(int)
            predictions = np.where(right, labels, 1 - labels)
            tasks[name] = TaskOutcome("classes", metric, predictions, np.zeros(right.shape), labels, 0.5, {})
        found = analyse(Lesions(sets, tasks, {}), ["a", "b"], ["a", "b"], bootstrap=least_resamples(), seed=study)
        bounds.append(found.d_interval())
        halves.append(found.d_i_bounds()[0][:2])
        pair = found.pairs().iloc[0] if study < 5 else None  # of two tasks D of the pair is D of all
        assert pair is None or (pair["D_low"], pair["D_high"]) == bounds[-1]
    return (*np.array(bounds).T, *np.array(halves).T)


@pytest.mark.parametrize(("n", "shares"), [(MIN_EXAMPLES, (0.9, 0.6, 0.85)), (100, (0.9, 0.9, 0.9)), (200, (0.97, 0.6, 0.95))])
def test_the_coverage_of_the_interval_of_d(n: int, shares: tuple[float, ...]) -> None:
    truth = (shares[2] - shares[1]) / shares[0]
    low, high, low_a, high_a = d_intervals("accuracy", n, shares, DRAWS, 0.5, seed=1)
    assert covered(low, high, truth) >= LEAST_COVERED
    assert covered(low_a, high_a, truth) >= LEAST_COVERED
    if truth > 0.2:
        assert covered(low, high, 0.0) <= 0.1  # power: a dissociation is seen


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["f1", "matthews"])
def test_the_coverage_of_the_interval_of_d_by_other_metrics(metric: str) -> None:
    shares = (0.9, 0.65, 0.85)
    rng = np.random.default_rng(0)
    right, labels = answers(rng, 400_000, shares), (rng.random(400_000) < 0.3).astype(int)
    intact, own, other = metric_draws(
        metric, "classes", np.where(right, labels, 1 - labels), labels, np.ones((1, 400_000), np.int64)
    )[0]
    low, high, low_a, high_a = d_intervals(metric, 200, shares, 2 * DRAWS, 0.3, seed=7)
    assert covered(low, high, (other - own) / intact) >= LEAST_COVERED
    assert covered(low_a, high_a, (other - own) / intact) >= LEAST_COVERED


def test_the_coverage_of_the_interval_over_seeds() -> None:
    """Eight seeds whose D is skewed, as shares near their ceiling are."""
    rng = np.random.default_rng(8)
    studies = 1000
    place = {"model": "m", "method": "multi-task", "alpha": 0.3, "delta": 0.1, "group": "g", "B": "b"}
    values = {"D": 100 * rng.beta(8, 3, size=8 * studies), "D_A": 1.0, "D_B": 1.0, "D_corrected": 0.0, "overlap": 0.0}
    pairs = pd.DataFrame({**place, "A": np.repeat(np.arange(studies), 8), **values, "verdict": "double"})
    found = pairs_over_seeds(pairs)
    assert covered(found["D_seed_low"], found["D_seed_high"], truth=800 / 11) >= LEAST_COVERED
    assert covered(found["D_seed_low"], found["D_seed_high"], truth=40) <= 0.1
    few = pairs_over_seeds(pairs.groupby("A").head(7))
    assert few[["D_seed_low", "D_seed_high"]].isna().all(axis=None)


def test_the_false_discovery_rate_over_pairs_that_share_tasks() -> None:
    """Ten pairs of five tasks; what a task contributes is in four pairs at once."""
    rng = np.random.default_rng(9)
    tasks, noise = rng.normal(size=(2000, 5)), rng.normal(size=(2000, 10))
    a, b = np.triu_indices(5, 1)
    z = (tasks[:, a] + tasks[:, b] + noise) / np.sqrt(3)
    null = [false_discovery(stats.norm.sf(row)).min() for row in z]
    assert rejected(null) <= MOST_REJECTED
    effect = [false_discovery(stats.norm.sf(row + 4 * (a == 0)))[a == 0].min() for row in z]
    assert rejected(effect) >= 0.9


def test_a_further_random_set_lies_between_the_lowest_and_the_highest_as_often_as_said() -> None:
    inside = []
    rng = np.random.default_rng(10)
    for _ in range(5):
        tasks = [f"t{i}" for i in range(400)]
        names = tuple(f"random {i}" for i in range(39))
        harm = rng.gamma(0.5, size=(40, len(tasks)))  # skewed: few random lesions do much harm
        table = pd.DataFrame(0.0, index=[*tasks, *names, "intact"], columns=tasks)
        table.loc[list(names)] = 1 - harm[:39]
        analysis = SimpleNamespace(d_i=np.zeros(len(tasks)))
        result = SimpleNamespace(lesions=SimpleNamespace(performance=table), tasks=tasks, random=names, analysis=analysis)
        found = performance(result)  # type: ignore[arg-type]
        further = 100 * (1 - harm[39])
        inside.append((found.loc["random lowest"] <= further) & (further <= found.loc["random highest"]))
    assert np.mean(inside) == pytest.approx(38 / 40, abs=0.015)
