"""`headwise.load`: one call that opens whatever headwise saved."""

from importlib import import_module
from pathlib import Path
from typing import Any

from headwise import manifest
from headwise.errors import HeadwiseError

# manifest kind -> "module:function"; the function takes the folder and the manifest, and returns the object.
LOADERS: dict[str, str] = {
    "multi-task": "headwise.training.saving:load_folder",
    "task-model": "headwise.training.saving:load_task_model",
    "single-task": "headwise.training.saving:load_several",
    "dissociation": "headwise.lesions.result:load_folder",
    "study": "headwise.runs.reading:load_folder",
    "removed-heads": "headwise.heads.saving:load_folder",
    "head-embedding": "headwise.probing.embedding:load_folder",
    "embedded-model": "headwise.probing.finetuning:load_folder",
    "probes": "headwise.probing.results:load_folder",
}


def load(path: str | Path) -> Any:
    """Opens a folder that headwise saved: a model with heads removed, a multi-task model, a head embedding, ...

    Args:
        path: the folder.

    Raises:
        HeadwiseError: the folder was not saved by headwise, or holds a kind this version does not know.
    """
    record = manifest.read(path)
    if record["kind"] not in LOADERS:
        raise HeadwiseError(f"{path} holds a {record['kind']!r}; this headwise can load: {', '.join(sorted(LOADERS))}")
    module, function = LOADERS[record["kind"]].split(":")
    return getattr(import_module(module), function)(Path(path), record)
