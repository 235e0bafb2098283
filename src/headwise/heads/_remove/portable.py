"""The modelling file of a folder that holds a model without some of its heads, so that plain transformers
opens it.

Where a family's configuration cannot say which heads are left, the folder carries a short file of its own: it
builds the installed class of transformers from `config.json` and cuts the heads listed there, by the same
functions that cut the live model.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any

import transformers
from transformers import PreTrainedModel
from transformers.models.auto import auto_factory

from headwise.heads._remove import cutting, headless
from headwise.heads._remove.surgery import Surgery

FILE = "modeling_pruned.py"
CUTS = "headwise_cuts"  # in config.json: what was cut, oldest first
CLASS = "headwise_model_class"  # the class of transformers before
TYPE_BEFORE = "headwise_model_type"  # and the model type
# of each field of `Surgery`: what the file needs to replay it, in the order in which it must stand there
SOURCES: dict[str, tuple[Callable[..., Any], ...]] = {
    "slices": (cutting.cut_parameters, cutting.narrowed, cutting.update_shape),
    "attributes": (cutting.set_attributes,),
    "config": (cutting.set_configs, cutting.ConfigView),
    "arguments": (cutting.narrow_arguments, cutting.NarrowedArguments, cutting.keep_heads),
    "tables": (cutting.share_biases, cutting.SharedBias, cutting.keep_heads),
    "headless": (headless.take_heads, headless.Headless, headless._self_attention_cache),
}
IMPORTS = {
    "import inspect\n": "inspect.",
    "from typing import Any\n": "Any",
    "\n": "",
    "import torch\n": "torch.",
    "from torch import Tensor, nn\n": "nn.",
    "from transformers.cache_utils import Cache, EncoderDecoderCache\n": "EncoderDecoderCache",
    "from transformers.pytorch_utils import Conv1D\n": "Conv1D",
}


def own_class(model: Any) -> type[PreTrainedModel] | None:
    """The class of transformers that a model is of, or that its folder's file derives it from; None for any
    other."""
    cls = type(model)
    before = cls.__mro__[1]
    if cls.__name__ == pruned_name(before):
        cls = before
    known = getattr(transformers, cls.__name__, None) is cls and issubclass(cls, PreTrainedModel)
    return cls if known else None


def cuts_in_config(model: Any) -> list[Surgery]:
    """What was cut out of a model that transformers opened by the file; empty for any other."""
    config, cls = getattr(model, "config", None), own_class(model)
    cuts = [Surgery(**values) for values in getattr(config, CUTS, None) or ()]
    if not cuts or cls is None:
        return []
    before = getattr(transformers, getattr(config, CLASS))
    return cuts if cls is before else [_without_prefix(cut, f"{before.base_model_prefix}.") for cut in cuts]


def _without_prefix(cut: Surgery, prefix: str) -> Surgery:
    values = cut.to_json()
    for name, entries in values.items():
        if isinstance(entries, dict):
            values[name] = {path.removeprefix(prefix): entry for path, entry in entries.items()}
    return Surgery(**values)


def config_class(model: Any) -> type:
    """The configuration class of transformers that a model's is of, or derived from."""
    config: type = transformers.CONFIG_MAPPING[config_type(model.config)]
    return config


def config_type(config: Any) -> str:
    """The model type of a configuration before anything was cut."""
    return str(getattr(config, TYPE_BEFORE, config.model_type))


def pruned_name(cls: type) -> str:
    """What the file calls its subclass."""
    return f"Pruned{cls.__name__}"


def describe(model: Any, cuts: list[Surgery]) -> dict[str, Any]:
    """What `config.json` says besides the configuration before: its type, its classes, and the cuts."""
    cls = own_class(model)
    assert cls is not None
    module = FILE.removesuffix(".py")
    config = config_class(model)
    classes: dict[str, type] = {"AutoConfig": config, **auto_classes(cls, config)}
    return {
        "model_type": f"pruned_{config_type(model.config)}",
        TYPE_BEFORE: config_type(model.config),
        "architectures": [pruned_name(cls)],
        "auto_map": {name: f"{module}.{pruned_name(target)}" for name, target in classes.items()},
        CLASS: cls.__name__,
        CUTS: [cut.to_json() for cut in cuts],
    }


