"""Opening trained models: what `MultiTaskModel.save` wrote, with the masks and adapters its method gave it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwise._base.names import check_name
from headwise._base.opener import fill
from headwise.heads import Heads
from headwise.models import MultiTaskModel, TaskModel
from headwise.models._model import ADAPTERS, load_folder as load_plain
from headwise.models._plain import load_folder as load_headed
from headwise.training._masks import from_json, set_masks


def load_folder(folder: Path, record: Mapping[str, Any]) -> MultiTaskModel:
    """Opens a saved multi-task model, on the CPU and in eval mode; `headwise.load` calls this."""
    model = load_plain(folder, record)
    if "lora" in model.notes:
        from headwise.training.methods.lora import add_lora, load_updates

        add_lora(model, model.notes["lora"])
        load_updates(model, folder / "encoder")
    if "houlsby" in model.notes:
        from headwise.training.methods.houlsby import add_bottlenecks

        add_bottlenecks(model, model.notes["houlsby"], Heads(model.encoder))
    if "pals" in model.notes:
        from headwise.training.methods.pals import add_pals

        add_pals(model, model.notes["pals"], Heads(model.encoder))
    if "ca-mtl" in model.notes:
        from headwise.training.methods.camtl import add_conditions

        add_conditions(model, model.notes["ca-mtl"], Heads(model.encoder))
    if len(model.adapters):
        fill(model.adapters, folder / ADAPTERS)
    _enter(model)
    return model.eval()


def load_task_model(folder: Path, record: Mapping[str, Any]) -> TaskModel:
    """Opens a saved transformers model with its own head."""
    model = load_headed(folder, record)
    _enter(model)
    return model


def _enter(model: MultiTaskModel | TaskModel) -> None:
    """Gives tasks the masks and gates they were trained with."""
    if "silenced" in model.notes:
        set_masks(model, from_json(model.notes["silenced"]), Heads(model.encoder))
    if "gates" in model.notes:
        import torch

        from headwise.training.methods.gated import set_gates

        set_gates(model, {task: torch.tensor(rows) for task, rows in model.notes["gates"].items()}, Heads(model.encoder))


def load_several(folder: Path, record: Mapping[str, Any]) -> dict[str, MultiTaskModel]:
    """Opens the models of a single-task training, by task."""
    from headwise.store._loading import load

    return {name: load(folder / check_name(name)) for name in record["tasks"]}
