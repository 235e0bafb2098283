"""CNM and its ridge: against scikit-learn, planted encodings, and shuffled responses."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import LeaveOneOut, cross_val_predict

from headwise.errors import HeadwiseError
from headwise.similarity import BrainData, cnm, encoding_scores, read_pereira
from headwise.similarity._brain import _folds
from headwise.similarity._encoding import fit_ridge


def test_the_strength_and_weights_equal_a_leave_one_out_loop() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 30)), rng.normal(size=(20, 4))
    y[:, :2] += x[:, :1] * 3
    grid = (0.01, 1.0, 100.0)
    unit = float(
        (np.linalg.svd(x - x.mean(0), compute_uv=False)[:-1] ** 2).mean()
    )  # centring leaves one singular value at zero
    fit = fit_ridge(x, y, grid)
    predictions = np.stack([cross_val_predict(Ridge(g * unit), x, y, cv=LeaveOneOut()) for g in grid])
    best = ((predictions - y) ** 2).sum(1).argmin(0)
    assert fit.strength.tolist() == best.tolist()
    for voxel in range(4):
        slow = Ridge(grid[best[voxel]] * unit).fit(x, y[:, voxel])
        assert np.allclose(fit.weights[:, voxel], slow.coef_, atol=1e-6)
        assert fit.intercept[voxel] == pytest.approx(slow.intercept_, abs=1e-6)
        assert fit.inner[voxel] == pytest.approx(
            np.corrcoef(predictions[best[voxel], :, voxel], y[:, voxel])[0, 1], abs=1e-6
        )


def planted(shuffle: bool = False, components: bool = False) -> tuple[dict[str, np.ndarray], BrainData]:
    """Task a's vectors encode the first 30 voxels, task b's the last 30; c repeats a with a little noise."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 120, 10))
    responses = {}
    for participant in ("p1", "p2"):
        left, right = a @ rng.normal(size=(10, 30)), b @ rng.normal(size=(10, 30))
        rows = np.concatenate([left, right], axis=1) + rng.normal(size=(120, 60))
        responses[participant] = rng.permuted(rows, axis=0) if shuffle else rows
    names = tuple(f"s{i:03d}" for i in range(120))
    data = BrainData(names, responses, names, components=components)
    return {"a": a, "b": b, "c": a + 0.2 * rng.normal(size=a.shape)}, data


def test_cnm_finds_a_planted_encoding_and_tells_tasks_apart() -> None:
    vectors, data = planted()
    scores = encoding_scores(vectors, data)["p1"].scores.reshape(3, 5, 60).mean(1)
    assert scores[0, :30].mean() > 0.7
    assert abs(scores[0, 30:].mean()) < 0.15
    result = cnm(vectors, data)
    assert np.allclose(np.diag(result), 1)
    assert result.sel(task="a", other="c") > 0.95 > 0.5 > result.sel(task="a", other="b")
    assert cnm({"a": vectors["a"], "again": vectors["a"]}, data).values == pytest.approx(np.ones((2, 2)))


def test_cnm_is_at_chance_on_shuffled_responses() -> None:
    vectors, data = planted(shuffle=True)
    for score in cnm(vectors, data).attrs["mean_score"].values():
        assert abs(score) < 0.08


def test_the_order_of_sentences_and_stimuli_does_not_matter() -> None:
    vectors, data = planted(components=True)
    order = np.random.default_rng(2).permutation(120)
    names = tuple(data.stimuli[i] for i in order)
    moved = BrainData(names, {p: r[order] for p, r in data.responses.items()}, names, components=True)
    assert np.allclose(cnm(vectors, data), cnm({t: v[order] for t, v in vectors.items()}, moved), atol=1e-9)


def test_sentences_of_a_stimulus_are_averaged_and_groups_stay_together() -> None:
    data = BrainData(("x", "y"), {"p": np.zeros((2, 3))}, ("1", "2", "3"), np.array([0, 1, 0]))
    assert data.stimulus_vectors(np.array([[1.0], [5.0], [3.0]])).tolist() == [[2.0], [5.0]]
    with pytest.raises(HeadwiseError, match="do not cover"):
        BrainData(("x", "y"), {"p": np.zeros((2, 3))}, ("1",), np.array([0]))
    with pytest.raises(HeadwiseError, match="shape"):
        BrainData(("x", "y"), {"p": np.zeros((3, 3))}, ("1", "2"))


