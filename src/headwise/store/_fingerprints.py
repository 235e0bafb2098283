"""Fingerprints: a short hash of what something holds (data, weights, settings), whatever its path, name or
order of keys."""

import dataclasses
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from headwise._base.places import GGUF
from headwise.errors import HeadwiseError
from headwise.settings import Settings
from headwise.store._atomic import checksum, write_text

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import torch

INDEXED_BYTES = 1 << 20  # smaller files are hashed again each time: that is quicker than looking them up
SETTLED_S = (
    2.0  # a file changed this recently may change again within one tick of its clock, so it is not indexed
)
MODEL_FILES = (".safetensors", ".json", ".txt", ".model", ".jinja")

_remembered: ContextVar[dict[Path, str] | None] = ContextVar("headwise_remembered_files", default=None)
_noting: ContextVar[dict[str, str] | None] = ContextVar("headwise_noted_files", default=None)


@runtime_checkable
class Fingerprinted(Protocol):
    """Objects that know what they hold: `fingerprint` calls this."""

    def fingerprint(self) -> str: ...


def fingerprint(*values: Any) -> str:
    """SHA-256 (hex, 64 characters) of the contents of `values`.

    Files and folders (`Path`) count by content; models by weights, configuration and all else that decides
    what they compute; arrays, tensors, data frames and xarray objects by dtype, shape, labels and values;
    dataclasses and pydantic models by their fields; dicts whatever the order of their keys; objects with a
    `fingerprint()` method by that. Strings are strings, never paths.

    Raises:
        HeadwiseError: a file is missing, an object is of a kind whose contents cannot be read, or code of the
            user's hangs on a model.
    """
    return hashlib.sha256(
        json.dumps([canonical(value) for value in values], separators=(",", ":")).encode()
    ).hexdigest()


