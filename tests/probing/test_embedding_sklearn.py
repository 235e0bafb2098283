"""A head embedding among scikit-learn's transformers: pipelines, clones, grid searches, and that library's own conventions."""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_get_params_invariance
from test_embedding import CHOSEN, TEXTS
from test_recording import tiny

from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet
from headwise.probing import HeadEmbedding
from headwise.store import load

SCORES = np.array([[0.1, 0.4], [0.3, 0.2]])


def embedding(**options: object) -> HeadEmbedding:
    model, tokenizer = tiny("bert")
    return HeadEmbedding(model, **{"head_set": CHOSEN, "tokenizer": tokenizer, **options})  # type: ignore[arg-type]


def test_a_pipeline_is_the_classifier_on_the_vectors() -> None:
    texts, labels = TEXTS * 5, [0, 1, 0, 1] * 5
    found = make_pipeline(embedding(), LogisticRegression()).fit(texts, labels)
    alone = LogisticRegression().fit(embedding().encode(texts), labels)
    np.testing.assert_allclose(
        found.predict_proba(texts), alone.predict_proba(embedding().encode(texts)), atol=1e-6
    )
    copied = clone(found)
    assert copied.steps[0][1] is not found.steps[0][1]
    assert copied.fit(texts, labels).predict(texts).tolist() == found.predict(texts).tolist()


def test_a_grid_search_over_fraction_and_pooling_equals_a_loop() -> None:
    texts, labels = TEXTS * 6, [0, 1, 0, 1] * 6
    grid = {"headembedding__fraction": [0.25, 0.5, 1.0], "headembedding__pooling": ["cls", "mean"]}
    pipeline = make_pipeline(embedding(head_set=SCORES, fraction=0.25), LogisticRegression(C=0.1))
    search = GridSearchCV(pipeline, grid, cv=2, scoring="neg_log_loss").fit(texts, labels)
    for params, score in zip(
        search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True
    ):
        order = [(0, 1), (1, 0), (1, 1), (0, 0)][: int(4 * params["headembedding__fraction"])]
        fixed = embedding(head_set=HeadSet(order), pooling=params["headembedding__pooling"])
        by_hand = GridSearchCV(
            make_pipeline(fixed, LogisticRegression(C=0.1)), {}, cv=2, scoring="neg_log_loss"
        ).fit(texts, labels)
        np.testing.assert_allclose(score, by_hand.best_score_, atol=1e-6)
    assert len(set(search.cv_results_["mean_test_score"].round(6))) > 1
    assert search.best_estimator_[0].model is pipeline[0].model  # clones share it


def test_scikit_learns_conventions() -> None:
    made = embedding(max_length=9)
    check_get_params_invariance("HeadEmbedding", made)
    assert made.get_params()["max_length"] == 9
    assert set(made.get_params()) == {
        "model",
        "head_set",
        "tokenizer",
        "pooling",
        "max_length",
        "fraction",
        "trust_remote_code",
    }
    assert made.fit(TEXTS) is made
    assert made.set_params(pooling="mean", max_length=None) is made
    assert (made.pooling, made.get_params()["pooling"]) == ("mean", "mean")
    np.testing.assert_allclose(made.transform(TEXTS), embedding(pooling="mean").transform(TEXTS), atol=1e-6)
    made.set_params(pooling=None)
    np.testing.assert_allclose(made.fit_transform(TEXTS), embedding().transform(TEXTS), atol=1e-6)
    with pytest.raises(ValueError, match="no parameter poolin"):
        made.set_params(poolin="cls")
    tags = get_tags(made)
    assert tags.input_tags.string
    assert not tags.requires_fit
    copied = clone(made.set_params(pooling="last"))
    assert copied.get_params() == made.get_params()
    assert copied.model is made.model
    copied.set_params(pooling="cls")
    assert made.pooling == "last"
    again = pickle.loads(pickle.dumps(made))  # for n_jobs and memory=
    np.testing.assert_allclose(again.transform(TEXTS), made.transform(TEXTS), atol=1e-6)


def test_texts_in_and_tables_out() -> None:
    made = embedding()
    rows = made.transform(TEXTS)
    assert (rows.shape, rows.dtype) == ((4, 16), np.dtype("float32"))
    for texts in (np.array(TEXTS), pd.Series(TEXTS), tuple(TEXTS)):
        np.testing.assert_allclose(made.transform(texts), rows, atol=1e-6)  # type: ignore[arg-type]
    assert made.transform([]).shape == (0, 16)
    table = embedding().set_output(transform="pandas").transform(TEXTS)
    assert list(table.columns[:2]) == ["0.1[0]", "0.1[1]"]  # type: ignore[attr-defined]
    for wrong in ("one text", [1, 2], np.zeros((3, 2))):
        with pytest.raises(ValueError, match="a list of texts"):
            made.transform(wrong)  # type: ignore[arg-type]


def test_wrong_fractions_are_named() -> None:
    with pytest.raises(HeadwiseError, match="give scores instead of a set of heads"):
        embedding(fraction=0.5)
    with pytest.raises(HeadwiseError, match="fraction is 0"):
        embedding(head_set=SCORES, fraction=0)
    assert embedding(head_set=SCORES, fraction=0.01).head_set == HeadSet([(0, 1)])


def test_an_embedding_of_a_model_with_heads_removed(tmp_path: Path) -> None:
    model, tokenizer = tiny("bert")
    made = HeadEmbedding(Heads(model).remove(HeadSet([(0, 0)])), HeadSet([(0, 0), (1, 1)]), tokenizer)
    made.save(tmp_path)
    np.testing.assert_allclose(load(tmp_path).encode(TEXTS), made.encode(TEXTS), atol=1e-6)
    of_layer_0 = embedding(head_set=HeadSet([(0, 1)])).encode(TEXTS)  # what is head 0 now
    np.testing.assert_allclose(made.encode(TEXTS)[:, :8], of_layer_0, atol=1e-6)
