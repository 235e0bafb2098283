"""Settings of operations: declared once, as the fields of a frozen model, from which the function, the verb
and the recipe come.

    class Dissociate(Settings):
        fraction: float = option(0.3, "Fraction of all heads in each task's set (α).", gt=0, lt=1)

    @operation(Dissociate)
    def dissociate(model, tasks, settings): ...

`dissociate(model, tasks, fraction=0.2)` takes the fields as keywords, with a real signature for editors and
`help`; the command line makes an option of each (`headwise.cli.verbs`); a recipe's table is the class itself.
"""

import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from difflib import get_close_matches
from functools import cache, wraps
from itertools import chain
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
from headwise._base.least import least_resamples
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

    # of whichever settings have them
    @field_validator("precision", "dtype", mode="before", check_fields=False)
    @classmethod
    def _respell(cls, value: Any, info: ValidationInfo) -> Any:
        """Precisions and data types by any of their usual names."""
        return one_spelling(value, _literals(cls.model_fields[str(info.field_name)].annotation))

    def decides(self) -> dict[str, Any]:
        """The settings that decide a result, by name: what a result's key holds."""
        return {name: getattr(self, name) for name in _deciding(type(self))}

    def changed(self) -> dict[str, Any]:
        """The settings that differ from their defaults, by name."""
        defaults = {name: field.get_default() for name, field in type(self).model_fields.items()}
        return {name: getattr(self, name) for name in defaults if getattr(self, name) != defaults[name]}

    def given(self) -> dict[str, Any]:
        """The settings that were given, by name; the others have their defaults."""
        return {
            name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set
        }

    def to_table(self) -> dict[str, Any]:
        """The settings that were given, as a recipe's table writes them."""
        return self.model_dump(mode="json", exclude_unset=True)

    def part(self, table: "type[Settings]") -> dict[str, Any]:
        """The settings that another operation has too, by name."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in table.model_fields}

    def with_changes(self, **changes: Any) -> Self:
        """A copy with some settings changed.

        Raises:
            HeadwiseError: a name is unknown, or a value out of bounds.
        """
        return checked(type(self), {**self.given(), **changes})


def _literals(annotation: Any) -> list[Any]:
    """The values that an annotation allows by name."""
    names: list[Any] = []
    for argument in get_args(annotation):
        names += [argument] if isinstance(argument, str) else _literals(argument)
    return names


@cache
def _deciding(settings: type[Settings]) -> list[str]:
    return [name for name, field in settings.model_fields.items() if marks(field)["decides"]]


class Exact(Settings):
    """Settings that take values of their own types alone: no text and no truth value stands for a number."""

    model_config = ConfigDict(strict=True)

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, values: Any) -> Any:
        """Lists as tuples, which JSON has not, and numbers of NumPy as Python's."""
        return (
            {name: _plain_value(value) for name, value in values.items()}
            if isinstance(values, dict)
            else values
        )


def _plain_value(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, Number) and hasattr(value, "item"):
        return value.item()
    return value


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
        decides: whether the result depends on it; batch sizes of evaluations, devices and progress bars do
            not decide.
        bounds: of pydantic's `Field`: gt, ge, lt, le, min_length, ...
    """
    notes: Any = {"flag": flag, "short": short, "also": also, "live": live, "decides": decides and not live}
    return Field(
        default, description=help, json_schema_extra={"headwise": notes}, exclude=live or None, **bounds
    )


def marks(field: FieldInfo) -> dict[str, Any]:
    """What `option` noted of a field beside type, default and help."""
    extra = field.json_schema_extra
    notes: Any = extra.get("headwise", {}) if isinstance(extra, dict) else {}
    return {"flag": "", "short": "", "also": "", "live": False, "decides": True, **notes}


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
    """How a model that is named by a folder or a hub id is opened: part of the settings of every operation
    that opens one to look at it."""

    dtype: Literal["float32", "bfloat16", "float16", "auto"] | None = option(
        None,
        "Data type of the weights when a model is loaded from a folder or the hub; auto: the checkpoint's "
        "own. Default: float32; auto on a GPU.",
    )
    device: str | None = option(
        None,
        "Device on which to open the model: cpu, cuda, ...; default: a GPU if there is one.",
        decides=False,
    )
    trust_remote_code: bool = TRUST


class Resampling(Settings):
    """Intervals by bootstrap: part of the settings of every operation that has them."""

    level: float = option(0.95, "Confidence level of the intervals.", gt=0, lt=1)
    bootstrap: int = option(
        1000,
        "Bootstrap resamples for the intervals: 0 (no intervals), or at least 199 (95 %) or 999 (99 %).",
        ge=0,
    )

    @field_validator("bootstrap")
    @classmethod
    def _enough(cls, count: int, info: ValidationInfo) -> int:
        level = info.data.get("level")  # None where it is wrong itself, which is said there
        if level and 0 < count < least_resamples(level):
            raise ValueError(
                f"given {count}; intervals at {100 * level:g} % need {least_resamples(level)} resamples or "
                "more (0: no intervals)"
            )
        return count


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
    """Makes `function(model, tasks, settings)` take the fields of `settings` as keywords: `function(model,
    tasks, fraction=0.2)`.

    Args:
        settings: the class that declares them.
        subjects: name of a third argument before the settings, or of a third and a fourth, if the function
            has them.
    """

    def make(function: Callable[..., R]) -> Callable[..., R]:
        signature = inspect.signature(function)
        *positional, last = signature.parameters.values()
        names = [parameter.name for parameter in positional]
        if last.name != "settings":
            raise TypeError(
                f"{function.__name__}: the last parameter of an operation is its settings, not {last.name!r}"
            )

        @wraps(function)
        def call(*args: Any, **keywords: Any) -> R:
            named = {name: keywords.pop(name) for name in names if name in keywords}
            try:
                bound = inspect.Signature(positional).bind(*args, **named)
            except TypeError as error:
                raise HeadwiseError(f"{function.__name__}: {error}; it takes {', '.join(names)}") from None
            bound.apply_defaults()
            with _outside_inference():
                return function(*bound.args, settings=checked(settings, keywords))

        options = [_keyword(name, field) for name, field in settings.model_fields.items()]
        parameters = [*positional, *options]
        call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        call.__doc__ = _documented(function.__doc__ or "", names, settings)
        call.settings = settings  # type: ignore[attr-defined]
        return call

    return make


def _keyword(name: str, field: FieldInfo) -> inspect.Parameter:
    """A field as a keyword of a function."""
    default = field.get_default(call_default_factory=True)
    if field.is_required():
        default = inspect.Parameter.empty
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=field.annotation
    )


def _outside_inference() -> Any:
    """Ends torch's inference mode, which a caller need not leave for the operations that take gradients;
    torch is not imported for it."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.is_inference_mode_enabled():
        return torch.inference_mode(False)
    return nullcontext()


