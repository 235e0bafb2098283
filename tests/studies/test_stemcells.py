"""Stem-cell statistics on claims and probe scores whose truth is known."""

import numpy as np
import pytest
import scipy.stats
import xarray as xr

from headwise.errors import HeadwiseError
from headwise.studies._stemcells import (
    claim,
    claim_agreement,
    per_layer,
    sole_claims,
    stem_cell_test,
    stem_cells,
)
from headwise.studies._stemcells_effects import changes, layer_changes, sparing, stem_cell_effect

TASKS = ["pos", "ner", "dep", "con", "srl"]
LAYERS, HEADS, K = 6, 12, 20


def array(values: np.ndarray) -> xr.DataArray:
    dims = ("run", "task", "layer", "head")
    return xr.DataArray(values, dims=dims, coords={"run": range(len(values)), "task": TASKS})


def random_scores(
    rng: np.random.Generator, runs: int = 3, shared: float = 0.0, own: float = 0.0
) -> xr.DataArray:
    """Noise, plus a taste for heads that all tasks share, plus one that each task has to itself in every run."""
    shape = (runs, len(TASKS), LAYERS, HEADS)
    common, tastes = rng.normal(size=shape[2:]), rng.normal(size=shape[1:])
    return array(rng.normal(size=shape) + shared * common + own * tastes)


def test_claims_have_k_heads_each() -> None:
    scores = random_scores(np.random.default_rng(0))
    scores[:, :, 0, 6:] = np.nan  # a narrow first layer
    claims = claim(scores, K)
    assert (claims.sum(("layer", "head")) == K).all()
    assert not claims[:, :, 0, 6:].any()
    table = per_layer(claims)
    assert table.groupby("task")["mean"].sum().tolist() == [K] * 5


def test_stem_cells_are_those_of_four_tasks_in_most_runs() -> None:
    claims = array(np.zeros((3, 5, 2, 3), dtype=bool))
    claims[:2, :4, 0, 0] = True  # four tasks in two of three runs: a stem cell
    claims[:, :3, 0, 1] = True  # three tasks: none
    claims[:1, :, 0, 2] = True  # one run: none
    claims[1:, 2, 1, 1] = True  # dep alone, in two runs
    assert stem_cells(claims).to_numpy().tolist() == [[True, False, False], [False, False, False]]
    alone = sole_claims(claims)
    assert alone.dims == ("task", "layer", "head")
    assert np.argwhere(alone.to_numpy()).tolist() == [[2, 1, 1]]


def test_agreement_equals_slow_loops() -> None:
    scores = random_scores(np.random.default_rng(1), own=1.0)
    claims = claim(scores, K)
    table = claim_agreement(claims, scores).set_index(["first", "second"])
    assert len(table) == 15
    sets, values = claims.to_numpy().reshape(3, 5, -1), scores.to_numpy().reshape(3, 5, -1)
    both = np.mean([(sets[r, 0] & sets[r, 2]).sum() / K for r in range(3)])
    assert table.loc[("pos", "dep"), "overlap"] == pytest.approx(both)
    mixed = np.mean([(sets[r, 0] & sets[s, 2]).sum() / K for r in range(3) for s in range(3) if r != s])
    assert table.loc[("pos", "dep"), "overlap_across"] == pytest.approx(mixed)
    pearson = np.mean([np.corrcoef(values[r, 0], values[s, 0])[0, 1] for r, s in ((0, 1), (0, 2), (1, 2))])
    assert table.loc[("pos", "pos"), "pearson"] == pytest.approx(pearson)
    runs = table[table["comparison"] == "runs"]["overlap"].mean()
    assert runs > table[table["comparison"] == "tasks"]["overlap"].mean() + 0.1  # tasks do differ here


def test_test_of_stem_cells_finds_shared_taste() -> None:
    result = stem_cell_test(claim(random_scores(np.random.default_rng(2), shared=1.5), K), draws=999)
    assert result["found"] > result["high"]
    assert result["p"] == pytest.approx(1 / 1000)


