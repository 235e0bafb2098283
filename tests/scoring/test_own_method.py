"""`score(method=function)`: a user's own estimator, like any other."""

from typing import Any

import numpy as np
import pytest

import planted
from headwise.errors import HeadwiseError
from headwise.scoring import score


def test_a_function_of_a_model_and_a_task_is_a_method() -> None:
    both = planted.tasks(size=8)
    model = planted.model({"a": (0, 2), "b": (1, 1)}, both)
    seen = []

    def mine(model: Any, task: Any, heads: Any, examples: int = 3, scale: float = 1.0) -> Any:
        seen.append(examples)
        return scale * np.arange(np.prod(heads.shape)).reshape(heads.shape)

    found = score(model, list(both.values()), method=mine, examples=5, scale=2.0, quiet=True)
    assert seen == [5, 5]
    assert found.dims == ("task", "layer", "head")
    assert found.attrs["method"] == "mine"
    assert found.sel(task="b").to_numpy().ravel()[:3].tolist() == [0, 2, 4]
    with pytest.raises(HeadwiseError, match=r"'mine' has no option 'scal' \(did you mean 'scale'"):
        score(model, both["a"], method=mine, scal=2.0)
    with pytest.raises(HeadwiseError, match=r"scores of shape \(3,\)"):
        score(model, both["a"], method=lambda model, task: np.zeros(3))
