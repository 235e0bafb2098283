"""One result: the folder a step writes through `Out` and others read through `Result`, and how damage to it
is found."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from headwise._base.parsing import parse_json
from headwise._base.progress import track
from headwise._base.writing import save_tensors
from headwise.errors import HeadwiseError
from headwise.store import _manifest as manifest
from headwise.store._checksums import DamagedResult, file_damage, verify
from headwise.store._fingerprints import fingerprint

if TYPE_CHECKING:
    import pandas as pd
    import torch
    import xarray as xr

    from headwise.store._checkpoint import Checkpoint

T = TypeVar("T")
KEPT = "result"  # within the checkpoints of a cell: what an operation keeps
RESULTS = "results"  # the folder of a run in which results lie, each under its own key


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

    @property
    def folder(self) -> Path:
        """For an operation that is all the step does: `dissociate(..., out=out.folder)` is the cell's result,
            as that call keeps it.

        It outlives the process: an operation that can be resumed continues when a cell that was killed is run
            again.
        """
        return self._checkpoints / KEPT

    def table(self, name: str, frame: "pd.DataFrame") -> None:
        """Saves a data frame as parquet. A column named like one of the cell's coordinates must hold that
        coordinate."""
        import pandas as pd

        if not isinstance(frame.index, pd.RangeIndex):
            frame = frame.reset_index()
        for column in frame.columns:
            if column in self.coords and not (frame[column] == self.coords[column]).all():
                raise HeadwiseError(
                    f"table {name!r} has a column {column!r}, which is also a coordinate of its cell with "
                    f"the value {self.coords[column]!r}: rename the column"
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
        """Saves a model into the folder `name`: by its `save` (which makes it), its `save_pretrained`, or by
        calling it with it."""
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
        """A checkpoint for this cell that outlives the process: a cell that was killed finds it when it is
        run again."""
        from headwise.store._checkpoint import Checkpoint

        return Checkpoint(self._checkpoints, every_minutes)

    def progress(self, iterable: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
        """`track`: the study's view shows the bar."""
        return track(iterable, description, total)

    def _new(self, name: str, suffix: str) -> Path:
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name) or name == Path(manifest.NAME).stem:
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
    def manifest(self) -> dict[str, Any]:
        """What the folder's headwise.json says: which cell it is, where it was computed, and the checksum of
        every file."""
        return read_cell(self.folder)

    @property
    def provenance(self) -> dict[str, Any]:
        """Settings, inputs, seed, versions, commit, device, seconds, peak memory, and the checksum of every
        file."""
        record = self.manifest
        sealed = {name: record[name] for name in ("files", "finished")}
        return {**record["cell"], **record["provenance"], **sealed}

    @property
    def names(self) -> list[str]:
        """File names (models: name/file) in the result, without its manifest."""
        return sorted(self.manifest["files"])

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
        files = [file for file in self.names if file.startswith(f"{name}/")]
        for file in files or [f"{name}/"]:
            self._checked(file)
        return self.folder / name

    def _checked(self, file: str) -> Path:
        files = self.manifest["files"]
        if file not in files:
            raise HeadwiseError(
                f"{self.folder} has no {file}; it holds: {', '.join(self.names) or 'nothing'}"
            )
        if file not in self._sound:
            remedy = "; rerun the study to compute it again"
            verify(self.folder, {file: files[file]}, self.manifest["finished"], remedy)
            self._sound.add(file)
        return self.folder / file


def take_kept(aside: Path, checkpoints: Path) -> None:
    """Makes what an operation has kept for a cell, if there is such, its result.

    Args:
        aside: what the step has saved through `Out`.
        checkpoints: of the cell.

    Raises:
        HeadwiseError: the step has saved something else, too.
    """
    operation_folder = checkpoints / KEPT
    if not (operation_folder / manifest.NAME).is_file():
        return
    if saved := sorted(path.name for path in aside.iterdir()):
        raise HeadwiseError(f"a step that keeps an operation in out.folder has saved {saved[0]} beside it")
    aside.rmdir()
    os.rename(operation_folder, aside)


def load_folder(folder: Path, record: Mapping[str, Any]) -> Result:
    """`headwise.load` of what a step of a study wrote."""
    return Result(folder)


