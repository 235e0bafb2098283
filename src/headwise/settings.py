"""Settings of operations: declared once, as the fields of a frozen model, from which the function, the verb and the recipe come.

    class Dissociate(Settings):
        fraction: float = option(0.3, "Fraction of all heads in each task's set (α).", gt=0, lt=1)

    @operation(Dissociate)
    def dissociate(model, tasks, settings): ...

`dissociate(model, tasks, fraction=0.2)` takes the fields as keywords, with a real signature for editors and `help`; the command line
makes an option of each (`headwise.cli.verbs`); a recipe's table is the class itself.
"""

import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from difflib import get_close_matches
from functools import cache, wraps
from numbers import Number
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar, get_args, overload

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from headwise._base.datapaths import DataPath as DataPath, placed as placed
from headwise._base.names import as_fraction, cut, one_spelling
from headwise.errors import HeadwiseError

SUBJECTS = {
    "model": "a multi-task model, or a plain transformers model with a head.",
    "task": "the task.",
}  # of most operations
P = ParamSpec("P")
S = TypeVar("S")
R = TypeVar("R")


class Settings(BaseModel):
    """Frozen settings: unknown names are refused, values are checked against their bounds."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    @field_validator(
        "precision", "dtype", mode="before", check_fields=False
    )  # of whichever settings have them
    @classmethod
    def _spelt(cls, given: Any, info: ValidationInfo) -> Any:
        """Precisions and data types by any of their usual names."""
        return one_spelling(given, _literals(cls.model_fields[str(info.field_name)].annotation))

    def decides(self) -> dict[str, Any]:
        """The settings that decide a result, by name: what a result's key holds."""
        return {name: getattr(self, name) for name in _deciding(type(self))}

    def changed(self) -> dict[str, Any]:
        """The settings that differ from their defaults, by name."""
        fields = type(self).model_fields
        return {
            name: getattr(self, name)
            for name, field in fields.items()
            if getattr(self, name) != field.get_default()
        }

    def given(self) -> dict[str, Any]:
        """The settings that were given, by name; the others have their defaults."""
        return {
            name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set
        }

    def to_table(self) -> dict[str, Any]:
        """The settings that were given, as a recipe's table writes them."""
        return self.model_dump(mode="json", exclude_unset=True)

    def part(self, other: "type[Settings]") -> dict[str, Any]:
        """The settings that another operation has too, by name."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in other.model_fields}

    def with_changes(self, **changes: Any) -> Self:
        """A copy with some settings changed.

        Raises:
            HeadwiseError: a name is unknown, or a value out of bounds.
        """
        return checked(type(self), {**self.given(), **changes})


def _literals(annotation: Any) -> list[Any]:
    """The values that an annotation allows by name."""
    return [
        value for one in get_args(annotation) for value in ([one] if isinstance(one, str) else _literals(one))
    ]


@cache
def _deciding(settings: type[Settings]) -> list[str]:
    return [name for name, field in settings.model_fields.items() if marks(field)["decides"]]


class Exact(Settings):
    """Settings that take values of their own types alone: no text and no truth value stands for a number."""

    model_config = ConfigDict(strict=True)

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, given: Any) -> Any:
        """Lists as tuples, which JSON has not, and numbers of NumPy as Python's."""
        if not isinstance(given, dict):
            return given
        return {
            name: tuple(v)
            if isinstance(v, list)
            else v.item()
            if isinstance(v, Number) and hasattr(v, "item")
            else v
            for name, v in given.items()
        }


def option(
    default: Any,
    help: str,
    *,
    flag: str = "",
    short: str = "",
    also: str = "",
    live: bool = False,
    decides: bool = True,
    **bounds: Any,
) -> Any:
    """One setting.

    Args:
        default: its default value; `...` if it must be given.
        help: one line: what it is, for the docstring, the command line and the recipe.
        flag: its name on the command line, if not its own ("--tasks" of `names`).
        short, also: further names there ("-o", "--lr").
        live: an object of the running program (a tokenizer, found heads): an argument of the function alone.
        decides: whether the result depends on it; batch sizes of evaluations, devices and progress bars do not decide.
        bounds: of pydantic's `Field`: gt, ge, lt, le, min_length, ...
    """
    extra: Any = {
        "headwise": {
            "flag": flag,
            "short": short,
            "also": also,
            "live": live,
            "decides": decides and not live,
        }
    }
    return Field(default, description=help, json_schema_extra=extra, exclude=live or None, **bounds)


