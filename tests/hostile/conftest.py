"""Workers of these tests find `sample_study`, the tests find what they share, and none of them sees this machine's own cache."""

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
STUDIES = str(HERE.parent / "engine")
for place in (str(HERE), str(HERE.parent / "training"), STUDIES):
    if place not in sys.path:
        sys.path.insert(0, place)


@pytest.fixture(autouse=True)
def _own_places(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, [STUDIES, os.environ.get("PYTHONPATH", "")]))
    )
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
