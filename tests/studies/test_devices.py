"""The steps of studies that open a trained model put it where the GPU is."""

from types import SimpleNamespace

import pytest

from headwise.lesions import Lesion
from headwise.studies import _estimators_study, _stemcells_study


class Opened(Exception):
    pass


SENTENCES = {"data": None, "skip_bad": False, "size": 64, "tasks": ("pos",)}
CLAIMS = {"examples": 16, "max_length": 16, "gates": "l0", "steps": 1, "fraction": 0.3}
SOURCE = SimpleNamespace(find_trained=lambda: ([None], {}))
STEPS = {
    "claims": (_stemcells_study.learn_claims, {**SENTENCES, **CLAIMS}),
    "estimators": (
        _estimators_study.judge,
        {"tasks": SOURCE, "estimators": {}, "fractions": (), "random_draws": 1, "lesions": Lesion()},
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_trained_model_is_opened_on_the_gpu(monkeypatch, name) -> None:
    asked = {}

    def open_model(model, *args, **options):
        asked.update(options, model=model)
        raise Opened

    monkeypatch.setattr("headwise.models.open_model", open_model)
    step, arguments = STEPS[name]
    trained = SimpleNamespace(model=lambda name: f"a folder of {name}")
    with pytest.raises(Opened):
        step(SimpleNamespace(seed=0), trained=trained, **arguments)
    assert asked["device"] == "auto"
    assert asked["model"].startswith("a folder of ")
