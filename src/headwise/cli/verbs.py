"""Verbs made from settings: an option for every field, with the help, default and bounds that the operation
declares."""

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from pydantic.fields import FieldInfo

from headwise import engine
from headwise.cli.common import Resumable, Verb, trust
from headwise.errors import HeadwiseError
from headwise.settings import Opening, Settings, checked, marks

SIMPLE = (str, int, float, bool, Path)


def verb(app: typer.Typer, name: str, function: Callable[..., None]) -> None:
    """Adds `function` to the command line; what it leaves in an `out` of its own can be resumed.

    Parameters annotated with a `Settings` class become one option per field; the others are typer's own, as
    annotated, and stand for the field of the same name, if there is one.
    """
    resumable = "out" in inspect.signature(function).parameters
    app.command(name, cls=Resumable if resumable else Verb)(with_options(function))


def with_options(function: Callable[..., None]) -> Callable[..., None]:
    """`function` with its settings parameters spread into options."""
    hints = get_type_hints(function, include_extras=True)
    tables: dict[str, type[Settings]] = {}
    parameters = []
    for name, parameter in inspect.signature(function).parameters.items():
        if inspect.isclass(hints.get(name)) and issubclass(hints[name], Settings):
            tables[name] = hints[name]
        else:
            parameters.append(parameter.replace(annotation=hints[name], kind=parameter.KEYWORD_ONLY))
    explicit = {parameter.name for parameter in parameters}
    origins: dict[str, tuple[str, str]] = {}  # of the other options: the table and the field they fill
    for name, table in tables.items():
        fields = {_argument(field, table): (name, field) for field in options_of(table)}
        origins |= {argument: origin for argument, origin in fields.items() if argument not in explicit}
    for argument, (name, field) in origins.items():
        parameters.append(_parameter(argument, tables[name].model_fields[field]))

    @wraps(function)
    def call(**arguments: Any) -> None:
        values: dict[str, dict[str, Any]] = {name: {} for name in tables}
        for argument, (name, field) in origins.items():
            value = arguments.pop(argument)
            if value is not None:  # None: not typed, so the settings' own default holds
                values[name][field] = _read(value, tables[name].model_fields[field].annotation)
        settings = {name: _checked(table, values[name]) for name, table in tables.items()}
        function(**arguments, **settings)

    # an option that must be given comes first, as Python's signatures want it
    parameters.sort(key=lambda parameter: parameter.default is not inspect.Parameter.empty)
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def options_of(table: type[Settings]) -> list[str]:
    """The fields of a settings class that the command line can give; how a model is opened comes last."""
    names = [name for name, field in table.model_fields.items() if not marks(field)["live"]]
    return sorted(names, key=lambda name: name in Opening.model_fields)


def help_of(table: type[Settings], field: str) -> str:
    """The help of a field, for a verb's own option in its place."""
    return table.model_fields[field].description or ""


def flag(field: str, table: type[Settings]) -> str:
    """The option of a field."""
    return marks(table.model_fields[field])["flag"] or "--" + field.replace("_", "-")


def _argument(field: str, table: type[Settings]) -> str:
    return flag(field, table)[2:].replace("-", "_")


def pair(text: str) -> tuple[str, Any]:
    """One `key=value`; values are read as TOML where they can be, else as text."""
    name, equals, toml = text.partition("=")
    if not equals:
        raise HeadwiseError(f"--set {text}: write it as key=value, e.g. --set rank=4")
    return name.strip().replace("-", "_"), _without_lists(engine.set_value(toml))


def _read(value: Any, annotation: Any) -> Any:
    """What typer read of an option, as the field takes it."""
    return dict(map(pair, value)) if get_origin(annotation) is dict else _without_lists(value)


def _without_lists(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _checked(table: type[Settings], values: dict[str, Any]) -> Any:
    try:
        return checked(table, values)
    except HeadwiseError as error:  # names as they are typed here
        lines = []
        for line in str(error).splitlines():
            name, colon, mistake = line.partition(":")
            if name in table.model_fields:
                name = flag(name, table)
            lines.append(name + colon + mistake)
        raise HeadwiseError("\n".join(lines)) from None


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    """The parameter from which typer makes the option of a field; None stands for an option that was not
    typed."""
    kind, several = _option_type(field.annotation)
    default = field.get_default(call_default_factory=True)
    long = "--" + name.replace("_", "-")
    flags = [spelling for spelling in (marks(field)["short"], long, marks(field)["also"]) if spelling]
    if (
        kind is bool and default is not False
    ):  # what is on, or on by what a model remembers, can be turned off
        flags = [f"{long}/--no-{long[2:]}"]
    annotation: Any = list[kind] if several else kind  # type: ignore[valid-type]
    note = " [required]"
    absent: Any = inspect.Parameter.empty
    if not field.is_required():
        annotation, note, absent = annotation | None, _default_note(default), None
    callback = trust if name == "trust_remote_code" else None
    option = typer.Option(
        *flags, help=(field.description or "") + note, show_default=False, callback=callback
    )
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=absent, annotation=Annotated[annotation, option]
    )


def _default_note(default: Any) -> str:
    if default is None or default is False or default in ((), {}, ""):
        return ""
    if default is True:
        return " [default: yes]"
    if isinstance(default, tuple):
        default = " ".join(map(str, default))
    return f" [default: {default}]"


def _option_type(annotation: Any) -> tuple[Any, bool]:
    """The type an option is read as, and whether it takes several values."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _option_type(arguments[0])
    if origin in (Union, UnionType):
        choices = [_option_type(argument) for argument in arguments if argument is not NoneType]
        kinds = {kind for kind, _ in choices}
        several = any(many for _, many in choices)
        if len(kinds) == 1:
            return kinds.pop(), several
        return float if kinds == {int, float} else str, several
    if origin is Literal:
        return type(arguments[0]), False
    if origin is dict:
        return str, True  # key=value
    if origin in (tuple, list):
        return _option_type(arguments[0])[0], True
    return annotation if annotation in SIMPLE else str, False