def test_tied_layers_are_relabelled_together() -> None:
    """Every task claims two numbers in all layers, each its own two: relabelled layer by layer, columns would fall apart."""
    claims = array(np.zeros((1, 5, LAYERS, HEADS), bool))
    for task in range(5):
        claims[0, task, :, [task, task + 5]] = True
    rng, counts = np.random.default_rng(0), []
    for _ in range(4000):  # by hand: one order of the twelve numbers for each task
        drawn = np.stack([np.isin(np.arange(HEADS), rng.permutation(HEADS)[:2]) for _ in range(5)])
        counts.append(LAYERS * (drawn.sum(0) >= 4).sum())
    kept = stem_cell_test(claims, tied=[range(LAYERS)], draws=4000)
    apart = stem_cell_test(claims, draws=4000)
    assert kept["expected"] == pytest.approx(np.mean(counts), abs=0.05)
    assert kept["expected"] == pytest.approx(apart["expected"], abs=0.05)
    assert (kept["relabelled"], apart["relabelled"]) == ("head numbers of tied layers", "heads of each layer")
    few = array(np.zeros((1, 5, LAYERS, HEADS), bool))
    few[0, :4, :3, 0] = True  # one number in three layers: three stem cells, or none
    assert stem_cell_test(few, tied=[range(LAYERS)], draws=40_000)["p"] == pytest.approx(12**-3, abs=4e-4)
    assert stem_cell_test(few, draws=40_000)["p"] == pytest.approx(1 / 40_001)  # 12⁻⁹, layer by layer
    for tied, message in (([(0, 6)], "layers from 0 to 5"), ([(0, 1), (1, 2)], "each layer in one at most")):
        with pytest.raises(HeadwiseError, match=message):
            stem_cell_test(claims, tied=tied)
    with pytest.raises(HeadwiseError, match="have different heads"):
        stem_cell_test(claims, valid=np.arange(HEADS) < np.array([[11]] + [[12]] * 5), tied=[(0, 1)])


def test_heads_that_do_not_exist_are_never_drawn() -> None:
    claims = array(np.zeros((1, 5, 1, 4), dtype=bool))
    claims[0, :, 0, :2] = True
    valid = np.array([[True, True, False, False]])
    result = stem_cell_test(claims, valid=valid, draws=99)
    assert result["found"] == result["expected"] == 2  # both heads must be drawn


def probe_scores(
    rng: np.random.Generator, runs: int, damage: float
) -> tuple[xr.DataArray, xr.DataArray, xr.DataArray]:
    """Claims and probe scores before and after: stem heads lose `damage`. What a task claims in a run goes by that run's own luck with
    the probe, too: the regression to the mean that choosing on the measured run would take for an effect."""
    stem = np.zeros((LAYERS, HEADS), bool)
    stem[2, :8] = True
    talent = rng.normal(size=(len(TASKS), LAYERS, HEADS)) + 4 * stem
    luck = rng.normal(size=(runs, len(TASKS), LAYERS, HEADS))
    before = array(0.5 + 0.05 * talent + 0.05 * luck)
    after = array(0.5 + 0.05 * talent - damage * stem + 0.05 * rng.normal(size=luck.shape))
    return claim(array(talent + luck), K), before, after


def test_effect_is_found_with_its_size() -> None:
    effect = stem_cell_effect(*probe_scores(np.random.default_rng(4), runs=5, damage=0.1))
    assert effect.high < 0
    assert effect.low < -0.1 < effect.high
    assert len(effect.runs) == 5
    assert all(stem >= 6 and alone >= 1 for stem, alone in effect.heads)


def test_effect_is_nought_where_there_is_none() -> None:
    """Choosing and measuring on the same runs would report one; choosing on other runs does not."""
    rng = np.random.default_rng(5)
    cross, naive, covered = [], [], 0
    for _ in range(40):
        claims, before, after = probe_scores(rng, runs=4, damage=0.0)
        effect = stem_cell_effect(claims, before, after)
        covered += effect.low <= 0 <= effect.high
        cross.append(effect.mean)
        change = after - before
        stem, alone = stem_cells(claims), sole_claims(claims)
        naive.append(float(change.where(stem).mean() - change.where(alone).mean()))
    error = np.std(cross) / np.sqrt(len(cross))
    assert abs(np.mean(cross)) < 3 * error
    assert abs(np.mean(naive)) > 3 * np.std(naive) / np.sqrt(len(naive))
    assert covered >= 34


