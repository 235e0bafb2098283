"""Recipes: a study described in TOML, read by a pydantic model, with one clear message for each mistake."""

import csv
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError, ValidationInfo

from headwise._base.parsing import parse_toml, whole_number
from headwise._base.places import EMBEDDED, default_model, in_gguf, model_folder, model_place, without_weights
from headwise.errors import HeadwiseError, did_you_mean
from headwise.settings import DataPath as DataPath, Settings as Settings, mistakes, placed
from headwise.store import model_content


class RecipeError(HeadwiseError):
    """A recipe is wrong; nothing was computed."""


class Recipe(Settings):
    """The whole recipe of a study; each kind of study derives its own.

    Attributes:
        kind: which study this is.
        title: a line for people.
    """

    kind: str
    title: str = ""


class Typed(str):
    """A text that `--set` gave: as a path it is relative to the current folder, as whoever types it
    expects."""


class ModelName(str):
    """A model: a folder or a GGUF file (relative to the recipe), a hub id, or "demo" (the embedded MiniLM);
    counts by the content of its weights."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.with_info_after_validator_function(
            cls._check, core_schema.str_schema(), serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def _check(cls, value: str, info: ValidationInfo) -> "ModelName":
        if value == EMBEDDED:
            return cls(default_model())
        folder = placed(value, info)
        packed = _packed(folder)
        if packed is not None:
            return cls(packed)
        if os.path.isdir(folder):
            if not (folder / "config.json").is_file() and not (folder / "headwise.json").is_file():
                raise ValueError(
                    f"looked for a model in {folder}, which has neither config.json nor headwise.json"
                )
            empty = without_weights(folder)
            if empty is not None:
                raise ValueError(f"looked for a model in {empty}, which has no weights as *.safetensors")
            return cls(folder)
        if value.startswith((".", "/", "~")) or value.count("/") > 1:
            raise ValueError(f"looked for a model folder {folder}, which does not exist")
        if not _on_hub(value):
            raise ValueError(
                f"looked for a model folder {folder} and for {value!r} in the hub's cache (offline); neither "
                "exists"
            )
        return cls(value)

    def folder(self) -> Path:
        """Where the model lies on this machine; a hub model is downloaded if it must be."""
        return model_folder(self)

    def fingerprint(self) -> str:
        """Hash of weights, configuration and tokenizer."""
        return model_content(self.folder())


def _packed(path: Path) -> str | None:
    """The GGUF file that a model is, by its own name or by its folder's; None: it is none.

    Raises:
        ValueError: a folder holds several, or the package that reads them is not installed.
    """
    if not os.path.exists(path):  # a name too long for a file is none
        return None
    try:
        model = model_place(path)
        return model if in_gguf(model)[1] else None
    except HeadwiseError as error:
        raise ValueError(str(error)) from None


def _on_hub(name: str) -> bool:
    """Whether a hub id can be had: it is in the cache, or the network is allowed."""
    from huggingface_hub import constants, try_to_load_from_cache

    try:
        return isinstance(try_to_load_from_cache(name, "config.json"), str) or not constants.HF_HUB_OFFLINE
    except ValueError:  # not a name the hub would have
        return False


def read_recipe_file(path: str | Path) -> dict[str, Any]:
    """A recipe file as a dict."""
    path = Path(path)
    try:
        return parse_toml(path.read_bytes(), f"the recipe {path}")
    except FileNotFoundError:
        near = did_you_mean(path.name, [recipe.name for recipe in path.parent.glob("*.toml")])
        raise RecipeError(
            f"there is no recipe {path.absolute()}{near}; `headwise study recipes` prints those that come "
            "with headwise"
        ) from None
    except (OSError, ValueError) as error:
        raise RecipeError(
            f"the recipe {path} could not be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    except HeadwiseError as error:
        raise RecipeError(str(error)) from None


def packaged_recipes() -> dict[str, Path]:
    """The recipes that come with headwise, by name: inside the package, or beside the sources in a clone."""
    here = Path(__file__).parents[1]
    folder = next(
        (candidate for candidate in (here / "recipes", here.parents[1] / "recipes") if candidate.is_dir()),
        here,
    )
    return {file.stem: file for file in sorted(folder.glob("*.toml"))}


def find_recipe(source: str | Path) -> tuple[dict[str, Any], Path]:
    """A recipe, by file or by the name of one that comes with headwise, and the folder that its paths are
    relative to.

    Raises:
        RecipeError: there is no such file or name, or it is not TOML.
    """
    path = Path(source)
    if path.is_file() or path.suffix or len(path.parts) != 1:
        return read_recipe_file(path), path.absolute().parent
    packaged = packaged_recipes()
    if path.name not in packaged:
        near = did_you_mean(path.name, packaged)
        raise RecipeError(
            f"there is no recipe {path.name!r}{near}; give a file, or one of those that `headwise study "
            "recipes` prints"
        )
    # they lie one folder below the one they are run in
    content = packaged[path.name].read_bytes().replace(b'"../', b'"')
    return parse_toml(content, f"the recipe {path.name}"), Path.cwd()


def apply_scale(data: dict[str, Any], scale: str | None) -> None:
    """Applies one of a recipe's own scales: the table `[scale.small]` holds what `--scale small` changes, key
        by key.

    A table in it with `replace = true` stands for the whole table; the others change only the keys they name.

    Raises:
        RecipeError: the recipe has no such scale.
    """
    scales = data.pop("scale", {})
    if not isinstance(scales, dict) or not all(isinstance(changes, dict) for changes in scales.values()):
        raise RecipeError("scale: given a value; it must hold tables, [scale.small] and the like")
    if scale is None:
        return
    if scale not in scales:
        raise RecipeError(
            f"--scale {scale}: the recipe has {', '.join(scales) or 'no scales: it has no [scale.…] tables'}"
        )
    _merge(data, scales[scale])


def _merge(data: dict[str, Any], changes: Mapping[str, Any]) -> None:
    for name, value in changes.items():
        if isinstance(value, dict) and isinstance(data.get(name), dict) and not value.pop("replace", False):
            _merge(data[name], value)
        else:
            data[name] = value


def apply_overrides(data: dict[str, Any], sets: Sequence[str]) -> None:
    """Applies `--set` overrides ("training.epochs=1", "tasks.0.name=sst2") to a recipe; the value is read as
    TOML, or else as text."""
    for assignment in sets:
        _apply(data, assignment)


def _apply(data: dict[str, Any], assignment: str) -> None:
    name, equals, text = assignment.partition("=")
    lines = name.strip().splitlines()
    keys = next(csv.reader(lines[:1], delimiter="."), [])  # models."gpt2.small" has two parts
    if not equals or len(lines) != 1 or not all(keys):
        raise RecipeError(f"--set {assignment}: write it as key=value, e.g. --set training.epochs=1")
    value = _typed(set_value(text))
    table: Any = data
    for key in keys[:-1]:
        number = _entry(table, key)
        if number is not None:
            table = table[number]
        elif isinstance(table, dict):
            table = table.setdefault(key, {})
        else:
            table = None
        if not isinstance(table, dict | list):
            raise RecipeError(f"--set {assignment}: {key!r} is not a table")
    if isinstance(table, list):
        number = _entry(table, keys[-1])
        if number is None:
            raise RecipeError(
                f"--set {assignment}: there are {len(table)} entries, counted from 0, not {keys[-1]!r}"
            )
        table[number] = value
    else:
        table[keys[-1]] = value


def _entry(entries: Any, key: str) -> int | None:
    """The number of an entry of a list, or None if it has no such entry or is not a list."""
    number = whole_number(key)
    return number if isinstance(entries, list) and number is not None and number < len(entries) else None


def set_value(text: str) -> Any:
    """The value of a `--set key=value`: TOML where it is that, else the text itself."""
    try:
        return parse_toml(f"value = {text}", "--set")["value"]
    except HeadwiseError:
        return text.strip()  # bare words are text


def _typed(value: Any) -> Any:
    """A value with each text in it, however deep, as one that was typed."""
    if isinstance(value, str):
        return Typed(value)
    if isinstance(value, dict):
        return {name: _typed(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_typed(inner) for inner in value]
    return value


def _texts(value: Any) -> Iterator[Typed]:
    """Every text in a recipe that was typed."""
    if isinstance(value, Typed):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def read_recipe(model: type[BaseModel], data: Mapping[str, Any], base: str | Path) -> Any:
    """`data` as the recipe `model`; paths are relative to the folder `base`, those that `--set` gave to the
    current one.

    Raises:
        RecipeError: one line for each mistake.
    """
    try:
        # JSON in strict mode: text may stand for a path or a date, but never "3" or true for 3.
        text = json.dumps(_with_defaults(model, data), default=str)
        return model.model_validate_json(
            text, strict=True, context={"base": Path(base), "typed": {*_texts(data)}}
        )
    except ValidationError as error:
        raise RecipeError("\n".join(mistakes(model, error))) from None


def _with_defaults(model: type[BaseModel], data: Mapping[str, Any]) -> dict[str, Any]:
    """`data` with, in each table that it gives, what this kind of study has as its own defaults of that
    table."""
    defaults = {
        name: field.default.to_table()
        for name, field in model.model_fields.items()
        if isinstance(field.default, Settings)
    }
    return {
        name: {**defaults.get(name, {}), **value} if isinstance(value, Mapping) else value
        for name, value in data.items()
    }
