"""LoRA per task (Hu et al. 2022), through peft: the encoder is shared and frozen, each task has low-rank
updates of its own."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from headwise._base.opener import read_tensors
from headwise._base.writing import save_tensors, saving
from headwise.errors import HeadwiseError, MissingExtra
from headwise.settings import option
from headwise.training._settings import Train
from headwise.training.methods.base import LEARNING_RATE, Method, multi_task

if TYPE_CHECKING:
    from headwise.training._loop import TrainingRun

FILE = "lora.safetensors"


class LoRA(Method):
    """Low-rank updates of some projections, one set per task; decoders train as always."""

    name: ClassVar[str] = "lora"

    class Options(Method.Options):
        learning_rate: float = LEARNING_RATE
        rank: int = option(8, "Rank of the updates.", ge=1)
        lora_alpha: int = option(16, "Their scale, times the rank.", ge=1)
        lora_dropout: float = option(0.0, "Dropout before them.", ge=0, lt=1)
        targets: str | None = option(
            None,
            "Names of the modules that get them, separated by commas; default: peft's own choice for the "
            "model's family.",
        )

    options: Options

    def settings(self, settings: Train) -> Train:
        return settings.with_changes(learning_rate=self.options.learning_rate)

    def prepare(self, run: "TrainingRun") -> None:
        options = {
            "r": self.options.rank,
            "lora_alpha": self.options.lora_alpha,
            "lora_dropout": self.options.lora_dropout,
        }
        targets = self.options.targets.split(",") if self.options.targets else None
        model = multi_task(run.model, self.name)
        model.notes["lora"] = {"tasks": run.names, "options": {**options, "target_modules": targets}}
        add_lora(model, model.notes["lora"])

    @classmethod
    def restore(cls, model: Any, record: Any, folder: Path) -> None:
        add_lora(model, record)
        load_updates(model, folder / "encoder")


def add_lora(model: Any, record: Mapping[str, Any]) -> None:
    """Puts one LoRA adapter per task into the encoder; a task's forward passes use its own.

    Args:
        model: a MultiTaskModel.
        record: "tasks", and "options" of peft's LoraConfig.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
        from peft.tuners.tuners_utils import BaseTunerLayer
    except ImportError as error:
        raise MissingExtra("peft", "peft") from error

    model.encoder.requires_grad_(False)
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Already found a `peft_config`"
        )  # several adapters are what we want
        for task in record["tasks"]:
            inject_adapter_in_model(LoraConfig(**record["options"]), model.encoder, adapter_name=task)
    layers = [module for module in model.encoder.modules() if isinstance(module, BaseTunerLayer)]
    updates = [param for name, param in model.encoder.named_parameters() if "lora_" in name]

    for task in record["tasks"]:
        model.contexts[task] = partial(_using, layers, updates, task)
    with _using(layers, updates, record["tasks"][0]):
        model.save_encoder = partial(_save, model.encoder)
    model.carry = partial(_carry, record["tasks"])


@contextmanager
def _using(layers: Sequence[Any], updates: Sequence[Any], task: str) -> Iterator[None]:
    """Inside, the adapters of one task are in use (in a `partial`, whose arguments copies and twins of the
    model have of their own)."""
    for layer in layers:
        layer.set_adapter(task)
    for param in updates:
        param.requires_grad_(
            True
        )  # peft freezes adapters that are not in use; ours are simply not in the graph
    yield


def _carry(tasks: Sequence[str], encoder: Any) -> None:
    """Adds the mean of the tasks' updates to the weights of `encoder`, a copy of the model's, which then has
    no adapters."""
    import torch
    from peft.tuners.lora import LoraLayer

    for path, layer in [
        (path, module) for path, module in encoder.named_modules() if isinstance(module, LoraLayer)
    ]:
        base: Any = layer.get_base_layer()
        with torch.no_grad():
            base.weight += torch.stack([layer.get_delta_weight(task) for task in tasks]).mean(0)
        parent, _, name = path.rpartition(".")
        setattr(encoder.get_submodule(parent), name, base)


def load_updates(model: Any, folder: Path) -> None:
    """Reads the updates that were saved beside the encoder in `folder`."""
    held = read_tensors(folder / FILE)
    missing = [name for name in model.encoder.state_dict() if "lora_" in name and name not in held]
    if missing:
        raise HeadwiseError(
            f"{folder / FILE} lacks {missing[0]}: it does not belong to this model, or is truncated"
        )
    model.encoder.load_state_dict({**model.encoder.state_dict(), **held})


def _save(encoder: Any, folder: Path) -> None:
    """Writes the encoder as if it had no adapters, and the updates beside it."""
    weights = encoder.state_dict()
    base = {
        name.replace(".base_layer.", "."): value for name, value in weights.items() if "lora_" not in name
    }
    with saving(folder):
        encoder.save_pretrained(folder, state_dict=base)
    save_tensors(
        {name: value.contiguous().cpu() for name, value in weights.items() if "lora_" in name}, folder / FILE
    )