def test_a_loss_of_upper_layers_is_not_taken_for_one_of_shared_heads() -> None:
    """Stem-cell heads lie in layer 2 here, and every layer loses the more the higher it is, whoever claims its heads."""
    claims, before, after = probe_scores(np.random.default_rng(8), runs=5, damage=0.0)
    steep = after - 0.05 * after.layer
    assert (
        stem_cell_effect(claims, before, steep).mean > 0.03
    )  # heads of one task lie everywhere, most of them higher
    effect = stem_cell_effect(claims, before, steep, against="layer")
    assert effect.low < 0 < effect.high
    assert effect.runs == pytest.approx(stem_cell_effect(claims, before, after, against="layer").runs)
    assert stem_cell_effect(claims, before, steep - 0.1 * stem_cells(claims), against="layer").high < 0
    change = (steep - before).to_numpy()
    for run, value in enumerate(effect.runs):
        stem = stem_cells(claims.isel(run=[r for r in range(5) if r != run])).to_numpy()
        layers = [layer for layer in range(LAYERS) if 0 < stem[layer].sum() < HEADS]
        gaps = [
            change[run, :, i, stem[i]].mean() - change[run, :, i, ~stem[i]].mean()
            for i in layers
            for _ in range(stem[i].sum())
        ]
        assert value == pytest.approx(np.mean(gaps))
    table = layer_changes(before, steep).set_index(["task", "layer"])
    assert len(table) == len(TASKS) * LAYERS
    each = change[:, TASKS.index("dep"), 1].mean(-1)
    assert table.loc[("dep", 1), "change"] == pytest.approx(each.mean())
    half = scipy.stats.t.ppf(0.975, 4) * each.std(ddof=1) / 5**0.5
    assert table.loc[("dep", 1), "high"] == pytest.approx(each.mean() + half)


def by_hand(claims: np.ndarray, change: np.ndarray, layers: bool) -> tuple[list[float], float]:
    """The effect of every run, and half the width of its interval, head by head in loops."""
    runs, tasks = claims.shape[:2]
    values, parts, units = [], np.zeros((2, runs, LAYERS, HEADS)), []
    for run in range(runs):
        others = [r for r in range(runs) if r != run]
        places = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
        stem = [at for at in places if 2 * sum(claims[r, :, *at].sum() >= 4 for r in others) > len(others)]
        cells, counted = [], [set(), set()]
        for task in range(tasks):
            alone = [
                at
                for at in places
                if 2 * sum(claims[r, task, *at] and claims[r, :, *at].sum() == 1 for r in others)
                > len(others)
            ]
            for some in (
                [[at for at in places if at[0] == layer] for layer in range(LAYERS)] if layers else [places]
            ):
                first = [at for at in some if at in stem]
                second = [at for at in some if at not in stem] if layers else alone
                if first and second:
                    cells.append((task, first, second, len(first) if layers else 1))
        share = [cell[3] / sum(c[3] for c in cells) for cell in cells]
        gaps = [
            np.mean([change[run, t, *a] for a in f]) - np.mean([change[run, t, *a] for a in s])
            for t, f, s, _ in cells
        ]
        values.append(float(np.dot(share, gaps)))
        for (task, first, second, _), weight in zip(cells, share, strict=True):
            own = {at: change[run, task, *at] - values[-1] * (at in first) for at in [*first, *second]}
            grow = (len(own) / (len(own) - 1)) ** 0.5
            for group, sign in ((first, 1), (second, -1)):
                for at in group:
                    parts[int(sign < 0), run, *at] += (
                        sign * weight / len(group) * (own[at] - np.mean(list(own.values()))) * grow
                    )
                    counted[int(sign < 0)].add(at)
        units.append([len(each) for each in counted])
    n, m = np.mean(units, axis=0)
    one, other = parts.mean(1)
    spread = (one**2).sum() * n / (n - 1), (other**2).sum() * m / (m - 1)
    heads, over_runs = sum(spread) + 2 * (one * other).sum(), np.var(values, ddof=1) / runs
    df_heads = sum(spread) ** 2 / (spread[0] ** 2 / (n - 1) + spread[1] ** 2 / (m - 1))
    df = (heads + over_runs) ** 2 / (heads**2 / df_heads + over_runs**2 / (runs - 1))
    t = scipy.stats.t.ppf(0.975, [df, runs - 1])
    return values, float(max(t[0] * (heads + over_runs) ** 0.5, t[1] * over_runs**0.5))