def test_only_the_most_predictable_voxels_are_kept() -> None:
    vectors, data = planted()
    kept = encoding_scores({"a": vectors["a"]}, data, voxels=20)["p2"]
    assert kept.scores.shape == (1, 5 * 20)
    assert kept.scores.mean() > 0.7


def test_components_weigh_by_their_variance_in_the_training_stimuli() -> None:
    """Held-out responses decide nothing, their variance no more than their means; voxels all weigh the same."""
    vectors, data = planted(components=True)
    fold_of = _folds(data, 5, 0)
    weights = encoding_scores(vectors, data)["p1"].weights.reshape(5, 60)
    for fold in range(5):
        np.testing.assert_allclose(weights[fold], data.responses["p1"][fold_of != fold].var(0))
    assert (encoding_scores(vectors, planted()[1])["p1"].weights == 1).all()


def test_cnm_is_the_weighted_cosine_of_scores() -> None:
    vectors, data = planted(components=True)
    found, encodings = cnm(vectors, data), encoding_scores(vectors, data)
    for i, one in enumerate(vectors):
        for j, other in enumerate(vectors):
            cosines = []
            for scores, weights in encodings.values():
                dot, own, its = ((weights * scores[a] * scores[b]).sum() for a, b in ((i, j), (i, i), (j, j)))
                cosines.append(dot / np.sqrt(own * its))
            assert float(found.sel(task=one, other=other)) == pytest.approx(np.mean(cosines))
        means = [(e.weights * e.scores[i]).sum() / e.weights.sum() for e in encodings.values()]
        assert found.attrs["mean_score"][one] == pytest.approx(np.mean(means))


def test_the_most_predictable_voxels_of_noise_predict_nothing_held_out() -> None:
    """Chosen inside the training folds the best of 400 voxels of noise are noise; chosen on the held-out stimuli they would not be."""
    rng = np.random.default_rng(4)
    names = tuple(f"s{i:03d}" for i in range(60))
    data = BrainData(names, {"p": rng.normal(size=(60, 400))}, names)
    scores = encoding_scores({"a": rng.normal(size=(60, 8)), "b": rng.normal(size=(60, 8))}, data, voxels=20)[
        "p"
    ].scores
    assert scores.shape == (2, 5 * 20)
    assert abs(scores.mean()) < 0.1  # 200 correlations over 12 stimuli each: a standard error of 0.02


def test_pereira_files_of_both_layouts_are_read(tmp_path: Path) -> None:
    from scipy.io import savemat

    reduced = tmp_path / "reduced"
    reduced.mkdir()
    rng = np.random.default_rng(3)
    concepts = np.array(["cat", "dog", "sky"])
    np.savez(
        reduced / "responses.npz",
        responses=rng.normal(size=(2, 3, 4)),
        participants=np.array(["P01", "M02"]),
        concepts=concepts,
    )
    table = pd.DataFrame(
        {"concept": ["dog", "cat", "sky", "cat"], "sentence": ["a dog", "a cat", "the sky", "two cats"]}
    )
    table.to_parquet(reduced / "sentences.parquet")
    data = read_pereira(reduced)
    assert data.components
    assert data.rows_of_sentences().tolist() == [1, 0, 2, 0]
    published = tmp_path / "published"
    for participant in ("P01", "M02"):
        (published / participant).mkdir(parents=True)
        rows = rng.normal(size=(3, 6))
        savemat(
            published / participant / "examples_180concepts_sentences.mat",
            {"examples": rows, "keyConcept": np.array(concepts, dtype=object)},
        )
        passages = {
            "examples_passagesentences": rows,
            "keySentences": np.array(["s1", "s2", "s3"], dtype=object),
        }
        savemat(
            published / participant / "data_384sentences.mat",
            passages | {"labelsPassageForEachSentence": np.array([1, 1, 2])},
        )
    with pytest.raises(HeadwiseError, match="pass sentences="):
        read_pereira(published)
    again = read_pereira(published, sentences=reduced / "sentences.parquet")
    assert set(again.responses) == {"P01", "M02"}
    assert again.stimuli == ("cat", "dog", "sky")
    passages = read_pereira(published, experiment="384sentences")
    assert passages.groups == ("1", "1", "2")
    savemat(published / "P01" / "data_384sentences.mat", {"examples_passagesentences": rows, "key": 1})
    with pytest.raises(HeadwiseError, match=r"mat holds \['examples_passagesentences', 'key'\]; expected"):
        read_pereira(published, experiment="384sentences")
    with pytest.raises(HeadwiseError, match=r"no \*/data_243"):
        read_pereira(published, experiment="243sentences")
