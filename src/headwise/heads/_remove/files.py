"""Saving a model with heads removed, and opening it again.

A folder holds `config.json` of the model before, `model.safetensors` with what is left, and `headwise.json`, which says what was cut.
Opening it builds the architecture from its configuration, cuts again in the same way, and loads the tensors.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import transformers
from transformers import PreTrainedModel

from headwise._base.opener import open_config, read_tensors
from headwise._base.writing import make_folder, saving
from headwise.errors import HeadwiseError
from headwise.heads._remove.removal import removed_from
from headwise.heads._remove.surgery import Surgery, operate
from headwise.store import _manifest as manifest

KIND = "removed-heads"
WEIGHTS = "model.safetensors"


def save_removed(model: Any, folder: str | Path) -> None:
    """Saves a model that `Heads.remove` made; `headwise.load(folder)` opens it. Other files in the folder (a tokenizer) stay.

    Raises:
        HeadwiseError: no heads were removed from the model, or it is not one of transformers' own classes.
    """
    if not removed_from(model):
        raise HeadwiseError(
            f"no heads were removed from this {type(model).__name__}: save it with model.save_pretrained({str(folder)!r}), "
            "or remove heads first with Heads(model).remove(head_set)"
        )
    facts = cuts(model)
    target = make_folder(folder)
    with saving(target, model.parameters()):
        model.config.save_pretrained(target)
        if model.can_generate():
            model.generation_config.save_pretrained(target)
        safetensors.torch.save_model(model, str(target / WEIGHTS), metadata={"format": "pt"})
    manifest.write(target, KIND, **facts)


def cuts(model: Any) -> dict[str, Any]:
    """What `load_folder` needs to cut a model again in the same way; empty if no heads were removed from it.

    Raises:
        HeadwiseError: the model could not be built again.
    """
    removed = removed_from(model)
    if not removed and "headwise_part_of" not in vars(model):
        return {}
    name = type(model).__name__
    if not removed:
        raise HeadwiseError(
            f"heads were removed from the {model.headwise_part_of} that this {name} is a part of, so that it could not be built again "
            "without it: remove them from the part itself (Heads(model.base_model).remove(head_set)), and start from that"
        )
    if not isinstance(model, PreTrainedModel) or getattr(transformers, name, None) is not type(model):
        raise HeadwiseError(
            f"{name} is not a class of transformers, so it could not be built again: save its encoder, "
            "and merge adapters into it first (peft: model.merge_and_unload())"
        )
    cut = {name for surgery in removed for name in surgery.slices}
    shapes = {name: list(parameter.shape) for name, parameter in model.named_parameters() if name in cut}
    return {"model_class": name, "surgeries": [surgery.to_json() for surgery in removed], "shapes": shapes}


def load_folder(folder: Path, record: Mapping[str, Any]) -> PreTrainedModel:
    """Opens what `save` wrote, in evaluation mode like `from_pretrained`.

    Raises:
        HeadwiseError: the folder names a class this transformers does not have.
    """
    made = getattr(transformers, record["model_class"], None)
    if not (isinstance(made, type) and issubclass(made, PreTrainedModel)):
        raise HeadwiseError(
            f"{folder} holds a {record['model_class']!r}, which transformers {transformers.__version__} does not have"
        )
    with torch.random.fork_rng(devices=[]):  # first weights are random and replaced at once
        model: Any = made(open_config(folder))
    surgeries = [Surgery(**values) for values in record["surgeries"]]
    for surgery in surgeries:
        operate(model, surgery)
    places = model.state_dict(keep_vars=True)
    for name, tensor in read_tensors(folder / WEIGHTS).items():
        if name not in places or places[name].shape != tensor.shape:
            raise HeadwiseError(
                f"{folder / WEIGHTS} holds {name} of shape {tuple(tensor.shape)}, which does not fit the cuts that its headwise.json "
                "records: save the model again"
            )
        places[name].data = places[name].data.to(tensor.dtype)  # not model.to: tables of frequencies stay in full precision
    missing, _ = safetensors.torch.load_model(model, str(folder / WEIGHTS), strict=False)
    if missing:
        raise HeadwiseError(f"{folder / WEIGHTS} lacks {', '.join(sorted(missing)[:3])}: it is truncated; save the model again")
    if model.can_generate() and (folder / "generation_config.json").is_file():
        model.generation_config = transformers.GenerationConfig.from_pretrained(folder)
    model.headwise_removed = surgeries
    return model.eval()
