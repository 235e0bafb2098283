"""Settings that both a recipe's trainings and some methods have: whose holds; and what trained models
take."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from headwise import engine
from headwise.errors import HeadwiseError
from headwise.training import Train
from headwise.training.methods import METHODS


def shared_options(method: str) -> dict[str, FieldInfo]:
    """The options of a method that are settings of every training, too."""
    options = METHODS[method].Options.model_fields
    return {name: option for name, option in options.items() if name in Train.model_fields}


def of_methods(training: Train, methods: Sequence[str]) -> Train:
    """The settings of one cell's trainings: where the recipe says nothing, a setting that a method has too
    (lora its rate) is the method's."""
    defaults: dict[str, Any] = {}
    for method in methods:
        for name, option in shared_options(method).items():
            if name not in training.model_fields_set:
                defaults[name] = option.default
    return training.with_changes(**defaults)


def warn_of_replaced(
    training: Train, methods: Iterable[str], options: Mapping[str, Mapping[str, Any]]
) -> None:
    """Warns of settings that methods have of their own (lora its rate) and the recipe replaces for all of
    them."""
    for method in dict.fromkeys(methods):
        for name, option in shared_options(method).items():
            if name not in training.model_fields_set or name in options.get(method, {}):
                continue
            recipe_setting = getattr(training, name)
            if recipe_setting != option.default:
                warnings.warn(
                    f"{method} trains with the recipe's {name} {recipe_setting}, not with its own "
                    f"{option.default}; to keep its own: method_options.{method}.{name} = {option.default}",
                    stacklevel=2,
                )


def megabytes_of(model: engine.ModelName, models: int) -> float:
    """What `models` trained models take on the disk, by the weights that they start from."""
    with suppress(HeadwiseError, OSError):
        if weights := sum(file.stat().st_size for file in Path(model.folder()).rglob("*.safetensors")):
            return models * weights / 1e6
    return 500.0 * models
