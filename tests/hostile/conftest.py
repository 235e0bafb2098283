"""Workers and subprocesses of these tests find `sample_study`, and none of them sees this machine's own cache."""

import os
import sys
from pathlib import Path

import pytest

STUDIES = str(Path(__file__).parent.parent / "runs")
if STUDIES not in sys.path:
    sys.path.insert(0, STUDIES)


@pytest.fixture(autouse=True)
def _own_places(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [STUDIES, os.environ.get("PYTHONPATH", "")])))
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