def marks(field: FieldInfo) -> dict[str, Any]:
    """What `option` noted of a field beside type, default and help."""
    extra = field.json_schema_extra
    noted: Any = extra.get("headwise", {}) if isinstance(extra, dict) else {}
    return {"flag": "", "short": "", "also": "", "live": False, "decides": True, **noted}


# Settings of many operations; each says which of them it has.
SEED: Any = option(0, "Random seed.", ge=0)
QUIET: Any = option(False, "Do not show progress.", decides=False)
TRUST: Any = option(False, "Run the code that a model folder contains; read that code first.", decides=False)
TOKENIZER: Any = option(
    None, "Tokenizer of a live model; default: the one saved with its weights.", live=True
)
HEADS: Any = option(None, "The model's `Heads`, if already built.", live=True)
OUT: Any = option(
    None, "Save everything in this folder; a finished result is shown again.", short="-o", decides=False
)


class Opening(Settings):
    """How a model that is named by a folder or a hub id is opened: part of the settings of every operation that opens one to look at it."""

    dtype: Literal["float32", "bfloat16", "float16", "auto"] | None = option(
        None,
        "Data type of the weights when a model is loaded from a folder or the hub; auto: the checkpoint's own. Default: float32; "
        "auto on a GPU.",
    )
    device: str | None = option(
        None,
        "Device on which to open the model: cpu, cuda, ...; default: a GPU if there is one.",
        decides=False,
    )
    trust_remote_code: bool = TRUST


@overload
def operation(
    settings: Callable[P, S], subjects: None = None
) -> Callable[[Callable[[Any, Any, S], R]], Callable[Concatenate[Any, Any, P], R]]: ...
@overload
def operation(
    settings: Callable[P, S], subjects: str
) -> Callable[[Callable[..., R]], Callable[Concatenate[Any, Any, Any, P], R]]: ...
@overload
def operation(
    settings: Callable[P, S], subjects: tuple[str, str]
) -> Callable[[Callable[..., R]], Callable[Concatenate[Any, Any, Any, Any, P], R]]: ...
def operation(settings: Any, subjects: str | tuple[str, str] | None = None) -> Any:
    """Makes `function(model, tasks, settings)` take the fields of `settings` as keywords: `function(model, tasks, fraction=0.2)`.

    Args:
        settings: the class that declares them.
        subjects: name of a third argument before the settings, or of a third and a fourth, if the function has them.
    """

    def make(function: Callable[..., R]) -> Callable[..., R]:
        signature = inspect.signature(function)
        *places, last = signature.parameters.values()
        if last.name != "settings":
            raise TypeError(
                f"{function.__name__}: the last parameter of an operation is its settings, not {last.name!r}"
            )

        @wraps(function)
        def call(*args: Any, **given: Any) -> R:
            named = {place.name: given.pop(place.name) for place in places if place.name in given}
            try:
                bound = inspect.Signature(places).bind(*args, **named)
            except TypeError as error:
                raise HeadwiseError(
                    f"{function.__name__}: {error}; it takes {', '.join(p.name for p in places)}"
                ) from None
            bound.apply_defaults()
            with _outside_inference():
                return function(*bound.args, settings=checked(settings, given))

        fields = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty
                if field.is_required()
                else field.get_default(call_default_factory=True),
                annotation=field.annotation,
            )
            for name, field in settings.model_fields.items()
        ]
        call.__signature__ = signature.replace(parameters=[*places, *fields])  # type: ignore[attr-defined]
        call.__doc__ = _documented(function.__doc__ or "", [place.name for place in places], settings)
        call.settings = settings  # type: ignore[attr-defined]
        return call

    return make


