"""Writing files: all with one mode, and an error that names the folder when the disk is full."""

import errno
import io
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from stat import S_IMODE, S_ISREG
from typing import Any

from headwise.errors import HeadwiseError

ASIDE = ".aside-"  # prefix of unfinished folders and files, next to where they will appear
PRIVATE = 0o600
FULL = {
    errno.ENOSPC: "no space left",
    errno.EDQUOT: "the disk quota is exhausted",
    errno.EFBIG: "the file size limit is reached",
}


class NoSpace(HeadwiseError, OSError):
    """A disk, or a quota of it, is full.

    Args:
        folder: where something was to be written.
        reason: which limit was met.
    """

    def __init__(self, folder: Path, reason: str) -> None:
        self.folder, self.reason = folder, reason
        disk = folder.absolute()
        while not disk.is_dir():
            disk = disk.parent
        super().__init__(
            f"{reason} in {folder}: {readable(shutil.disk_usage(disk).free)} are free; "
            "free some space or choose another folder, then rerun"
        )


def settle(folder: Path, pattern: str = "*", since: float = 0.0) -> None:
    """Gives the files of `folder` that match, and were written after the time `since`, the mode that the
    umask says.

    safetensors writes for the owner's eyes alone, whatever the umask says.
    """
    private = []
    for file in folder.rglob(pattern):
        stat = file.lstat()
        if S_ISREG(stat.st_mode) and S_IMODE(stat.st_mode) == PRIVATE and stat.st_mtime >= since:
            private.append(file)
    if private:
        mode = _usual_mode(folder)
        for file in private:
            file.chmod(mode)


def _usual_mode(folder: Path) -> int:
    """The mode of a file that anybody's `open` makes in a folder."""
    file = folder / f"{ASIDE}{secrets.token_hex(4)}"
    file.touch()
    try:
        return S_IMODE(file.stat().st_mode)
    finally:
        file.unlink()


@contextmanager
def room_in(folder: str | Path) -> Iterator[None]:
    """Around whatever writes into `folder`, which need not exist yet: a full disk becomes a `NoSpace`."""
    try:
        yield
    except Exception as error:
        disk_error = no_space(error, Path(folder))
        if disk_error is None:
            raise
        raise disk_error from error


@contextmanager
def saving(folder: str | Path) -> Iterator[None]:
    """Around the saving of a model into `folder`: `room_in` it, and its files get the usual mode."""
    began = time.time() - 2  # clocks of file systems are coarse
    with room_in(folder):
        yield
    settle(Path(folder), "*.safetensors", began)


def no_space(error: BaseException, folder: Path) -> NoSpace | None:
    """The error as `NoSpace`, if that is what it comes from; of two nested folders, the outer one is
    named."""
    if isinstance(error, NoSpace):
        return NoSpace(folder, error.reason)
    for number, reason in FULL.items():
        # Rust's libraries say it in words alone
        if (isinstance(error, OSError) and error.errno == number) or f"(os error {number})" in str(error):
            return NoSpace(folder, reason)
    return None


def make_folder(folder: str | Path) -> Path:
    """Makes a folder and those above it, where they are missing.

    Raises:
        NoSpace: a full disk has no room for its name.
    """
    with room_in(folder):
        Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder)


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Gives a name beside `path` to write to, with its suffix; when the block ends well, that file becomes
    `path` in one rename.

    If the block raises, nothing of it is left, and what was at `path` stays. A device or a pipe is written to
    as it is.

    Args:
        path: where the file will be.

    Raises:
        HeadwiseError: `path` is a folder.
        NoSpace: the file does not fit.
    """
    path = Path(path)
    if path.is_dir():
        raise HeadwiseError(f"{path} is a folder: give the name of a file")
    target = path.resolve() if path.is_symlink() else path
    if target.exists() and not target.is_file():
        aside = target
    else:
        aside = target.with_name(f"{ASIDE}{os.getpid()}-{secrets.token_hex(4)}-{target.name}")
    with room_in(path.parent):
        try:
            yield aside
            if aside != target:
                os.replace(aside, target)
        finally:
            if aside != target and aside.is_file():
                aside.unlink()


@contextmanager
def new_text(path: str | Path) -> Iterator[io.StringIO]:
    """Gives a text to write to, which becomes the file `path` when the block ends well.

    Raises:
        NoSpace: it does not fit.
    """
    text = io.StringIO()
    yield text
    write_bytes(path, text.getvalue().encode())


def write_bytes(path: str | Path, content: bytes, durable: bool = False) -> None:
    """Replaces the file `path` by `content` in one rename; `durable` waits until it is on the disk.

    Raises:
        NoSpace: it does not fit.
    """
    with whole_file(path) as aside, open(aside, "wb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def readable(size: float) -> str:
    """Bytes as people read them: "820 kB", "3.2 GB"."""
    unit = "bytes"
    for larger_unit in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger_unit
    digits = int(size < 100 and unit != "bytes")
    return f"{size:.{digits}f} {unit}"


def save_tensors(
    tensors: Mapping[str, Any], path: str | Path, metadata: dict[str, str] | None = None
) -> None:
    """Writes tensors (or numpy arrays) by name as safetensors.

    Raises:
        NoSpace: they do not fit.
    """
    first = next(iter(tensors.values()), None)
    if "torch" in sys.modules and (first is None or isinstance(first, sys.modules["torch"].Tensor)):
        from safetensors.torch import save_file
    else:
        from safetensors.numpy import save_file

    path = Path(path)
    with room_in(path.parent):
        path.touch()
        mode = S_IMODE(
            path.stat().st_mode
        )  # as the umask says; safetensors writes for the owner's eyes alone
        save_file(dict(tensors), path, metadata)
        path.chmod(mode)
