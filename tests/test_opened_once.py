"""A call opens its model once, looks once at its weights and for its heads, and makes one twin, however many steps read it."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headwise as hw
import planted
from headwise._passes import subject
from headwise.heads import Heads, HeadSet
from headwise.models import _finite as finite, _opening as opening

OPTIONS: dict[str, Any] = {"examples": 16, "seed": 0, "quiet": True}
DISSOCIATION: dict[str, Any] = {
    "fraction": 0.3,
    "score_examples": 16,
    "random_draws": 2,
    "test_draws": 199,
    "matched_draws": 199,
    "also": ("mean", "resample"),
    "bootstrap": 0,
}
CALLS: dict[str, Callable[..., Any]] = {
    "dissociate": lambda model, tasks: hw.dissociate(model, tasks, **DISSOCIATION, **OPTIONS),
    "score": lambda model, tasks: hw.score(model, tasks, **OPTIONS),
    "score in rounds": lambda model, tasks: hw.score(model, tasks, iterative=4, **OPTIONS),
    "lesion": lambda model, tasks: hw.lesion(model, tasks, [HeadSet([(0, 1)])], how="mean", **OPTIONS),
    "evaluate": lambda model, tasks: hw.evaluate(model, tasks, silenced=HeadSet([(0, 1)]), **OPTIONS),
    "probe": lambda model, tasks: hw.probe(model, tasks, controls=(), **OPTIONS),
}


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each step of opening a model is taken."""
    counts: Counter[str] = Counter()

    def count(step: str, owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            counts[step] += 1
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, name, counted)

    count("opened", opening, "_in_form")
    count("weights looked at", finite, "nan_weight")
    count("heads found", Heads, "__init__")
    count("twins made", subject, "twins_of")
    return counts


@pytest.mark.parametrize("source", ["live", "folder"])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore")
def test_a_model_is_opened_once(name: str, source: str, steps: Counter[str], tmp_path: Path) -> None:
    both = planted.tasks(size=40)
    model: Any = planted.model({"a": (0, 2), "b": (1, 1)}, both)
    if source == "folder":
        model.save(tmp_path / "model")
        model = tmp_path / "model"
    CALLS[name](model, list(both.values()))
    assert (steps["opened"], steps["weights looked at"], steps["heads found"]) == (1, 1, 1)
    assert steps["twins made"] == (0 if name in ("evaluate", "probe") else 1)
