"""Nothing is chosen on test: train, validation and test ask different things, so a choice on the wrong split shows.

In training the a-word and the b-word of a text always agree, and the label is both. On validation the label is the a-word's and the
b-word is drawn at random; on test it is the other way round. A head that carries a is then perfect on validation and guesses on test.
"""

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.linear_model import Ridge

import planted
from headwise.heads import HeadSet
from headwise.probing import Probe
from headwise.probing._finetuning import EmbeddedModel
from headwise.probing._fits import Labels, choose
from headwise.probing._probes import probe
from headwise.probing._results import Probes
from headwise.tasks import Task
from headwise.training import train

pytestmark = pytest.mark.filterwarnings("ignore:task 'both'")  # short texts of few words meet again
A, B = (0, 2), (1, 1)  # the heads that carry the two words


def rows(split: str, size: int, seed: int) -> list[tuple[str, int]]:
    rng = np.random.default_rng(seed)
    found = []
    for i in range(size):
        label, other = i % 2, i % 2 if split == "train" else i // 2 % 2
        a, b = (other, label) if split == "test" else (label, other)
        found.append(
            (
                " ".join(
                    rng.permutation([f"a{a}", f"b{b}", *rng.choice(planted.FILLERS, rng.integers(2, 6))])
                ),
                label,
            )
        )
    return found


@pytest.fixture(scope="module")
def found() -> Probes:
    data = {
        split: rows(split, size, seed)
        for seed, (split, size) in enumerate((("train", 80), ("validation", 40), ("test", 40)))
    }
    task = Task("both", data=data, kind="classes", classes=["0", "1"])
    model = planted.model({"a": A, "b": B}, planted.tasks(size=4))
    return probe(
        model.encoder, task, tokenizer=planted.tokenizer(), pooling="cls", top=1, controls=(), quiet=True
    )


def test_the_top_heads_are_chosen_on_validation(found: Probes) -> None:
    validation, test = (found.data[name].sel(task="both").to_numpy() for name in ("validation", "test"))
    assert (validation[A], test[A], test[B]) == (1.0, 0.5, 1.0)
    top = found.embeddings.set_index("embedding").loc["top 1 heads"]
    assert HeadSet.from_json(top["heads"]) == HeadSet([A]) == found.top(1)
    assert top["test"] == 0.5
    assert found.table().loc["both", "best head"] == 0.5


def test_the_best_layer_is_chosen_on_validation(found: Probes) -> None:
    layers = found.data.sel(task="both")
    assert layers["layer_validation"].to_numpy().argmax() == 0  # the first layer knows a alone
    assert layers["layer_test"].to_numpy().argmax() == 1  # the second knows b too
    best = found.embeddings.set_index("embedding").loc["best layer"]
    assert best["layer"] == 0
    assert best["test"] == pytest.approx(float(layers["layer_test"][0]))


def test_the_strength_is_chosen_on_validation() -> None:
    """Validation is the training set again, so the weakest penalty wins; on test the signs are turned, so the strongest would."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(1, 60, 50)).astype(np.float32))
    y = np.repeat([0, 1], [50, 10])  # a strong penalty always answers 0
    parts = {"train": x, "validation": x, "test": -x}
    chosen = choose(
        parts.__getitem__, Labels("classes", "accuracy", 2, y, y, y), Probe(strengths=(1e-5, 10.0))
    )
    assert chosen.strengths.tolist() == [1e-5]
    assert chosen.validation.tolist() == [1.0]
    assert (chosen.predictions[0] == y).mean() < 50 / 60  # what the strong penalty would have had


def test_of_equal_strengths_the_strongest_is_chosen() -> None:
    """Two clusters far apart are told apart at every strength."""
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    x = torch.from_numpy((rng.normal(size=(3, 40, 4)) + 20 * y[:, None]).astype(np.float32))
    parts = dict.fromkeys(("train", "validation", "test"), x)
    labels = Labels("classes", "accuracy", 2, y, y, y)
    for folds in (None, 4):
        chosen = choose(parts.__getitem__, labels, Probe(strengths=(1e-4, 1e-3, 1e-2), folds=folds))
        assert chosen.validation.tolist() == [1.0] * 3
        assert chosen.strengths.tolist() == [1e-2] * 3


def test_numbers_choose_by_pearson() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3, 90, 5)).astype(np.float32)
    y = np.exp(
        x[0, :, 0] + 0.5 * rng.normal(size=90)
    )  # skewed, so that ranks and values correlate differently
    splits = {"train": slice(0, 40), "validation": slice(40, 65), "test": slice(65, 90)}
    labels = Labels("number", "spearman", 0, *(y[part] for part in splits.values()))
    for strength in (1e-3, 1.0):
        chosen = choose(
            lambda name: torch.from_numpy(x[:, splits[name]]), labels, Probe(strengths=(strength,))
        )
        for i in range(3):
            fitted = Ridge(40 * strength).fit(x[i, :40], y[:40])
            guess = fitted.predict(x[i, 40:65])
            assert chosen.validation[i] == pytest.approx(stats.pearsonr(guess, y[40:65]).statistic, abs=1e-4)
        assert abs(chosen.validation[0] - stats.spearmanr(x[0, 40:65, 0], y[40:65]).statistic) > 0.01


@pytest.mark.parametrize("source", [HeadSet([A, B]), 1])
def test_fine_tuning_from_heads_trains_classifier_and_encoder(source: HeadSet | int) -> None:
    data = {split: rows("train", 32, seed) for seed, split in enumerate(("train", "validation"))}
    task = Task("both", data=data, kind="classes", classes=["0", "1"])
    encoder = planted.model({"a": A, "b": B}, planted.tasks(size=4)).encoder
    model = EmbeddedModel(encoder, planted.tokenizer(), [task], source, "cls")
    before = {name: value.clone() for name, value in model.named_parameters()}
    train(model, task, "multi-task", epochs=4, batch_size=8, learning_rate=1e-2, quiet=True, device="cpu")
    moved = {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}
    assert moved >= {
        f"decoders.both.{part}.{kind}" for part in ("dense", "out") for kind in ("weight", "bias")
    }
    assert "encoder.encoder.layer.0.attention.self.value.weight" in moved
