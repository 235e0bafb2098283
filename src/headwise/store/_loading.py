"""`headwise.load`: one call that opens whatever headwise saved."""

from importlib import import_module
from pathlib import Path
from typing import Any

from headwise._base.names import shown
from headwise._base.opener import trusting
from headwise._base.parsing import reading
from headwise.errors import HeadwiseError
from headwise.store import _manifest as manifest

# manifest kind -> "module:function"; the function takes the folder and the manifest, and returns the object.
LOADERS: dict[str, str] = {
    "multi-task": "headwise.training._files:load_folder",
    "task-model": "headwise.training._files:load_task_model",
    "single-task": "headwise.training._files:load_several",
    "roles": "headwise.behaviour._head_roles:load_folder",
    "steering": "headwise.steering._result:load_folder",
    "harness-evaluation": "headwise.harness._result:load_folder",
    "scores": "headwise.scoring._files:load_folder",
    "evaluation": "headwise.evaluation._result:load_folder",
    "dissociation": "headwise.lesions._result:load_folder",
    "induction": "headwise.studies._induction:load_folder",
    "cell": "headwise.store._results:load_folder",
    "study": "headwise.engine._run:load_folder",
    "removed-heads": "headwise.heads._remove.files:load_removed",
    "head-embedding": "headwise.probing._embedding:load_folder",
    "embedded-model": "headwise.probing._finetuning:load_folder",
    "probes": "headwise.probing._results:load_folder",
}
# the same for single files, by their ending
FILES = {".nc": "headwise.scoring._files:load_scores", ".json": "headwise.scoring._files:load_scores"}


def load(path: str | Path, *, trust_remote_code: bool = False) -> Any:
    """Opens a folder that headwise saved: a model with heads removed, a multi-task model, a head embedding,
        ...

    Args:
        path: the folder; or a file of scores, netCDF or JSON.
        trust_remote_code: run code that the model was saved with; read it first.

    Raises:
        HeadwiseError: the folder was not saved by headwise, is damaged (a file is not as it was written), or
            holds a kind that this version does not know.
    """
    if Path(path).suffix in FILES and Path(path).is_file():
        return _function(FILES[Path(path).suffix])(path)
    record = manifest.read(path)
    kind = record["kind"]
    if kind not in LOADERS:
        raise HeadwiseError(
            f"{path} holds a {shown(kind)}; this headwise can load: {', '.join(sorted(LOADERS))}"
        )
    loader = _function(LOADERS[kind])
    manifest.check(Path(path), record)
    with reading(path, f"a saved {kind!r}, so it is damaged"), trusting(trust_remote_code):
        return loader(Path(path), record)


def _function(address: str) -> Any:
    module, function = address.split(":")
    return getattr(import_module(module), function)
