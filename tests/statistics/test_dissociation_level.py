"""D: intervals over examples and over seeds, the re-split and permutation tests, and the false discovery rate over pairs."""

from collections.abc import Callable, Sequence
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
from headwise.lesions._matched import matched_masks, matched_test
from headwise.lesions._resampling import metric_draws
from headwise.lesions._statistics import permutation_test, resplit, resplit_test
from headwise.lesions._tables import performance
from headwise.studies._specialization_tables import pairs_over_seeds

LAYERS, HEADS = 4, 6
EVERY = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]


class SimulatedModel:
    """A make-believe model: each head carries some weight for each of two tasks, and a lesion breaks the examples it outweighs."""

    def __init__(
        self, rng: np.random.Generator, specific: float = 0.0, sets: tuple[HeadSet, HeadSet] | None = None
    ) -> None:
        self.weight = rng.gamma(1.0, size=(LAYERS, HEADS, 2))  # (layers, heads, tasks)
        if sets is not None:
            for task in range(2):
                self.weight[..., task] += specific * sets[task].to_mask((LAYERS, HEADS))
        self.strength = rng.gamma(
            12.0, size=(60, 2)
        )  # (examples, tasks): how much damage an example survives

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
        observed = resplit(
            *random_pair(rng), rng, within_layers
        )  # the null: the observed split is itself drawn at random
        found = resplit_test(
            model.d_of([observed])[0],
            *observed,
            model.d_of,
            draws=39,
            seed=study,
            within_layers=within_layers,
        )
        p.append(
            1.0 if np.isnan(found.p) else found.p
        )  # too few splits within layers: no p, nothing rejected
    how = "re-split within layers" if within_layers else "re-split over layers"
    share = rejected(p, "re-split test of D", f"two tasks, 4 × 6 heads, {how}")
    assert 0.02 <= share <= MOST_REJECTED


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
    p = [permutation_test(matrix).p for matrix in rp]
    assert (
        0.02
        <= rejected(p, "permutation test of D", "five tasks, arbitrary assignment of lesions")
        <= MOST_REJECTED
    )
    assert rejected([permutation_test(matrix - 0.2 * np.eye(5)).p for matrix in rp]) >= 0.8  # power


