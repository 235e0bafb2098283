"""One result: the folder a step writes through `Out` and others read through `Result`, and how damage to it is found."""

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from headwise.errors import HeadwiseError
from headwise.names import inside, shown
from headwise.parsing import parse_json
from headwise.runs.atomic import checksum, read_sealed
from headwise.runs.fingerprints import fingerprint
from headwise.runs.progress import track
from headwise.writing import save_tensors

if TYPE_CHECKING:
    import pandas as pd
    import torch
    import xarray as xr

    from headwise.runs.checkpoint import Checkpoint

T = TypeVar("T")
PROVENANCE = "provenance.json"
PICKLES = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".joblib", ".ckpt"}


class DamagedResult(HeadwiseError):
    """A stored result is not what was written."""


@runtime_checkable
class Saveable(Protocol):
    def save(self, folder: Path, /) -> Any: ...


@runtime_checkable
class Pretrained(Protocol):
    def save_pretrained(self, folder: Path, /) -> Any: ...


class Out:
    """Where a step saves its result. Names are lower-case words joined by - or _; each is used once.

    Attributes:
        seed: the cell's seed; the global random generators were set to it when the step began.
        coords: the cell's place in the grid.
    """

    def __init__(self, folder: Path, seed: int, coords: Mapping[str, Any], checkpoints: Path) -> None:
        self.seed = seed
        self.coords = dict(coords)
        self._folder = folder
        self._checkpoints = checkpoints

    def table(self, name: str, frame: "pd.DataFrame") -> None:
        """Saves a data frame as parquet. A column named like one of the cell's coordinates must hold that coordinate."""
        import pandas as pd

        if not isinstance(frame.index, pd.RangeIndex):
            frame = frame.reset_index()
        for column in frame.columns:
            if column in self.coords and not (frame[column] == self.coords[column]).all():
                raise HeadwiseError(
                    f"table {name!r} has a column {column!r}, which is also a coordinate of its cell with the value "
                    f"{self.coords[column]!r}: rename the column"
                )
        frame.to_parquet(self._new(name, ".parquet"), index=False)

    def array(self, name: str, array: "xr.DataArray") -> None:
        """Saves a labelled array as netCDF; its attributes (JSON values) become one attribute, "settings"."""
        stored = array.rename("values").copy(deep=False)
        stored.attrs = {"settings": json.dumps(array.attrs, sort_keys=True)}
        stored.to_netcdf(self._new(name, ".nc"), engine="scipy")

    def tensors(self, name: str, tensors: "Mapping[str, torch.Tensor]") -> None:
        """Saves tensors by name as safetensors."""
        save_tensors(
            {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}, self._new(name, ".safetensors")
        )

    def json(self, name: str, value: Any) -> None:
        """Saves numbers, strings, lists and dicts as JSON."""
        self._new(name, ".json").write_text(json.dumps(value, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    def model(self, name: str, model: Saveable | Pretrained | Callable[[Path], Any]) -> None:
        """Saves a model into the folder `name`: by its `save` (which makes it), its `save_pretrained`, or by calling it with it."""
        folder = self._new(name, "")
        if isinstance(model, Saveable):
            model.save(folder)
            return
        folder.mkdir()
        if isinstance(model, Pretrained):
            model.save_pretrained(folder)
        else:
            model(folder)

    def checkpoint(self, every_minutes: float = 10) -> "Checkpoint":
        """A checkpoint for this cell that outlives the process: a cell that was killed finds it when it is run again."""
        from headwise.runs.checkpoint import Checkpoint

        return Checkpoint(self._checkpoints, every_minutes)

    def progress(self, iterable: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
        """`track`: the study's view shows the bar."""
        return track(iterable, description, total)

    def _new(self, name: str, suffix: str) -> Path:
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name) or name == "provenance":
            raise HeadwiseError(f"cannot save under the name {name!r}: use lower-case letters, digits, - and _")
        path = self._folder / f"{name}{suffix}"
        if path.exists():
            raise HeadwiseError(f"{path.name} is saved twice by one step: give each its own name")
        return path


class Result:
    """A finished result. What is read is compared with its checksum first; the model is never needed.

    Args:
        folder: the result's folder.

    Raises:
        DamagedResult: (from any method) a file is not what the step wrote.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._sound: set[str] = set()

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """Config, inputs, seed, versions, commit, device, seconds, peak memory, and the checksum of every file."""
        try:
            return _stamp(self.folder)
        except ValueError as error:
            raise DamagedResult(f"{self.folder}: {error}") from None

    @property
    def names(self) -> list[str]:
        """File names (models: name/file) in the result, without the provenance."""
        return sorted(self.provenance["files"])

    def table(self, name: str) -> "pd.DataFrame":
        import pandas as pd

        return pd.read_parquet(self._checked(f"{name}.parquet"))

    def array(self, name: str) -> "xr.DataArray":
        import xarray as xr

        with xr.open_dataset(self._checked(f"{name}.nc"), engine="scipy") as data:
            array = data["values"].load()
        array.attrs = json.loads(array.attrs["settings"])
        return array.rename(name)

    def tensors(self, name: str) -> "dict[str, torch.Tensor]":
        from safetensors.torch import load_file

        loaded: dict[str, torch.Tensor] = load_file(self._checked(f"{name}.safetensors"))
        return loaded

    def json(self, name: str) -> Any:
        return parse_json(self._checked(f"{name}.json").read_bytes(), f"{self.folder / name}.json")

    def model(self, name: str) -> Path:
        """The folder of a saved model, for `headwise.load` or `from_pretrained`."""
        parts = [file for file in self.names if file.startswith(f"{name}/")]
        for part in parts or [f"{name}/"]:
            self._checked(part)
        return self.folder / name

    def _checked(self, file: str) -> Path:
        if file not in self.provenance["files"]:
            raise HeadwiseError(f"{self.folder} has no {file}; it holds: {', '.join(self.names) or 'nothing'}")
        if file not in self._sound:
            if wrong := _file_damage(self.folder / file, self.provenance["files"][file], self.provenance["finished"]):
                raise DamagedResult(f"{self.folder}: {wrong}; run the study again to compute it anew")
            self._sound.add(file)
        return self.folder / file


def contents(folder: Path) -> dict[str, list[Any]]:
    """Relative name to [bytes, SHA-256] of every file a step wrote.

    Raises:
        HeadwiseError: one of them is a pickle.
    """
    found: dict[str, list[Any]] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if path.suffix in PICKLES:
            raise HeadwiseError(
                f"a step saved {path.relative_to(folder)}, a pickle: save weights as safetensors, the rest as JSON"
            )
        found[path.relative_to(folder).as_posix()] = [path.stat().st_size, checksum(path)]
    return found


def damage(folder: Path) -> list[str]:
    """What is wrong with a result's folder, one message a file; empty if every byte is as the step wrote it."""
    try:
        record = _stamp(folder)
    except ValueError as error:
        return [str(error)]
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    wrong = [_file_damage(folder / name, known, record["finished"]) for name, known in sorted(record["files"].items())]
    wrong += [f"{name} was added later" for name in sorted(present - record["files"].keys() - {PROVENANCE})]
    return [message for message in wrong if message]


def _stamp(folder: Path) -> dict[str, Any]:
    """The provenance of a result.

    Raises:
        ValueError: it is missing or damaged, lacks what is read of it, or names files outside the folder.
    """
    record = read_sealed(folder / PROVENANCE)
    files = record.get("files")
    if not isinstance(files, dict) or not all(isinstance(record.get(name), int | float) for name in ("seconds", "finished")):
        raise ValueError(f"{PROVENANCE} lacks the files, or when they were written")
    try:
        for name, known in files.items():
            inside(folder, name)
            size, digest = known
            if not isinstance(size, int) or not isinstance(digest, str):
                raise TypeError
    except (HeadwiseError, TypeError, ValueError):
        raise ValueError(
            f"{PROVENANCE} names a file outside the folder, or one without size and checksum: {shown(name)}"
        ) from None
    return record


def digest(folder: Path) -> str:
    """Short hash of what a result holds, without its times: what a cell that used it remembers."""
    return fingerprint(Result(folder).provenance["files"])[:20]


def stale(run: Path, task: Mapping[str, Any], record: dict[str, Any]) -> str:
    """The input that has changed since the result was computed from it, or "" if none has."""
    for label, given in task["inputs"].items():
        folders = [given] if isinstance(given, str) else given
        try:
            now = [digest(run / "results" / folder) for folder in folders]
        except DamagedResult:
            continue  # it could not be computed anew: nothing newer to go by
        if not isinstance(before := record.get("inputs"), dict) or before.get(label) != now:
            return str(label)
    return ""


def _file_damage(path: Path, known: list[Any], finished: float) -> str:
    """Names what happened to a file: missing, truncated, edited, or a bit flipped under it."""
    size, digest = known
    name = path.name
    try:
        stat = path.stat()
    except FileNotFoundError:
        return f"{name} is missing"
    if stat.st_size < size:
        return f"{name} is truncated: {stat.st_size} of {size} bytes"
    if stat.st_size == size and checksum(path) == digest:
        return ""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(stat.st_mtime))
    if stat.st_size > size:
        return f"{name} was edited: it has {stat.st_size} bytes instead of {size}, last written {when}"
    if stat.st_mtime > finished + 2:
        return f"{name} was edited: same size, other bytes, last written {when}, after the step had finished"
    return f"{name} has flipped bits: same size and date, other bytes (a fault of the disk, or a copy gone wrong)"