def auto_classes(cls: type[PreTrainedModel], config: type) -> dict[str, type[PreTrainedModel]]:
    """The class that each of transformers' Auto classes opens: those made for `cls`, and the encoder by
    `AutoModel`."""
    names = {name: cls for name, mapped in _auto_tables(config).items() if cls in mapped}
    base = _auto_tables(config).get("AutoModel", ())
    return {"AutoModel": base[0], **names} if base else names


@cache
def _auto_tables(config: type) -> dict[str, tuple[type, ...]]:
    """By Auto class, the classes that it has for a configuration."""
    tables: dict[str, tuple[type, ...]] = {}
    for name in dir(transformers):
        auto = getattr(transformers, name) if name.startswith("AutoModel") else None
        if not (inspect.isclass(auto) and issubclass(auto, auto_factory._BaseAutoModelClass)):
            continue
        mapping: Any = getattr(auto, "_model_mapping")  # noqa: B009
        if mapping is not None and config in mapping:
            target = mapping[config]
            tables[name] = tuple(target) if isinstance(target, tuple | list) else (target,)
    return tables


def source(model: Any, cuts: list[Surgery]) -> str:
    """The text of the modelling file."""
    cls, config = own_class(model), config_class(model)
    assert cls is not None
    used = [field.name for field in fields(Surgery) if any(getattr(cut, field.name) for cut in cuts)]
    steps = [name for name in used if name in SOURCES]
    pieces = list(dict.fromkeys(piece for name in steps for piece in SOURCES[name]))
    text = "\n\n".join(inspect.getsource(piece) for piece in pieces)
    classes = list(dict.fromkeys([cls, *auto_classes(cls, config).values()]))
    names = ", ".join(sorted({config.__name__, *(c.__name__ for c in classes)}))
    imports = "".join(line for line, mark in IMPORTS.items() if mark in text)
    calls = "".join(
        f"        {SOURCES[name][0].__name__}(model, without(surgery[{name!r}], prefix))\n" for name in steps
    )
    return "\n".join(
        [
            _docstring(cls, auto_classes(cls, config)),
            f"{imports}from transformers import {names}\n\n",
            text,
            f"\ndef cut_heads(model: nn.Module, cuts: list[Any], prefix: str) -> None:\n"
            f'    """Replays the cuts of config.json; names there are those of {cls.__name__}."""\n'
            f"    for surgery in cuts:\n{calls}\n\n"
            f"def without(values: dict[str, Any], prefix: str) -> dict[str, Any]:\n"
            f"    return {{name.removeprefix(prefix): value for name, value in values.items()}}\n\n",
            f"class {pruned_name(config)}({config.__name__}):\n"
            f'    model_type = "pruned_{config_type(model.config)}"\n\n',
            "\n\n".join(_class(c, cls, config) for c in classes),
        ]
    )


def _class(cls: type[PreTrainedModel], saved: type[PreTrainedModel], config: type) -> str:
    prefix = "" if cls is saved or not saved.base_model_prefix else f"{saved.base_model_prefix}."
    return (
        f"class {pruned_name(cls)}({cls.__name__}):\n"
        f"    config_class = {pruned_name(config)}\n\n"
        f"    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:\n"
        f"        super().__init__(config, *args, **kwargs)\n"
        f"        cut_heads(self, config.{CUTS}, {prefix!r})\n"
    )


def _docstring(cls: type, autos: Mapping[str, type]) -> str:
    opener = next((name for name, target in autos.items() if target is cls), "AutoModel")
    return (
        f'"""A {cls.__name__} without some of its attention heads.\n\n'
        f"    {opener}.from_pretrained(folder, trust_remote_code=True)\n\nbuilds the {cls.__name__} of the "
        f"installed transformers and cuts out of it what config.json lists under\n{CUTS!r}. This file does "
        "nothing else: it reads no other file and fetches nothing. headwise wrote it, and\n"
        "headwise.load(folder) opens the folder without running it.\n"
        '"""\n'
    )
