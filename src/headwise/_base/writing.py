"""Writing files: all with one mode, and an error that names the folder and the space needed when the disk is full."""

import errno
import io
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError

ASIDE = ".aside-"  # prefix of unfinished folders and files, next to where they will appear
FULL = {
    errno.ENOSPC: "no space left",
    errno.EDQUOT: "the disk quota is exhausted",
    errno.EFBIG: "the file size limit is reached",
}


class NoSpace(HeadwiseError, OSError):
    """A disk, or a quota of it, is full.

    Args:
        folder: where something was to be written.
        needed: bytes it takes; 0: not known.
        what: which limit was met.
        least: whether it takes more than `needed`, nobody knows how much.
    """

    def __init__(self, folder: Path, needed: int, what: str, least: bool = False) -> None:
        self.folder, self.needed, self.what, self.least = folder, needed, what, least
        disk = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.is_dir())
        takes = f"{'at least ' * least}{readable(needed)} are needed there, and " if needed else ""
        super().__init__(
            f"{what} in {folder}: {takes}{readable(shutil.disk_usage(disk).free)} are free; "
            "free some space or choose another folder, then rerun"
        )


def mode() -> int:
    """The mode of a file that anybody's `open` makes here: 0o666 less the umask."""
    try:
        status = Path("/proc/self/status").read_text()
        return 0o666 & ~int(status.split("Umask:")[1].split()[0], 8)
    except (OSError, IndexError, ValueError):  # not Linux: there it can be read only by setting it
        umask = os.umask(0o022)
        os.umask(umask)
        return 0o666 & ~umask


def settle(folder: Path, pattern: str = "*", since: float = 0.0) -> None:
    """Gives the files of `folder` that match, and were written after the time `since`, the usual mode.

    safetensors writes for the owner's eyes alone, whatever the umask says.
    """
    usual = mode()
    for file in folder.rglob(pattern):
        stat = file.lstat()
        if (
            file.is_file()
            and not file.is_symlink()
            and stat.st_mtime >= since
            and stat.st_mode & 0o777 != usual
        ):
            file.chmod(usual)


@contextmanager
def room_in(folder: str | Path, needed: int | Callable[[], int] = 0, least: bool = False) -> Iterator[None]:
    """Around whatever writes into `folder`: a full disk becomes a `NoSpace`.

    Args:
        folder: where the files go; it need not exist yet.
        needed: bytes that are written in the block, or a function that says so, which is asked only if they do not fit.
        least: whether these are only the bytes known so far.
    """
    try:
        yield
    except Exception as error:
        found = no_space(error, Path(folder), needed, least)
        if found is None:
            raise
        raise found from error


@contextmanager
def saving(folder: str | Path, weights: Iterable[Any] = ()) -> Iterator[None]:
    """Around the saving of a model with these weights into `folder`: `room_in` it, and its files get the usual mode."""
    began = time.time() - 2  # clocks of file systems are coarse
    with room_in(folder, lambda: tensor_bytes(weights)):
        yield
    settle(Path(folder), "*.safetensors", began)


def no_space(
    error: BaseException, folder: Path, needed: int | Callable[[], int] = 0, least: bool = False
) -> NoSpace | None:
    """The error as `NoSpace`, if that is what it comes from; of two nested folders, the outer one is named."""
    if isinstance(error, NoSpace):
        known = needed() if callable(needed) else needed
        return NoSpace(
            folder, max(known, error.needed), error.what, least if known >= error.needed else error.least
        )
    number = error.errno if isinstance(error, OSError) else None
    if number not in FULL:  # Rust's libraries say it in words alone
        number = next((known for known in FULL if f"(os error {known})" in str(error)), None)
    if number is None:
        return None
    return NoSpace(folder, needed() if callable(needed) else needed, FULL[number], least)


def make_folder(folder: str | Path) -> Path:
    """Makes a folder and those above it, where they are missing.

    Raises:
        NoSpace: a full disk has no room for its name.
    """
    with room_in(folder):
        Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder)


@contextmanager
def whole_file(path: str | Path, needed: int = 0) -> Iterator[Path]:
    """Gives a name beside `path` to write to, with its suffix; when the block ends well, that file becomes `path` in one rename.

    If the block raises, nothing of it is left, and what was at `path` stays. A device or a pipe is written to as it is.

    Args:
        path: where the file will be.
        needed: bytes it takes; 0: estimated from those written before the disk was full.

    Raises:
        HeadwiseError: `path` is a folder.
        NoSpace: the file does not fit.
    """
    path = Path(path)
    if path.is_dir():
        raise HeadwiseError(f"{path} is a folder: give the name of a file")
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    special = target.exists() and not target.is_file()
    aside = (
        target if special else target.with_name(f"{ASIDE}{os.getpid()}-{secrets.token_hex(4)}-{target.name}")
    )
    written = 0
    with room_in(path.parent, lambda: needed or written, least=not needed):
        try:
            yield aside
            if not special:
                os.replace(aside, target)
        finally:
            if not special and aside.is_file():
                written = aside.stat().st_size
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
    with whole_file(path, len(content)) as aside, open(aside, "wb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def readable(size: float) -> str:
    """Bytes as people read them: "820 kB", "3.2 GB"."""
    units = ["bytes", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        del units[0]
    return f"{size:.1f} {units[0]}" if units[0] != "bytes" and size < 100 else f"{size:.0f} {units[0]}"


def size_of(folder: Path) -> int:
    """Bytes in all files of a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def tensor_bytes(tensors: Iterable[Any]) -> int:
    """Bytes of tensors or arrays."""
    return sum(int(tensor.nbytes) for tensor in tensors)


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
    with room_in(path.parent, tensor_bytes(tensors.values())):
        save_file(dict(tensors), path, metadata)
        path.chmod(mode())