def canonical(value: Any) -> Any:
    """`value` as JSON that is equal exactly if the contents are: what `fingerprint` hashes."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is dict:
        return {"dict": sorted(([canonical(k), canonical(v)] for k, v in value.items()), key=_name)}
    if kind is list or kind is tuple:
        return [canonical(item) for item in value]
    if callable(getattr(kind, "fingerprint", None)):  # `Fingerprinted`; asking for that is slow
        return {"fingerprint": value.fingerprint()}
    if isinstance(value, Settings):
        return canonical(value.decides())
    if isinstance(value, Enum):
        return canonical(value.value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        return {"bytes": hashlib.sha256(value).hexdigest()}
    if isinstance(value, Path):
        return {"content": content_hash(value)}
    if isinstance(value, Mapping):
        return canonical(dict(value))
    if isinstance(value, list | tuple):
        return canonical(list(value))
    if isinstance(value, set | frozenset):
        return {"set": sorted((canonical(item) for item in value), key=json.dumps)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return canonical({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    return _of_library(value)


def _name(pair: list[Any]) -> str:
    """What the pairs of a dict are sorted by: the key as JSON."""
    key = pair[0]
    return f'"{key}"' if type(key) is str and key.isidentifier() and key.isascii() else json.dumps(key)


@contextmanager
def remembering_files() -> Iterator[None]:
    """Within the block each file is read once, whatever happens to it: all cells of one plan see the same
    data."""
    token = _remembered.set({})
    try:
        yield
    finally:
        _remembered.reset(token)


@contextmanager
def noting_files() -> Iterator[dict[str, str]]:
    """Gives a dict that holds, after the block, every file that was fingerprinted in it, with its hash."""
    hashes: dict[str, str] = {}
    token = _noting.set(hashes)
    try:
        yield hashes
    finally:
        _noting.reset(token)


def content_hash(path: str | Path) -> str:
    """Hash of a file's bytes, or of a folder's file names and bytes. Large files are remembered by (place,
    size, times)."""
    path = Path(path).expanduser()
    if path.is_dir():
        return folder_content(path, sorted(file for file in path.rglob("*") if file.is_file()))
    if not path.is_file():
        raise HeadwiseError(f"cannot fingerprint {path.absolute()}: there is no such file or folder")
    return _file(path)


def model_content(folder: str | Path) -> str:
    """Hash of the weights, configuration and tokenizer in a model folder, or of a GGUF file; notes and
    pictures do not count."""
    folder = Path(folder)
    if folder.suffix == GGUF and folder.is_file():
        return _file(folder)
    files = sorted(file for file in folder.rglob("*") if file.suffix in MODEL_FILES and file.is_file())
    if not files:
        raise HeadwiseError(f"{folder.absolute()} is not a model: it holds no {', '.join(MODEL_FILES)} file")
    return folder_content(folder, files)


def folder_content(folder: Path, files: list[Path]) -> str:
    """Hash of the names (relative to `folder`) and bytes of `files`."""
    listing = [[file.relative_to(folder).as_posix(), _file(file)] for file in files]
    return hashlib.sha256(json.dumps(listing).encode()).hexdigest()


def cache_folder() -> Path | None:
    """Where headwise keeps what it can compute again: $HEADWISE_CACHE, or headwise in the user's cache
    folder; None if that is "none"."""
    setting = os.environ.get("HEADWISE_CACHE")
    if setting == "none":
        return None
    return Path(setting or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "headwise").expanduser()


def _file(path: Path) -> str:
    remembered = _remembered.get()
    if remembered is None:
        file_hash = _indexed(path.resolve())
    elif path in remembered:
        file_hash = remembered[path]
    else:
        file_hash = remembered.setdefault(path, _indexed(path.resolve()))
    if (hashes := _noting.get()) is not None:
        hashes[str(path.absolute())] = file_hash
    return file_hash


def _indexed(path: Path) -> str:
    stat = path.stat()
    if stat.st_size < INDEXED_BYTES:
        return checksum(path)
    # The change time cannot be set back by copying tools, so an exchanged file with its old size and date is
    # noticed too.
    stamp = [str(path), stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
    folder = cache_folder()
    if folder is None:
        return checksum(path)
    entry = folder / "fingerprints" / f"{hashlib.sha256(str(path).encode()).hexdigest()[:32]}.json"
    try:
        index_record = json.loads(entry.read_text(encoding="utf-8"))
        if index_record["stamp"] == stamp:
            return str(index_record["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # not indexed yet, or the index is damaged: it is only a shortcut
    digest = checksum(path)
    if time.time() - max(stat.st_mtime, stat.st_ctime) > SETTLED_S:
        try:
            entry.parent.mkdir(parents=True, exist_ok=True)
            write_text(entry, json.dumps({"stamp": stamp, "sha256": digest}), durable=False)
        except OSError:
            pass  # a home that cannot be written to costs time, not correctness
    return digest


def _of_library(value: Any) -> Any:
    """Objects of libraries, without importing any library that is not in use."""
    loaded = sys.modules
    if "pydantic" in loaded and isinstance(value, loaded["pydantic"].BaseModel):
        return canonical({name: getattr(value, name) for name in type(value).model_fields})
    if "torch" in loaded and isinstance(value, loaded["torch"].Tensor):
        return _tensor(value)
    if "torch" in loaded and isinstance(value, loaded["torch"].nn.Module):
        return _module(value)
    if "numpy" in loaded and isinstance(value, loaded["numpy"].ndarray | loaded["numpy"].generic):
        return _array(loaded["numpy"].asarray(value))
    if "pandas" in loaded and isinstance(value, loaded["pandas"].DataFrame | loaded["pandas"].Series):
        return _frame(value)
    if "xarray" in loaded and isinstance(value, loaded["xarray"].DataArray):
        labels = {str(name): coord.values for name, coord in value.coords.items()}
        return {
            "xarray": [
                list(map(str, value.dims)),
                canonical(value.values),
                canonical(labels),
                canonical(dict(value.attrs)),
            ]
        }
    if "xarray" in loaded and isinstance(value, loaded["xarray"].Dataset):
        return {
            "xarray": [
                canonical({str(k): v for k, v in value.data_vars.items()}),
                canonical(dict(value.attrs)),
            ]
        }
    raise HeadwiseError(
        f"cannot fingerprint a {type(value).__module__}.{type(value).__name__}: give numbers, strings, "
        "paths, arrays, tables, dataclasses, pydantic models or models, or give the class a fingerprint() "
        "method"
    )


def _tensor(tensor: "torch.Tensor") -> Any:
    import torch

    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) and hasattr(
        tensor, "__tensor_flatten__"
    ):  # quantised: of its parts
        names, form = tensor.__tensor_flatten__()
        inner = {name: _tensor(getattr(tensor, name)) for name in names}
        return {"tensor": [type(tensor).__name__, list(tensor.shape), inner, str(form)]}
    raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return {"tensor": [str(tensor.dtype), list(tensor.shape), hashlib.sha256(raw.data).hexdigest()]}


def _module(module: "torch.nn.Module") -> Any:
    from headwise.store._live import model_content

    return {"module": canonical(model_content(module))}


def _array(array: "np.ndarray[Any, Any]") -> Any:
    if array.dtype.kind == "O":
        return {"array": ["object", list(array.shape), canonical(array.ravel().tolist())]}
    import numpy as np

    raw = np.ascontiguousarray(array)
    return {"array": [raw.dtype.str, list(array.shape), hashlib.sha256(raw.tobytes()).hexdigest()]}


def _frame(frame: "pd.DataFrame | pd.Series[Any]") -> Any:
    import pandas as pd

    if isinstance(frame, pd.Series):
        frame = frame.to_frame()
    labels = [[str(name), str(dtype)] for name, dtype in frame.dtypes.items()]
    try:
        rows = _array(pd.util.hash_pandas_object(frame, index=True).to_numpy())
    except TypeError:  # cells that hold lists
        rows = canonical([frame.index.tolist(), frame.to_numpy(dtype=object).tolist()])
    return {"frame": [labels, rows]}