def checked(settings: type[Any], values: Mapping[str, Any]) -> Any:
    """`values` as an instance of `settings`.

    Raises:
        HeadwiseError: one line for each name that is unknown and each value out of bounds.
    """
    try:
        return settings(**by_full_names(settings, values))
    except ValidationError as error:
        raise HeadwiseError("\n".join(mistakes(settings, error))) from None


def by_full_names(settings: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` with the further names of the command line (`--lr`) spelt out, as `learning_rate`.

    Raises:
        HeadwiseError: a setting was given by two of its names.
    """
    full_names = {}
    for name, field in settings.model_fields.items():
        if also := marks(field)["also"]:
            full_names[also.removeprefix("--").replace("-", "_")] = name
    for short, name in full_names.items():
        if short in values and name in values:
            raise HeadwiseError(f"{name} was given twice, as {name} and as {short}: leave one out")
    return {full_names.get(name, name): value for name, value in values.items()}


def mistakes(settings: type[BaseModel], error: ValidationError) -> list[str]:
    """One line for each thing that is wrong: where it is, what was given, what is allowed."""
    errors = error.errors(include_url=False)
    containers: set[Any] = set()
    for mistake in errors:
        containers.update(mistake["loc"][:depth] for depth in range(len(mistake["loc"])))
    lines = []
    for mistake in errors:
        # a list whose only entry is wrong is not also too short
        if mistake["type"] != "too_short" or mistake["loc"] not in containers:
            lines.append(_explain(settings, mistake))
    return lines


def _explain(settings: type[BaseModel], mistake: Any) -> str:
    where = ".".join(map(str, mistake["loc"])) or "the settings"
    message, kind = mistake["msg"], mistake["type"]
    if kind == "extra_forbidden":
        allowed = sorted(_keys(settings, mistake["loc"][:-1]))
        near = get_close_matches(str(mistake["loc"][-1]), allowed, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"allowed here: {', '.join(allowed)}"
        return f"{where}: unknown key; {hint}"
    if kind == "missing":
        return f"{where}: missing; it must be given"
    if kind == "value_error":
        return f"{where}: {message.removeprefix('Value error, ')}"
    value = mistake["input"]
    demand = message.removeprefix("Input ").replace("should be", "must be", 1)
    limits = mistake.get("ctx", {})
    if 1 in (limits.get("lt"), limits.get("le")) and isinstance(value, int | float):
        number = f"{value:g}" if isinstance(value, float) else cut(json.dumps(value))
        return f"{where}: given {number}; {demand}; {as_fraction(value)}"
    allowed = [word.strip("',") for word in str(limits.get("expected", "")).split()]
    near = ["cuda"] if value == "gpu" and "cuda" in allowed else get_close_matches(str(value), allowed, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{where}: given {cut(json.dumps(value, default=str))} ({_type_name(value)}); {demand}{hint}"


def _keys(settings: type[BaseModel], path: Sequence[str | int]) -> set[str]:
    """The keys allowed in the table at `path`."""
    tables: list[type[BaseModel]] = [settings]
    for key in path:
        inner: list[type[BaseModel]] = []
        for table in tables:
            if key in table.model_fields:
                inner += _tables_in(table.model_fields[str(key)].annotation)
        tables = inner or tables  # a list index, or a union's tag
    return set(chain.from_iterable(table.model_fields for table in tables))


def _tables_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return list(chain.from_iterable(map(_tables_in, get_args(annotation))))


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
    """The docstring with one line per setting at the end of its Args, and the usual subjects where it does
    not say its own."""
    lines = []
    for name in subjects:
        if name in SUBJECTS and f" {name}: " not in text:
            lines.append(f"{name}: {SUBJECTS[name]}")
    for name, field in settings.model_fields.items():
        lines.append(f"{name}: {(field.description or '').rstrip()}")
    head, mark, tail = inspect.cleandoc(text).partition("\n\nReturns:")
    if "\nArgs:\n" not in head:
        head = f"{head}\n\nArgs:"
    return f"{head}\n" + "\n".join(f"    {line}" for line in lines) + mark + tail