@pytest.mark.parametrize("against", ["alone", "layer"])
def test_the_effect_and_its_interval_equal_loops_over_heads(against) -> None:  # type: ignore[no-untyped-def]
    claims, before, after = probe_scores(np.random.default_rng(11), runs=4, damage=0.05)
    after = after + xr.DataArray(
        [0.3, 0.0, 0.0, -0.2, 0.1], dims="task"
    )  # a task that has few heads of its own must not count more
    values, half = by_hand(claims.to_numpy(), (after - before).to_numpy(), against == "layer")
    effect = stem_cell_effect(claims, before, after, against=against)
    assert effect.runs == pytest.approx(values)
    assert (effect.high - effect.low) / 2 == pytest.approx(half)
    assert effect.note == ""


def test_a_task_that_changes_much_is_compared_with_itself() -> None:
    """Only one task has heads of its own; it changes, and so does another one, each in all of its heads alike, which is no effect."""
    claims = array(np.zeros((3, 5, LAYERS, HEADS), bool))
    claims[:, :, 0, :6] = True
    claims[:, 0, 1, :6] = True
    before = array(np.random.default_rng(0).normal(size=claims.shape))
    after = before - 0.5 * (claims["task"] == TASKS[0]) + 0.3 * (claims["task"] == TASKS[1])
    assert stem_cell_effect(claims, before, after).mean == pytest.approx(0)


def test_too_few_heads_or_runs_have_no_interval_and_say_so() -> None:
    claims = array(np.zeros((3, 5, LAYERS, HEADS), bool))
    claims[:, :, 0, :6] = True
    claims[:, 0, 1, :3] = True
    before, after = (array(np.random.default_rng(i).normal(size=claims.shape)) for i in range(2))
    few = stem_cell_effect(claims, before, after)
    assert np.isnan([few.low, few.high]).all()
    assert np.isfinite(few.mean)
    assert few.note == "no interval: 3 heads a run in the smaller group; 4 are needed"
    claims[:, 0, 1, 3] = True
    assert stem_cell_effect(claims, before, after).note == ""
    claims[0] = False  # a head of the one other run is not in most of the two
    claims[1] = False
    once = stem_cell_effect(claims, before, after)
    assert (once.note, np.isnan(once.low)) == ("no interval: measured in 0 runs; 2 are needed", True)
    claims[:] = array(np.zeros((3, 5, LAYERS, HEADS), bool))
    claims[:, :, 0, :6] = True
    same = sparing(claims, before, before + 0.25)
    assert (same.mean, same.note) == (
        pytest.approx(0.25),
        "no interval: every run has the same value, which says nothing about its spread",
    )


def test_sparing_and_changes() -> None:
    claims, before, after = probe_scores(np.random.default_rng(6), runs=4, damage=0.1)
    spared = sparing(claims, after, after + 0.03)
    assert spared.mean == pytest.approx(0.03)
    gain = 0.1 * np.random.default_rng(9).normal(size=claims.shape)
    for run, value in enumerate(
        sparing(claims, after, after + gain).runs
    ):  # on the heads that the other runs choose
        stem = stem_cells(claims.isel(run=[r for r in range(4) if r != run])).to_numpy()
        assert value == pytest.approx(gain[run][:, stem].mean())
    table = changes(claims, {"untrained": before.mean("run"), "single": before, "multi": after})
    assert len(table) == 5 * 4 * 3
    wide = table.pivot_table(index=["task", "heads"], columns="stage", values="score")
    lost = (wide["single"] - wide["multi"]).unstack("heads").mean()
    assert lost["stem"] > lost["unclaimed"] + 0.05


def test_one_run_or_other_runs_are_refused() -> None:
    claims, before, after = probe_scores(np.random.default_rng(7), runs=2, damage=0.0)
    with pytest.raises(HeadwiseError, match="two runs"):
        stem_cell_effect(claims[:1], before[:1], after[:1])
    with pytest.raises(HeadwiseError, match="same runs"):
        stem_cell_effect(claims, before[:1], after)
    with pytest.raises(HeadwiseError, match="dims"):
        stem_cells(claims[0])
