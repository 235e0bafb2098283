"""To the hub and back: everything that `headwise.load` opens."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import huggingface_hub
import xarray as xr

from headwise._base.parsing import one_line
from headwise.errors import HeadwiseError
from headwise.heads import removed_before, removed_from, save_removed
from headwise.scoring import keep_scores
from headwise.sharing._card import card
from headwise.store import LOADERS, load, manifest, save_tokenizer

# unfinished work in a saved folder, and files that run code when they are opened
NOT_UPLOADED = [
    "checkpoint/*",
    "**/checkpoint/*",
    ".*",
    "**/.*",
    "started.json",
    "*.pt",
    "*.pth",
    "*.bin",
    "*.pkl",
    "*.pickle",
]
SAFE = ["*.safetensors", "*.json", "*.txt", "*.model", "*.nc", "*.parquet", "*.csv", "*.md", "*.toml"]
SAFE += [
    "modeling_pruned.py"
]  # of models with heads removed; the checksum counts it, and nothing here runs it


def push_to_hub(
    result: Any,
    name: str,
    *,
    tokenizer: Any = None,
    private: bool = False,
    token: str | None = None,
    message: str = "Saved by headwise",
) -> str:
    """Uploads whatever `headwise.load` opens, with a model card: what was done, the head map, scores with
    intervals, how to load it.

    Args:
        result: a folder that headwise saved, or the object: a model without some heads, a multi-task model, a
            head embedding, scores, probes, a dissociation.
        name: the repository, "user/name"; it is made if it is not there.
        tokenizer: for a live model without some heads: goes along.
        private: whether a new repository is private.
        token: of the hub; default: that of `hf auth login`.
        message: of the commit.

    Returns:
        the address of the repository.

    Raises:
        HeadwiseError: headwise could not open it again, or the hub refuses or cannot be reached.
    """
    with _saved(result, tokenizer) as folder, tempfile.TemporaryDirectory() as aside, _hub_errors(name):
        card(folder, name).write(aside)
        api = huggingface_hub.HfApi(token=token)
        address = api.create_repo(name, private=private, exist_ok=True)
        readme = folder / "README.md"
        by_user = readme.is_file() and not readme.read_text(encoding="utf-8").startswith("Open this folder")
        ignored = NOT_UPLOADED if by_user else [*NOT_UPLOADED, "README.md"]
        api.upload_folder(
            repo_id=name, folder_path=str(folder), commit_message=message, ignore_patterns=ignored
        )
        if not by_user:
            api.upload_folder(repo_id=name, folder_path=aside, commit_message="Model card")
        return str(address)


def from_pretrained(
    name: str | Path,
    *,
    revision: str | None = None,
    token: str | None = None,
    cache_dir: str | Path | None = None,
    trust_remote_code: bool = False,
) -> Any:
    """Opens what `push_to_hub` uploaded, or a folder that headwise saved: `headwise.load` by the name of a
    repository.

    Args:
        name: "user/name", or a folder.
        revision: a branch, tag or commit.
        token: of the hub, for private repositories.
        cache_dir: where downloads are kept.
        trust_remote_code: run code that the model was saved with; read it first.

    Raises:
        HeadwiseError: there is no such repository, it cannot be reached, or headwise saved nothing in it.
    """
    if Path(name).expanduser().is_dir():
        return load(Path(name).expanduser(), trust_remote_code=trust_remote_code)
    with _hub_errors(str(name)):
        folder = huggingface_hub.snapshot_download(
            str(name), revision=revision, token=token, cache_dir=cache_dir, allow_patterns=SAFE
        )
    return load(folder, trust_remote_code=trust_remote_code)


@contextmanager
def _hub_errors(name: str) -> Iterator[None]:
    """Whatever the hub's library raises is one line."""
    try:
        yield
    except HeadwiseError:
        raise
    except (OSError, ValueError) as error:
        raise HeadwiseError(f"upload or download of {name!r} failed: {one_line(error)}") from error


@contextmanager
def _saved(result: Any, tokenizer: Any) -> Iterator[Path]:
    """The folder of a result, which is saved first if it is an object.

    Raises:
        HeadwiseError: `headwise.load` could not open it again.
    """
    if isinstance(result, str | Path):
        _check(Path(result))
        yield Path(result)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "saved"
        _save(result, folder)
        if tokenizer is not None:
            save_tokenizer(tokenizer, folder)
        _check(folder)
        yield folder


def _save(result: Any, folder: Path) -> None:
    if isinstance(result, xr.DataArray):
        if not {"layer", "head"} <= set(result.dims) <= {"task", "layer", "head"}:
            raise HeadwiseError(
                f"an array with dims {result.dims} is not scores of heads: give the folder that headwise "
                "saved"
            )
        keep_scores(result, folder)
    elif hasattr(result, "save"):
        result.save(folder)
    elif hasattr(result, "config") and (removed_from(result) or removed_before(result)):
        save_removed(result, folder)
    else:
        raise HeadwiseError(
            f"a {type(result).__name__} is not something that headwise saves; a plain transformers model "
            "uploads itself: model.push_to_hub(name)"
        )


def _check(folder: Path) -> None:
    record = manifest.read(folder)
    if record["kind"] not in LOADERS:
        raise HeadwiseError(f"{folder} holds a {record['kind']!r}, which headwise.load does not open")
    manifest.check(folder, record)
