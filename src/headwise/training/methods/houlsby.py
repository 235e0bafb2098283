"""Adapters per task (Houlsby et al. 2019): the encoder is shared and frozen, each task has small bottlenecks
of its own in it."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.heads import Heads
from headwise.settings import option
from headwise.training._settings import Train
from headwise.training.methods.base import LEARNING_RATE, Method, OneTaskAtATime, multi_task

if TYPE_CHECKING:
    from headwise.training._loop import TrainingRun


class Houlsby(Method):
    """A bottleneck after each attention block and each feed-forward block, before the residual is added; one
    set per task."""

    name: ClassVar[str] = "houlsby"
    steps_alike: ClassVar[bool] = True

    class Options(Method.Options):
        learning_rate: float = LEARNING_RATE
        size: int = option(64, "Width of a bottleneck.", ge=1)

    options: Options

    def settings(self, settings: Train) -> Train:
        return settings.with_changes(learning_rate=self.options.learning_rate)

    def prepare(self, run: "TrainingRun") -> None:
        model = multi_task(run.model, self.name)
        model.notes["houlsby"] = {"tasks": run.names, "size": self.options.size}
        add_bottlenecks(model, model.notes["houlsby"], run.heads)

    @classmethod
    def restore(cls, model: Any, record: Any, folder: Path) -> None:
        add_bottlenecks(model, record, Heads(model.encoder))

    def around_step(self, run: "TrainingRun", task: str) -> AbstractContextManager[Any]:
        return run.model.contexts[task]()  # recomputed activations need the task's own bottlenecks too


class Bottleneck(nn.Module):
    """x + up(gelu(down(x))), near the identity at first (Houlsby et al. 2019 §2.1)."""

    def __init__(self, dim: int, size: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(dim, size), nn.Linear(size, dim)
        for layer in (self.down, self.up):
            nn.init.normal_(layer.weight, std=1e-3)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.up(nn.functional.gelu(self.down(x)))

    def after(self, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        """A forward hook: the bottleneck follows `module` (bound methods are copied with the model they
        belong to)."""
        out: Tensor = self(output)
        return out


def add_bottlenecks(model: Any, record: Mapping[str, Any], heads: Heads) -> None:
    """Puts one set of bottlenecks per task on the encoder; a task's forward passes go through its own.

    Args:
        model: a MultiTaskModel.
        record: "tasks" and "size".
        heads: of its encoder.
    """
    model.encoder.requires_grad_(False)
    paths = bottleneck_paths(heads)
    for task in record["tasks"]:
        model.adapters[task] = nn.ModuleList(Bottleneck(model.dim, record["size"]) for _ in paths).to(
            model.device
        )
    within = _Within(model.adapters)
    for number, path in enumerate(paths):
        model.encoder.get_submodule(path).register_forward_hook(partial(within.hook, number))
    for task in record["tasks"]:
        model.contexts[task] = partial(within.using, task)
    model.carry = partial(_carry, model, paths)


class _Within(OneTaskAtATime):
    """The hooks: what a place puts out goes through the bottleneck of the task in use."""

    def __init__(self, adapters: nn.ModuleDict) -> None:
        self.adapters: Any = adapters

    def hook(self, number: int, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        if self.task is None:
            return output
        changed: Tensor = self.adapters[self.task][number](output)
        return changed


def _carry(model: Any, paths: Sequence[str], encoder: Any) -> None:
    """Puts one bottleneck at every place of `encoder`, a copy of the model's: it adds the mean of what the
    tasks' own add.

    That mean is itself a bottleneck, as wide as all of them together, and can be trained as one.
    """
    adapters_by_task = [model.adapters[task] for task in model.notes["houlsby"]["tasks"]]
    encoder.carried = nn.ModuleList(map(_mean, zip(*adapters_by_task, strict=True)))
    for path, bottleneck in zip(paths, encoder.carried, strict=True):
        encoder.get_submodule(path).register_forward_hook(bottleneck.after)


def _mean(bottlenecks: Sequence[Bottleneck]) -> Bottleneck:
    """The bottleneck that adds the mean of what some bottlenecks add."""
    downs, ups = (
        [bottleneck.down for bottleneck in bottlenecks],
        [bottleneck.up for bottleneck in bottlenecks],
    )
    wide = Bottleneck(downs[0].in_features, sum(down.out_features for down in downs)).to(downs[0].weight)
    with torch.no_grad():
        wide.down.weight.copy_(torch.cat([down.weight for down in downs]))
        wide.down.bias.copy_(torch.cat([down.bias for down in downs]))
        wide.up.weight.copy_(torch.cat([up.weight for up in ups], dim=1) / len(ups))
        wide.up.bias.copy_(torch.stack([up.bias for up in ups]).mean(0))
    return wide


def bottleneck_paths(heads: Heads) -> list[str]:
    """Modules whose output a bottleneck follows: each attention block's and each feed-forward block's last
    projection.

    Raises:
        HeadwiseError: a layer's feed-forward projection cannot be distinguished from its other modules, or
            layers share their weights.
    """
    model: Any = heads.model
    dim = model.config.get_text_config().hidden_size
    paths: list[str] = []
    for site in heads.sites:
        names = site.path.split(".")
        block = ".".join(names[: max(index for index, name in enumerate(names) if name.isdigit()) + 1])
        modules = {f"{block}.{name}": module for name, module in model.get_submodule(block).named_modules()}
        back = [path for path, module in modules.items() if path != site.path and _narrows_to(module, dim)]
        if len(back) != 1:
            raise HeadwiseError(
                f"{block}: expected one projection from the feed-forward width back to {dim}, found "
                f"{back or 'none'}"
            )
        paths += [site.path, back[0]]
    if len(set(paths)) < len(paths):
        raise HeadwiseError(
            "layers of this model share their weights, so each layer cannot have its own bottleneck"
        )
    return paths


def _narrows_to(module: nn.Module, dim: int) -> bool:
    """Whether a module is a linear layer from another width to `dim` (GPT-2's Conv1D keeps its weight the
    other way round)."""
    if isinstance(module, nn.Linear):
        return module.out_features == dim != module.in_features
    if type(module).__name__ == "Conv1D":
        weight: Any = module.weight
        return bool(weight.shape[1] == dim != weight.shape[0])
    return False
