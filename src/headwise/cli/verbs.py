"""Verbs made from settings: an option for every field, with the help, default and bounds that the operation declares."""

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from pydantic.fields import FieldInfo

from headwise.cli.common import Verb
from headwise.errors import HeadwiseError
from headwise.settings import Settings, checked, marks

SIMPLE = (str, int, float, bool, Path)


def verb(app: typer.Typer, name: str, function: Callable[..., None], cls: type[Verb] = Verb) -> None:
    """Adds `function` to the command line.

    Parameters annotated with a `Settings` class become one option per field; the others are typer's own, as annotated.

    Args:
        app: the command line.
        name: of the verb.
        function: the body.
        cls: `Verb`, or `Resumable` if its --out can be resumed.
    """
    app.command(name, cls=cls)(with_options(function))


def with_options(function: Callable[..., None]) -> Callable[..., None]:
    """`function` with its settings parameters spread into options."""
    hints = get_type_hints(function, include_extras=True)
    given = inspect.signature(function).parameters
    tables = {key: hints[key] for key in given if inspect.isclass(hints.get(key)) and issubclass(hints[key], Settings)}
    parameters = [
        parameter.replace(annotation=hints[key], kind=inspect.Parameter.KEYWORD_ONLY)
        for key, parameter in given.items()
        if key not in tables
    ]
    owner = {field: key for key, table in tables.items() for field in options_of(table)}
    for key, table in tables.items():
        parameters += [_parameter(field, table.model_fields[field]) for field in options_of(table) if owner[field] == key]

    @wraps(function)
    def call(**values: Any) -> None:
        spread: dict[str, dict[str, Any]] = {key: {} for key in tables}
        for field, key in owner.items():
            value = values.pop(field)
            if value is not None:  # None: not given, so the settings' own default holds
                spread[key][field] = tuple(value) if isinstance(value, list) else value
        function(**values, **{key: _checked(table, spread[key]) for key, table in tables.items()})

    # an option that must be given comes first, as Python's signatures want it
    parameters.sort(key=lambda parameter: parameter.default is not inspect.Parameter.empty)
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def options_of(table: type[Settings]) -> list[str]:
    """The fields of a settings class that the command line can give."""
    return [name for name, field in table.model_fields.items() if not marks(field)["live"]]


def flag(field: str) -> str:
    """The option of a field."""
    return "--" + field.replace("_", "-")


def _checked(table: type[Settings], values: dict[str, Any]) -> Any:
    try:
        return checked(table, values)
    except HeadwiseError as error:  # names as they are typed here
        lines = str(error).splitlines()
        raise HeadwiseError("\n".join(flag(line.partition(":")[0]) + ":" + line.partition(":")[2] for line in lines)) from None


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    noted = marks(field)
    kind, several = _plain(field.annotation)
    names = [noted["short"], flag(name), noted["also"]]
    flags = [one for one in names if one]
    required = field.is_required()
    default = None if required else field.get_default(call_default_factory=True)
    if kind is bool:
        flags = [f"{flag(name)}/--no-{flag(name)[2:]}"]
    help_ = (field.description or "") + _shown(default, required, several)
    info = typer.Option(*flags, help=help_, show_default=False)
    annotation = (list[kind] if several else kind) | (NoneType if not required else kind)  # type: ignore[valid-type]
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if required else None,
        annotation=Annotated[annotation, info],
    )


def _shown(default: Any, required: bool, several: bool) -> str:
    if required:
        return " [required]"
    if default is None or default == () or default == "":
        return ""
    if isinstance(default, bool):
        return " [default: yes]" if default else ""
    return f" [default: {' '.join(map(str, default)) if several and isinstance(default, tuple) else default}]"


def _plain(annotation: Any) -> tuple[Any, bool]:
    """The type an option is read as, and whether it takes several values."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _plain(get_args(annotation)[0])
    if origin in (Union, UnionType):
        kinds = [_plain(part) for part in get_args(annotation) if part is not NoneType]
        plain = {kind for kind, _ in kinds}
        return (plain.pop() if len(plain) == 1 else float if plain == {int, float} else str), any(many for _, many in kinds)
    if origin is Literal:
        return type(get_args(annotation)[0]), False
    if origin in (tuple, list):
        return _plain(get_args(annotation)[0])[0], True
    return (annotation if annotation in SIMPLE else str), False
