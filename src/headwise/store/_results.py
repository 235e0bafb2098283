"""One result: the folder a step writes through `Out` and others read through `Result`, and how damage to it is found."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from headwise._base.parsing import parse_json
from headwise._base.progress import track
from headwise._base.writing import save_tensors
from headwise.errors import HeadwiseError
from headwise.store._atomic import read_sealed
from headwise.store._checksums import DamagedResult, check_listing, contents, file_damage, verify
from headwise.store._fingerprints import fingerprint

if TYPE_CHECKING:
    import pandas as pd
    import torch
    import xarray as xr

    from headwise.store._checkpoint import Checkpoint

T = TypeVar("T")
PROVENANCE = "provenance.json"
RESULTS = "results"  # the folder of a run in which results lie, each under its own key
PICKLES = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".joblib", ".ckpt"}


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
            {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()},
            self._new(name, ".safetensors"),
        )

    def json(self, name: str, value: Any) -> None:
        """Saves numbers, strings, lists and dicts as JSON."""
        self._new(name, ".json").write_text(
            json.dumps(value, indent=1, sort_keys=True) + "\n", encoding="utf-8"
        )

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
        from headwise.store._checkpoint import Checkpoint

        return Checkpoint(self._checkpoints, every_minutes)

    def progress(self, iterable: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
        """`track`: the study's view shows the bar."""
        return track(iterable, description, total)

    def _new(self, name: str, suffix: str) -> Path:
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name) or name == "provenance":
            raise HeadwiseError(
                f"cannot save under the name {name!r}: use lower-case letters, digits, - and _"
            )
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
            raise HeadwiseError(
                f"{self.folder} has no {file}; it holds: {', '.join(self.names) or 'nothing'}"
            )
        if file not in self._sound:
            known = {file: self.provenance["files"][file]}
            verify(self.folder, known, self.provenance["finished"], "; rerun the study to compute it again")
            self._sound.add(file)
        return self.folder / file


def saved_files(folder: Path) -> dict[str, list[Any]]:
    """Relative name to [bytes, SHA-256] of every file a step wrote.

    Raises:
        HeadwiseError: one of them is a pickle.
    """
    found = contents(folder)
    for name in found:
        if Path(name).suffix in PICKLES:
            raise HeadwiseError(
                f"a step saved {name}, a pickle: save weights as safetensors, the rest as JSON"
            )
    return found


def damaged_files(folder: Path) -> list[str]:
    """What is wrong with a result's folder, one message a file; empty if every byte is as the step wrote it."""
    try:
        record = _stamp(folder)
    except ValueError as error:
        return [str(error)]
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    wrong = [
        file_damage(folder / name, known, record["finished"])
        for name, known in sorted(record["files"].items())
    ]
    wrong += [f"{name} was added later" for name in sorted(present - record["files"].keys() - {PROVENANCE})]
    return [message for message in wrong if message]


def _stamp(folder: Path) -> dict[str, Any]:
    """The provenance of a result.

    Raises:
        ValueError: it is missing or damaged, lacks what is read of it, or names files outside the folder.
    """
    record = read_sealed(folder / PROVENANCE)
    if not all(isinstance(record.get(name), int | float) for name in ("seconds", "finished")):
        raise ValueError(f"{PROVENANCE} does not record when the files were written")
    try:
        check_listing(folder, record.get("files"))
    except ValueError as error:
        raise ValueError(f"{PROVENANCE} is damaged: {error}") from None
    if folder.parent.name == RESULTS and folder.name != f"{record.get('step')}-{str(record.get('key'))[:20]}":
        raise ValueError(
            f"it holds the result of another cell, {record.get('step')} {str(record.get('key'))[:20]}: folders were exchanged"
        )
    return record


def result_digest(folder: Path) -> str:
    """Short hash of what a result holds, without its times: what a cell that used it remembers."""
    return digest_of(Result(folder).provenance)


def digest_of(record: Mapping[str, Any]) -> str:
    """The same, from the provenance."""
    return fingerprint(record["files"])[:20]


def folder_stamp(folder: str | Path) -> str:
    """Short hash of which files lie in a folder, with their sizes and times, that changes whenever one is written to."""
    found: list[tuple[str | int, ...]] = []
    folders = [""]
    while folders:
        inner = folders.pop()
        with os.scandir(f"{folder}{inner}") as entries:
            for entry in entries:
                place = f"{inner}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    folders.append(place)
                    continue
                stat = entry.stat()
                # the change time cannot be set back
                found.append((place, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
    return hashlib.blake2b(repr(sorted(found)).encode(), digest_size=12).hexdigest()


def inputs_of(task: Mapping[str, Any]) -> dict[str, list[str]]:
    """By input of a cell, the folders of the results that it is given."""
    return {label: [given] if isinstance(given, str) else given for label, given in task["inputs"].items()}


def stale_input(run: Path, task: Mapping[str, Any], record: dict[str, Any]) -> str:
    """The input that has changed since the result was computed from it, or "" if none has."""
    for label, folders in inputs_of(task).items():
        try:
            now = [result_digest(run / "results" / folder) for folder in folders]
        except DamagedResult:
            continue  # it could not be computed again: nothing newer to compare with
        if not isinstance(before := record.get("inputs"), dict) or before.get(label) != now:
            return str(label)
    return ""
