"""Saving a model with heads removed, and opening it again.

An ordinary model (see `plain`) is saved as transformers does. Of any other a folder holds `config.json` with
the configuration before and what was cut, `model.safetensors` with what is left, and a short modelling file
of its own (see `portable`), with which plain transformers opens it. headwise does not run that file: it
builds the architecture from its configuration, cuts again in the same way, and loads the tensors.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MethodType
from typing import Any

import torch
import transformers
from torch import nn
from transformers import PreTrainedModel

from headwise._base.opener import identity, open_config, open_weights
from headwise._base.parsing import read_json
from headwise._base.writing import saving, write_bytes
from headwise.errors import HeadwiseError
from headwise.heads._inputs import root_of
from headwise.heads._remove.plain import removed_before
from headwise.heads._remove.portable import (
    CLASS,
    CUTS,
    FILE,
    TYPE_BEFORE,
    auto_classes,
    config_class,
    cuts_in_config,
    describe,
    own_class,
    source,
)
from headwise.heads._remove.surgery import Surgery, operate
from headwise.store import README_NOTE, is_note, save_model

KIND = "removed-heads"
CONFIG = "config.json"


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
            type(model).save_pretrained(model, target, state_dict=state_dict, max_shard_size="1000GB")
            if cuts:
                _write_config(model, target)
                write_bytes(target / FILE, source(model, removed_from(model)).encode())
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
    root = root_of(model)
    surgeries: list[Surgery] | None = vars(root).get("headwise_removed")
    return cuts_in_config(root) if surgeries is None else surgeries


def _write_config(model: Any, target: Path) -> None:
    """`config.json` of the model before, with what the modelling file needs. Its model type is none of
    transformers', which otherwise would silently open the intact class."""
    values = {**model.config.to_diff_dict(), "transformers_version": transformers.__version__}
    values |= describe(model, removed_from(model))
    write_bytes(target / CONFIG, (json.dumps(values, indent=2) + "\n").encode())


def read_config(folder: Path) -> Any:
    """The configuration of the model before; of any other model its own."""
    values = read_json(folder / CONFIG)
    if TYPE_BEFORE not in values:
        return open_config(folder)
    values["model_type"] = values.pop(TYPE_BEFORE)
    values["architectures"] = [values.pop(CLASS)]
    for name in ("auto_map", CUTS):
        del values[name]
    config = transformers.CONFIG_MAPPING[values["model_type"]].from_dict(values)
    config._name_or_path = str(folder)
    return config


def _readme(model: Any, cut: bool) -> str:
    """README.md of a folder: how to open it, first."""
    name = type(model).__name__
    if cut:
        cls = own_class(model)
        assert cls is not None
        autos = auto_classes(cls, config_class(model)).items()
        opener = next((auto for auto, target in autos if target is cls), "AutoModel")
        return (
            f"{README_NOTE}headwise (`headwise.load(folder)`), or with transformers alone:\n\n    "
            f"{opener}.from_pretrained(folder, trust_remote_code=True)\n\nIt holds a {cls.__name__} without "
            "some of its attention heads, which its family's configuration cannot say. `trust_remote_code` "
            f"lets transformers run `{FILE}` in this folder: it builds the {cls.__name__} of the installed "
            f"transformers and cuts out of it what `config.json` lists under `{CUTS}`, and does nothing "
            "else. headwise opens the folder without running it.\n"
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
    if not isinstance(model, PreTrainedModel) or (cls := own_class(model)) is None:
        raise HeadwiseError(
            f"{name} is not a class of transformers, so it could not be built again: save its encoder, "
            "and merge adapters into it first (peft: model.merge_and_unload())"
        )
    cut = set().union(*[surgery.slices for surgery in removed])
    shapes = {name: list(parameter.shape) for name, parameter in model.named_parameters() if name in cut}
    return {
        "model_class": cls.__name__,
        "surgeries": [surgery.to_json() for surgery in removed],
        "shapes": shapes,
    }


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
        cut_class = _cut_when_built(model_class, surgeries)
        model: Any = open_weights(cut_class, folder, read_config(folder), dtype="auto")
    model.__class__ = model_class
    mark(model, surgeries)
    return model.eval()


def _cut_when_built(cls: type[PreTrainedModel], surgeries: list[Surgery]) -> type[PreTrainedModel]:
    """A class whose models have lost the heads before their weights are read; it is called as `cls`, by which
    transformers renames weights."""

    def build(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        cls.__init__(self, config, *args, **kwargs)
        for surgery in surgeries:
            operate(self, surgery)

    return type(cls.__name__, (cls,), {"__init__": build, "__module__": cls.__module__})