def damaged_files(folder: Path) -> list[str]:
    """What is wrong with a cell's folder, one message a file; empty if every byte is as it was written."""
    try:
        record = read_cell(folder)
    except DamagedResult as error:
        return [str(error).removeprefix(f"{folder}/")]
    return _damage(folder, record)


def _damage(folder: Path, record: Mapping[str, Any]) -> list[str]:
    """Damage to the files that a manifest lists; a folder inside that has a manifest of its own vouches for
    its files itself."""
    listed: dict[str, Any] = record["files"]
    messages = [
        file_damage(folder / name, size_and_digest, record["finished"])
        for name, size_and_digest in sorted(listed.items())
    ]
    inner = [Path(name).parent for name in listed if name.endswith(f"/{manifest.NAME}")]
    vouched = [path for path in inner if _files_below(path, listed) == 1]
    for path in vouched:
        with suppress(HeadwiseError):  # a damaged manifest is named already
            messages += [f"{path}/{text}" for text in _damage(folder / path, manifest.read(folder / path))]
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        apart = path.suffix == ".md" or (record["kind"] != manifest.CELL and name.parts[0] in manifest.APART)
        is_listed = name.as_posix() in listed or name.as_posix() == manifest.NAME
        if path.is_file() and not (
            is_listed or apart or any(name.is_relative_to(vouched_folder) for vouched_folder in vouched)
        ):
            messages.append(f"{name.as_posix()} was added later")
    return [message for message in messages if message]


def _files_below(folder: Path, names: Iterable[str]) -> int:
    return sum(name.startswith(f"{folder}/") for name in names)


def read_cell(folder: Path) -> dict[str, Any]:
    """The manifest of a cell's result.

    Raises:
        DamagedResult: it is missing or damaged, lacks what is read of it, or is that of another cell.
    """
    try:
        record = manifest.read(folder)
    except HeadwiseError as error:
        raise DamagedResult(str(error)) from None
    path, cell = folder / manifest.NAME, record.get("cell")
    if not isinstance(cell, dict) or not isinstance(cell.get("seconds"), int | float):
        raise DamagedResult(f"{path} does not say which cell of a study it is, and what it took")
    if not isinstance(record.get("provenance"), dict) or not isinstance(record.get("finished"), int | float):
        raise DamagedResult(f"{path} does not record where and when the files were written")
    step, key = cell.get("step"), str(cell.get("key"))[:20]
    if folder.parent.name == RESULTS and folder.name != f"{step}-{key}":
        raise DamagedResult(f"{path} holds the result of another cell, {step} {key}: folders were exchanged")
    return record


def result_digest(folder: Path) -> str:
    """Short hash of what a result holds, without its times: what a cell that used it remembers."""
    return digest_of(read_cell(folder))


def digest_of(record: Mapping[str, Any]) -> str:
    """The same, from the manifest."""
    return fingerprint(record["files"])[:20]


def folder_stamp(folder: str | Path) -> str:
    """Short hash of which files lie in a folder, with their sizes and times, that changes whenever one is
    written to."""
    stamps: list[tuple[str | int, ...]] = []
    folders = [""]
    while folders:
        inner = folders.pop()
        with os.scandir(f"{folder}{inner}") as entries:
            for entry in entries:
                path = f"{inner}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                    continue
                stat = entry.stat()
                # the change time cannot be set back
                stamps.append((path, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
    return hashlib.blake2b(repr(sorted(stamps)).encode(), digest_size=12).hexdigest()


def inputs_of(task: Mapping[str, Any]) -> dict[str, list[str]]:
    """By input of a cell, the folders of the results that it is given."""
    return {
        label: [folders] if isinstance(folders, str) else folders for label, folders in task["inputs"].items()
    }


def stale_input(run: Path, task: Mapping[str, Any], record: dict[str, Any]) -> str:
    """The input that has changed since the result was computed from it, or "" if none has."""
    for label, folders in inputs_of(task).items():
        try:
            now = [result_digest(run / "results" / folder) for folder in folders]
        except DamagedResult:
            continue  # it could not be computed again: nothing newer to compare with
        if not isinstance(before := record["cell"].get("inputs"), dict) or before.get(label) != now:
            return str(label)
    return ""