def ranked(
    rng: np.random.Generator, better: float, own: float = 0.0, alone: float = 0.0
) -> tuple[np.ndarray, np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Scores, sets of four tasks, and their relative performance with noise under any masks: heads harm all tasks alike but for `own`, the
    first task suffers most, and its scores are `better` times as noisy as the others'; `alone` is how much heads do to single tasks by
    chance, which no score knows of."""
    general, suffers = rng.gamma(1.0, size=(LAYERS, HEADS)), np.array([2.0, 0.5, 0.7, 0.9])
    special = own * (rng.random((4, LAYERS, HEADS)) < 0.2)
    scores = (
        general + special + np.array([better, 1, 1, 1])[:, None, None] * rng.normal(size=(4, LAYERS, HEADS))
    )
    sets = (scores.reshape(4, -1).argsort(-1).argsort(-1) >= 0.7 * LAYERS * HEADS).reshape(scores.shape)

    single = alone * rng.normal(size=(4, LAYERS, HEADS))

    def performance(masks: np.ndarray) -> np.ndarray:
        harm = np.einsum("mlh,tlh->mt", masks.astype(float), general + special) * suffers / 25
        harm = harm + np.einsum("mlh,tlh->mt", masks.astype(float), single)
        return 1 - harm + 0.01 * rng.normal(size=harm.shape)

    return scores, sets, performance


@pytest.mark.parametrize(
    ("better", "alone", "world"),
    [
        (1.0, 0.0, "scores equally good"),
        (0.2, 0.0, "the task that suffers most ranked better"),
        (1.0, 0.02, "scores equally good, chance effects of heads on tasks"),
        (0.2, 0.02, "the task that suffers most ranked better, chance effects of heads on tasks"),
    ],
)
def test_the_level_of_the_test_of_a_tasks_own_heads(better: float, alone: float, world: str) -> None:
    """No head was chosen for what it does to its task alone. Where a task that suffers more is ranked better, the permutation test rejects
    and this one does not."""
    matched, permuted = [], []
    for study in range(DRAWS):
        rng = np.random.default_rng([13, study])
        scores, sets, performance = ranked(rng, better, alone=alone)
        task, own = study % 4, performance(sets)
        permuted += [permutation_test(own).p] if study < 400 else []
        drawn = matched_masks(sets, scores, task, 199, seed=study)
        matched.append(matched_test(own[task], performance(drawn), task).p)
    assert rejected(matched, "test of a task's own heads", f"four tasks, {world}") <= MOST_REJECTED
    assert (np.mean(np.array(permuted) <= 0.05) > 0.1) == (better < 1)


def test_heads_of_a_tasks_own_are_found() -> None:
    found = []
    for study in range(80):
        rng = np.random.default_rng([14, study])
        scores, sets, performance = ranked(rng, 0.3, own=3.0)
        drawn = matched_masks(sets, scores, 1 + study % 3, 199, seed=study)
        found.append(
            matched_test(performance(sets)[1 + study % 3], performance(drawn), 1 + study % 3).p <= 0.05
        )
    assert np.mean(found) >= 0.4


def answers(rng: np.random.Generator, n: int, shares: Sequence[float]) -> np.ndarray:
    """(lesions, n) right or wrong: hard examples are hard under every lesion."""
    hard = rng.normal(size=n)
    right = 0.8 * hard + 0.6 * rng.normal(size=(len(shares), n)) < stats.norm.ppf(shares)[:, None]
    return right.astype(int)


def d_intervals(
    metric: str, n: int, shares: Sequence[float], studies: int, balance: float, seed: int
) -> tuple[np.ndarray, ...]:
    """Intervals of D, of D_A and of RP_A without A's own heads, of two tasks of n examples each: intact, own and other lesion right on
    `shares` of examples."""
    rng = np.random.default_rng(seed)
    bounds, halves, relative = [], [], []
    sets = {name: HeadSet() for name in ("intact", "a", "b")}
    for study in range(studies):
        tasks = {}
        for name, order in (("a", [0, 1, 2]), ("b", [0, 2, 1])):  # intact, lesion of a's heads, lesion of b's
            right, labels = answers(rng, n, shares)[order], (rng.random(n) < balance).astype(int)
            predictions = np.where(right, labels, 1 - labels)
            tasks[name] = TaskOutcome("classes", metric, predictions, np.zeros(right.shape), labels, 0.5, {})
        found = analyse(
            Lesions(sets, tasks, {}), ["a", "b"], ["a", "b"], bootstrap=least_resamples(), seed=study
        )
        bounds.append(found.d_interval())
        halves.append(found.d_i_bounds()[0][:2])
        relative.append(found.rp_bounds([0], 0)[:2])
        pair = found.pairs().iloc[0] if study < 5 else None  # of two tasks D of the pair is D of all
        assert pair is None or (pair["D_low"], pair["D_high"]) == bounds[-1]
    return (*np.array(bounds).T, *np.array(halves).T, *np.array(relative).T)


@pytest.mark.parametrize(
    ("n", "shares"),
    [
        (MIN_EXAMPLES, (0.9, 0.6, 0.85)),
        (100, (0.9, 0.9, 0.9)),
        (200, (0.97, 0.6, 0.95)),
        pytest.param(MIN_EXAMPLES, (0.97, 0.95, 0.96), marks=pytest.mark.slow),
        pytest.param(100, (0.99, 0.97, 0.985), marks=pytest.mark.slow),
    ],
)
def test_the_coverage_of_the_interval_of_d(n: int, shares: tuple[float, ...]) -> None:
    truth = (shares[2] - shares[1]) / shares[0]
    low, high, low_a, high_a, low_rp, high_rp = d_intervals("accuracy", n, shares, DRAWS, 0.5, seed=1)
    right = " / ".join(f"{100 * share:g}" for share in shares)
    world = f"accuracy, {n} examples, {right} % right intact / under its own / under another lesion"
    whole, half = covered(low, high, truth, "D", world), covered(low_a, high_a, truth, "D_i", world)
    relative = covered(low_rp, high_rp, shares[1] / shares[0], "relative performance (report)", world)
    assert min(whole, half, relative) >= LEAST_COVERED
    if truth > 0.2:
        assert covered(low, high, 0.0) <= 0.1  # power: a dissociation is seen


@pytest.mark.slow
@pytest.mark.parametrize("shares", [(0.9, 0.65, 0.85), (0.97, 0.9, 0.95)])
@pytest.mark.parametrize("metric", ["f1", "matthews"])
def test_the_coverage_of_the_interval_of_d_by_other_metrics(metric: str, shares: tuple[float, ...]) -> None:
    rng = np.random.default_rng(0)
    right, labels = answers(rng, 400_000, shares), (rng.random(400_000) < 0.3).astype(int)
    intact, own, other = metric_draws(
        metric, "classes", np.where(right, labels, 1 - labels), labels, np.ones((1, 400_000), np.int64)
    )[0]
    low, high, low_a, high_a, _, _ = d_intervals(metric, 200, shares, DRAWS, 0.3, seed=7)
    truth, world = (other - own) / intact, f"{metric}, 200 examples, {100 * shares[0]:g} % right intact"
    whole, half = covered(low, high, truth, "D", world), covered(low_a, high_a, truth, "D_i", world)
    assert min(whole, half) >= LEAST_COVERED


def test_the_coverage_of_the_interval_over_seeds() -> None:
    """Eight seeds whose D is skewed, as shares near their ceiling are."""
    rng = np.random.default_rng(8)
    studies = max(DRAWS, 1000)
    place = {"model": "m", "method": "multi-task", "alpha": 0.3, "delta": 0.1, "group": "g", "B": "b"}
    values = {
        "D": 100 * rng.beta(8, 3, size=8 * studies),
        "D_A": 1.0,
        "D_B": 1.0,
        "D_corrected": 0.0,
        "overlap": 0.0,
    }
    pairs = pd.DataFrame({**place, "A": np.repeat(np.arange(studies), 8), **values, "verdict": "double"})
    found = pairs_over_seeds(pairs)
    low, high = found["D_seed_low"], found["D_seed_high"]
    assert (
        covered(low, high, 800 / 11, "mean over training seeds (D of a pair, estimators)", "8 seeds, skewed")
        >= LEAST_COVERED
    )
    assert covered(found["D_seed_low"], found["D_seed_high"], truth=40) <= 0.1
    few = pairs_over_seeds(pairs.groupby("A").head(7))
    assert few[["D_seed_low", "D_seed_high"]].isna().all(axis=None)


def test_the_false_discovery_rate_over_pairs_that_share_tasks() -> None:
    """Ten pairs of five tasks; what a task contributes is in four pairs at once."""
    rng = np.random.default_rng(9)
    tasks, noise = rng.normal(size=(DRAWS, 5)), rng.normal(size=(DRAWS, 10))
    a, b = np.triu_indices(5, 1)
    z = (tasks[:, a] + tasks[:, b] + noise) / np.sqrt(3)
    null = [false_discovery(stats.norm.sf(row)).min() for row in z]
    assert (
        rejected(null, "p_fdr, q: any of a table", "ten pairs of five tasks, nothing differs")
        <= MOST_REJECTED
    )
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
        result = SimpleNamespace(
            lesions=SimpleNamespace(performance=table), tasks=tasks, random=names, analysis=analysis
        )
        found = performance(result)  # type: ignore[arg-type]
        further = 100 * (1 - harm[39])
        inside.append((found.loc["random lowest"] <= further) & (further <= found.loc["random highest"]))
    assert np.mean(inside) == pytest.approx(38 / 40, abs=0.015)
