"""Opening trained models: what `MultiTaskModel.save` wrote, with the masks and adapters its method gave
it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwise._base.names import check_name
from headwise._base.opener import fill
from headwise.errors import HeadwiseError
from headwise.models import (
    ADAPTERS,
    MultiTaskModel,
    TaskModel,
    check_weights,
    load_multi_task_model as load_plain,
    load_plain_model as load_headed,
)
from headwise.training.methods import METHODS


def load_folder(folder: Path, record: Mapping[str, Any]) -> MultiTaskModel:
    """Opens a saved multi-task model, on the CPU and in eval mode; `headwise.load` calls this."""
    model = load_plain(folder, record)
    _restore(model, folder)
    if len(model.adapters):
        fill(model.adapters, folder / ADAPTERS)
    check_weights(model)
    return model.eval()


def load_task_model(folder: Path, record: Mapping[str, Any]) -> TaskModel:
    """Opens a saved transformers model with its own head."""
    model = load_headed(folder, record)
    _restore(model, folder)
    check_weights(model)
    return model


def _restore(model: MultiTaskModel | TaskModel, folder: Path) -> None:
    """Gives a model what the method that trained it had put on it: masks, gates, adapters."""
    for method, record in list(model.notes.items()):
        if method not in METHODS:
            raise HeadwiseError(
                f"{folder} was trained by the method {method!r}, which is not known here: import what "
                "registers it first"
            )
        METHODS[method].restore(model, record, folder)


def load_several(folder: Path, record: Mapping[str, Any]) -> dict[str, MultiTaskModel]:
    """Opens the models of a single-task training, by task."""
    from headwise.store import load

    return {name: load(folder / check_name(name)) for name in record["tasks"]}
