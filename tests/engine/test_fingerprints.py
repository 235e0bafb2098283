"""Fingerprints change exactly when contents do."""

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from hypothesis import given, settings, strategies as st
from pydantic import BaseModel

from headwise.errors import HeadwiseError
from headwise.store import _fingerprints as module, fingerprint


@dataclass(frozen=True)
class Config:
    rate: float
    data: Path


class Model(BaseModel):
    rate: float
    data: Path


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def same(a: Any, b: Any) -> bool:
    """Equal in value and in type, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b) and str(a) == str(b)  # 0.0 and -0.0 differ


@given(JSON, JSON)
@settings(max_examples=100, deadline=None)
def test_equal_exactly_if_the_values_are(a: Any, b: Any) -> None:
    assert (fingerprint(a) == fingerprint(b)) == same(a, b)


def test_files_and_folders_count_by_content(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    shutil.copy(tmp_path / "a.csv", tmp_path / "b.csv")
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copy(tmp_path / "a.csv", folder / "a.csv")
    shutil.copytree(folder, tmp_path / "twin")
    kinds = [
        fingerprint(make(0.1, tmp_path / f))
        for f in ("a.csv", "b.csv")
        for make in (Config, lambda r, d: Model(rate=r, data=d))
    ]
    assert len(set(kinds)) == 1
    assert fingerprint(folder) == fingerprint(tmp_path / "twin")
    before = fingerprint(folder)
    (folder / "a.csv").rename(folder / "c.csv")
    assert fingerprint(folder) != before
    (tmp_path / "b.csv").write_text("x,y\n1,3\n")
    assert fingerprint(Config(0.1, tmp_path / "b.csv")) != kinds[0]
    assert fingerprint(str(tmp_path / "a.csv")) != fingerprint(str(tmp_path / "b.csv"))
    with pytest.raises(HeadwiseError, match=r"nowhere\.csv: there is no such file"):
        fingerprint(tmp_path / "nowhere.csv")


def test_large_files_are_read_once_until_they_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "large"
    file.write_bytes(bytes(module.INDEXED_BYTES))
    monkeypatch.setattr(module, "SETTLED_S", -1.0)
    reads = []
    honest = module.checksum
    monkeypatch.setattr(module, "checksum", lambda path: reads.append(path) or honest(path))
    first = fingerprint(file)
    assert fingerprint(file) == first
    assert len(reads) == 1
    stat = file.stat()
    time.sleep(0.02)
    with open(file, "r+b") as handle:  # same size, and the old date is put back
        handle.write(b"x")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert fingerprint(file) != first
    next((tmp_path / "cache" / "fingerprints").iterdir()).write_text("{ damaged")
    assert fingerprint(file) != first


def test_a_file_that_has_just_changed_is_not_remembered(tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(bytes(module.INDEXED_BYTES))
    fingerprint(file)
    assert not (tmp_path / "cache").exists()


def test_arrays_tables_and_models() -> None:
    array = np.arange(6.0).reshape(2, 3)
    assert fingerprint(array) == fingerprint(np.asfortranarray(array))
    assert fingerprint(array) != fingerprint(array.reshape(3, 2))
    assert fingerprint(array) != fingerprint(array.astype("float32"))
    assert fingerprint(torch.tensor(1.5, dtype=torch.bfloat16)) != fingerprint(torch.tensor(1.5))
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    assert fingerprint(frame) == fingerprint(frame.copy())
    assert fingerprint(frame) != fingerprint(frame[::-1])
    assert fingerprint(frame) != fingerprint(frame.rename(columns={"a": "c"}))
    assert fingerprint(pd.DataFrame({"a": [[1], [2]]})) != fingerprint(pd.DataFrame({"a": [[1], [3]]}))
    labelled = xr.DataArray(array, dims=("layer", "head"), attrs={"n": 1})
    assert fingerprint(labelled) != fingerprint(labelled.assign_attrs(n=2))
    assert fingerprint(labelled) != fingerprint(labelled.assign_coords(layer=[3, 4]))
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    twin = torch.nn.Linear(3, 2)
    twin.load_state_dict(model.state_dict())
    assert fingerprint(model) == fingerprint(twin)
    with torch.no_grad():
        twin.weight[0, 0] += 1e-3
    assert fingerprint(model) != fingerprint(twin)
    with pytest.raises(HeadwiseError, match=r"cannot fingerprint a builtins\.function"):
        fingerprint(lambda: 0)


def test_objects_may_say_their_own() -> None:
    class Own:
        def fingerprint(self) -> str:
            return "abc"

    assert fingerprint([Own()]) == fingerprint([Own()]) != fingerprint(["abc"])
