"""Operations inside `torch.inference_mode()`, where a server may call them: the same numbers, and the mode as before afterwards."""

from typing import Any

import numpy as np
import pytest
import torch

import headwise as hw
import planted
from headwise.errors import HeadwiseError
from headwise.scoring import ESTIMATORS
from headwise.tasks import Task

QUICK: dict[str, dict[str, Any]] = {
    "l0": {"steps": 2},
    "subset": {"steps": 2},
    "causal-gating": {"steps": 2},
    "integrated-gradients": {"steps": 2},
    "attention-attribution": {"steps": 1},
    "shapley": {"permutations": 1},
}


@pytest.fixture(scope="module")
def both() -> dict[str, Task]:
    return planted.tasks(size=16)


@pytest.mark.parametrize("method", [name for name in ESTIMATORS if "patching" not in name])
def test_scores_are_the_same_inside_inference_mode(both: dict[str, Task], method: str) -> None:
    """They ended with "element 0 of tensors does not require grad", or "Inference tensors cannot be saved for backward"."""
    model, options = planted.model({"a": (0, 2)}, both), {"quiet": True, **QUICK.get(method, {})}
    asking = [weight.requires_grad for weight in model.parameters()]
    expected = hw.score(model, both["a"], method=method, **options)
    with torch.inference_mode():
        found = hw.score(model, both["a"], method=method, **options)
        alone = ESTIMATORS[method](model, both["a"], **options)
        assert torch.is_inference_mode_enabled()
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(alone, expected)
    assert [weight.requires_grad for weight in model.parameters()] == asking


def test_other_operations_work_there_too(both: dict[str, Task]) -> None:
    model, fresh = (planted.model({"a": (0, 2), "b": (1, 1)}, both) for _ in range(2))
    tasks = list(both.values())
    with torch.inference_mode():
        result = hw.dissociate(model, tasks, fraction=0.2, random_draws=0, bootstrap=0, quiet=True)
        trained = hw.train(fresh, tasks, epochs=1, quiet=True)
    assert result.d > 0
    assert not any(weight.is_inference() for weight in trained.model.parameters())


def test_gradients_stay_off_where_only_they_are_off() -> None:
    """`torch.no_grad()` is not ended by an operation."""
    seen = []

    def mine(model: Any, task: Any, heads: Any) -> Any:
        seen.append(torch.is_grad_enabled())
        return np.zeros(heads.shape)

    both = planted.tasks(size=16)
    with torch.no_grad():
        hw.score(planted.model({"a": (0, 2)}, both), both["a"], method=mine, quiet=True)
    assert seen == [False]


def test_a_model_made_there_is_refused_in_a_sentence(both: dict[str, Task]) -> None:
    with torch.inference_mode():
        model = planted.model({"a": (0, 2)}, both)
    for run in (hw.score, hw.train, lambda *args, **options: hw.lesion(*args, {}, **options)):
        with pytest.raises(
            HeadwiseError, match=r"was made inside torch.inference_mode\(\).*make or open it outside"
        ):
            run(model, both["a"], quiet=True)
    assert hw.evaluate(model, both["a"], quiet=True).score == 1.0
