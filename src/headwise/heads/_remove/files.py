"""Saving a model with heads removed, and opening it again.

An ordinary model (see `plain`) is saved as transformers does. Of any other a folder holds `config.json` of
the model before, `model.safetensors` with what is left, and `headwise.json`, which says what was cut; opening
it builds the architecture from its configuration, cuts again in the same way, and loads the tensors. Plain
transformers cannot, and its error names headwise.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MethodType
from typing import Any

import safetensors.torch
import torch
import transformers
from torch import nn
from transformers import PreTrainedModel

from headwise._base.opener import identity, open_config, open_weights, read_tensors
from headwise._base.parsing import read_json
from headwise._base.writing import save_tensors, saving, write_bytes
from headwise.errors import HeadwiseError
from headwise.heads._inputs import root_of
from headwise.heads._remove.plain import removed_before
from headwise.heads._remove.surgery import Surgery, operate
from headwise.store import README_NOTE, is_note, save_model

KIND = "removed-heads"
WEIGHTS = "model.safetensors"
CONFIG = "config.json"
# As model type in config.json: what transformers says it does not know
FOREIGN = "headwise (open the folder with headwise.load)"
# Keys of config.json: of a hint, the first one, and of the model type there was
HINT, ORIGINAL_TYPE = "_headwise", "headwise_model_type"


def save_removed(
    model: Any, folder: str | Path, state_dict: Mapping[str, Any] | None = None, *, overwrite: bool = False
) -> None:
    """Saves a model that `Heads.remove` made; `headwise.load(folder)` opens it. Other files in the folder (a
    tokenizer) stay.

    `state_dict`: tensors to save instead of the model's own, as of transformers' `save_pretrained`. Where the
    family's configuration can say what is left, plain transformers opens the folder as well; README.md in it
    says how. `overwrite`: put it in the place of another model that is there.

    Raises:
        HeadwiseError: no heads were removed from the model, it is not one of transformers' own classes, or
            another model is there.
    """
    if not removed_from(model) and not removed_before(model):
        raise HeadwiseError(
            f"no heads were removed from this {type(model).__name__}: save it with "
            f"model.save_pretrained({str(folder)!r}), or remove heads first with "
            "Heads(model).remove(head_set)"
        )
    cuts = cuts_of_model(model)

    def write(target: Path) -> dict[str, Any]:
        with saving(target):
            if cuts:
                _write_config(model.config, target)
                if model.can_generate():
                    model.generation_config.save_pretrained(target)
                _write_tensors(model, target / WEIGHTS, state_dict)
            else:
                type(model).save_pretrained(model, target, state_dict=state_dict)
        readme = Path(folder) / "README.md"
        if not readme.exists() or is_note(readme):
            write_bytes(target / "README.md", _readme(model, bool(cuts)).encode())
        base, revision = identity(model.config)
        record = {"kind": KIND, "base": base, "revision": revision}
        return record | (cuts or {"model_class": type(model).__name__, "surgeries": [], "shapes": {}})

    save_model(folder, write, overwrite)


def save_pretrained(self: Any, save_directory: str | Path, **options: Any) -> None:
    """What `model.save_pretrained` is for a model that only headwise can open: `save_removed`; the tensors
    are one file.

    Like transformers' own it takes the place of a model that is there, which a Trainer relies on.

    Raises:
        HeadwiseError: it was asked to send the model to the hub.
    """
    if options.get("push_to_hub"):
        raise HeadwiseError(
            "heads were removed from this model: send it to the hub with headwise.push_to_hub(model, name)"
        )
    if options.get("is_main_process", True):
        save_removed(self, save_directory, options.get("state_dict"), overwrite=True)


def mark(model: Any, surgeries: list[Surgery]) -> None:
    """Notes in a model what was cut out of it, and lets it save itself so that `headwise.load` opens it."""
    model.headwise_removed = surgeries
    # A bound method, so that copies of the model save themselves
    model.save_pretrained = MethodType(save_pretrained, model)


def removed_from(model: nn.Module) -> list[Surgery]:
    """What was cut out of a model so far, oldest first."""
    surgeries: list[Surgery] = vars(root_of(model)).get("headwise_removed", [])
    return surgeries


def _write_tensors(model: Any, path: Path, state_dict: Mapping[str, Any] | None) -> None:
    if state_dict is None:
        safetensors.torch.save_model(model, str(path), metadata={"format": "pt"})
        return
    tensors, seen = {}, set()
    for name, tensor in state_dict.items():
        memory = (tensor.data_ptr(), tensor.shape, tensor.stride())
        if not tensor.numel() or memory not in seen:  # of tied tensors the first
            seen.add(memory)
            tensors[name] = tensor.contiguous().cpu()
    save_tensors(tensors, path, {"format": "pt"})


def _write_config(config: Any, target: Path) -> None:
    """`config.json` of the model before; transformers refuses it with an error that names headwise."""
    values = {**config.to_diff_dict(), "transformers_version": transformers.__version__}
    hint = f"Heads were removed from this {config.model_type}: open the folder with headwise.load(folder)"
    values = {HINT: hint, **values, "model_type": FOREIGN, ORIGINAL_TYPE: config.model_type}
    write_bytes(target / CONFIG, (json.dumps(values, indent=2) + "\n").encode())


def read_config(folder: Path) -> Any:
    """The configuration of the model before; of any other model its own."""
    values = read_json(folder / CONFIG)
    if ORIGINAL_TYPE not in values:
        return open_config(folder)
    values["model_type"] = values.pop(ORIGINAL_TYPE)
    del values[HINT]
    config = transformers.CONFIG_MAPPING[values["model_type"]].from_dict(values)
    config._name_or_path = str(folder)
    return config


def _readme(model: Any, cut: bool) -> str:
    """README.md of a folder: how to open it, first."""
    name = type(model).__name__
    if cut:
        return (
            f"{README_NOTE}headwise: `headwise.load(folder)`.\n\nIt holds a {name} without some of its "
            "attention heads. Its layers have different numbers of heads, or its family's configuration "
            "cannot say how many are left, so plain transformers cannot open it.\n"
        )
    return (
        f"{README_NOTE}transformers: `{name}.from_pretrained(folder)`.\n\nIt is an ordinary {name} from "
        "which headwise removed attention heads; headwise is not needed. `config.json` lists them under "
        "`headwise_removed`.\n"
    )


def cuts_of_model(model: Any) -> dict[str, Any]:
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
            f"heads were removed from the {model.headwise_part_of} that this {name} is a part of, so that it "
            "could not be built again without it: remove them from the part itself "
            "(Heads(model.base_model).remove(head_set)), and start from that"
        )
    if not isinstance(model, PreTrainedModel) or getattr(transformers, name, None) is not type(model):
        raise HeadwiseError(
            f"{name} is not a class of transformers, so it could not be built again: save its encoder, "
            "and merge adapters into it first (peft: model.merge_and_unload())"
        )
    cut = set().union(*[surgery.slices for surgery in removed])
    shapes = {name: list(parameter.shape) for name, parameter in model.named_parameters() if name in cut}
    return {"model_class": name, "surgeries": [surgery.to_json() for surgery in removed], "shapes": shapes}


def load_removed(folder: Path, record: Mapping[str, Any]) -> PreTrainedModel:
    """Opens what `save` wrote, in evaluation mode like `from_pretrained`.

    Raises:
        HeadwiseError: the folder names a class this transformers does not have.
    """
    model_class = getattr(transformers, record["model_class"], None)
    if not (isinstance(model_class, type) and issubclass(model_class, PreTrainedModel)):
        raise HeadwiseError(
            f"{folder} holds a {record['model_class']!r}, which transformers {transformers.__version__} does "
            "not have"
        )
    surgeries = [Surgery(**values) for values in record["surgeries"]]
    if not surgeries:
        return open_weights(record["model_class"], folder, dtype="auto")
    with torch.random.fork_rng(devices=[]):  # first weights are random and replaced at once
        model: Any = model_class(read_config(folder))
    for surgery in surgeries:
        operate(model, surgery)
    state = model.state_dict(keep_vars=True)
    for name, tensor in read_tensors(folder / WEIGHTS).items():
        if name not in state or state[name].shape != tensor.shape:
            raise HeadwiseError(
                f"{folder / WEIGHTS} holds {name} of shape {tuple(tensor.shape)}, which does not fit the "
                "cuts that its headwise.json records: save the model again"
            )
        # Not model.to: tables of frequencies stay in full precision
        state[name].data = state[name].data.to(tensor.dtype)
    missing, _ = safetensors.torch.load_model(model, str(folder / WEIGHTS), strict=False)
    if missing:
        raise HeadwiseError(
            f"{folder / WEIGHTS} lacks {', '.join(sorted(missing)[:3])}: it is truncated; save the model "
            "again"
        )
    if model.can_generate() and (folder / "generation_config.json").is_file():
        model.generation_config = transformers.GenerationConfig.from_pretrained(folder)
    mark(model, surgeries)
    return model.eval()
