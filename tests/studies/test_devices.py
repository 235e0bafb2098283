"""The steps of studies that open a trained model put it where the GPU is."""

from types import SimpleNamespace

import pytest

from headwise.studies import _estimators_study, _specialization_steps, _stemcells_study


class Opened(Exception):
    pass


STEPS = {
    "claims": (
        _stemcells_study.learn_claims,
        {"examples": 16, "max_length": 16, "gates": "l0", "steps": 1, "fraction": 0.3},
    ),
    "dissociation": (_specialization_steps.dissociation, {"model": "multi-task"}),
    "estimators": (_estimators_study.judge, {"model": None}),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_trained_model_is_opened_on_the_gpu(monkeypatch, name) -> None:
    asked = {}

    def open_model(model, *args, **options):
        asked.update(options, model=model)
        raise Opened

    monkeypatch.setattr("headwise.models.open_model", open_model)
    step, given = STEPS[name]
    config = SimpleNamespace(tasks=SimpleNamespace(find_trained=lambda: ([None], {})), **given)
    with pytest.raises(Opened):
        step(
            config,
            {"trained": SimpleNamespace(model=lambda name: f"a folder of {name}")},
            SimpleNamespace(seed=0),
        )
    assert asked["device"] == "auto"
    assert asked["model"].startswith("a folder of ")