def _outside_inference() -> Any:
    """Ends torch's inference mode, which a caller need not leave for the operations that take gradients; torch is not imported for it."""
    torch: Any = sys.modules.get("torch")
    return (
        torch.inference_mode(False)
        if torch is not None and torch.is_inference_mode_enabled()
        else nullcontext()
    )


def checked(settings: type[Any], given: Mapping[str, Any]) -> Any:
    """`given` as an instance of `settings`.

    Raises:
        HeadwiseError: one line for each name that is unknown and each value out of bounds.
    """
    try:
        return settings(**given)
    except ValidationError as error:
        raise HeadwiseError("\n".join(mistakes(settings, error))) from None


def mistakes(settings: type[BaseModel], error: ValidationError) -> list[str]:
    """One line for each thing that is wrong: where it is, what was given, what is allowed."""
    found = error.errors(include_url=False)
    within = {mistake["loc"][:i] for mistake in found for i in range(len(mistake["loc"]))}
    # a list whose only entry is wrong is not also too short
    return [
        _explain(settings, one) for one in found if one["type"] != "too_short" or one["loc"] not in within
    ]


def _explain(settings: type[BaseModel], mistake: Any) -> str:
    where = ".".join(str(part) for part in mistake["loc"]) or "the settings"
    message, kind = mistake["msg"], mistake["type"]
    if kind == "extra_forbidden":
        allowed = sorted(_keys(settings, mistake["loc"][:-1]))
        near = get_close_matches(str(mistake["loc"][-1]), allowed, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"allowed here: {', '.join(allowed)}"
        return f"{where}: unknown key; {hint}"
    if kind == "missing":
        return f"{where}: missing; it must be given"
    if kind == "value_error":
        return f"{where}: {message.removeprefix('Value error, ')}"
    given = mistake["input"]
    said = message.removeprefix("Input ").replace("should be", "must be", 1)
    limits = mistake.get("ctx", {})
    if 1 in (limits.get("lt"), limits.get("le")) and isinstance(given, int | float):
        number = f"{given:g}" if isinstance(given, float) else cut(json.dumps(given))
        return f"{where}: given {number}; {said}; {as_fraction(given)}"
    expected = str(limits.get("expected", ""))
    allowed = [word.strip("',") for word in expected.split()]
    near = ["cuda"] if given == "gpu" and "cuda" in allowed else get_close_matches(str(given), allowed, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{where}: given {cut(json.dumps(given, default=str))} ({_type_name(given)}); {said}{hint}"


def _keys(settings: type[BaseModel], path: Sequence[str | int]) -> set[str]:
    """The keys allowed in the table at `path`."""
    models: list[type[BaseModel]] = [settings]
    for part in path:
        inner = [field for one in models for name, field in one.model_fields.items() if name == part]
        models = [
            found for field in inner for found in _models_in(field.annotation)
        ] or models  # a list index, or a union's tag
    return {name for one in models for name in one.model_fields}


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for argument in get_args(annotation) for found in _models_in(argument)]


def _type_name(value: Any) -> str:
    names = {
        bool: "true/false",
        int: "a whole number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "a table",
    }
    return names.get(type(value), type(value).__name__)


def _documented(text: str, subjects: Sequence[str], settings: type[BaseModel]) -> str:
    """The docstring with one line per setting at the end of its Args, and the usual subjects where it does not say its own."""
    usual = [
        f"{name}: {SUBJECTS[name]}" for name in subjects if name in SUBJECTS and f" {name}: " not in text
    ]
    lines = usual + [
        f"{name}: {(field.description or '').rstrip()}" for name, field in settings.model_fields.items()
    ]
    head, mark, tail = inspect.cleandoc(text).partition("\n\nReturns:")
    body = head if "\nArgs:\n" in head else f"{head}\n\nArgs:"
    return f"{body}\n" + "\n".join(f"    {line}" for line in lines) + mark + tail
