"""Verbs made from settings: an option for every field, with the help, default and bounds that the operation declares."""

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from pydantic.fields import FieldInfo

from headwise.cli.common import Resumable, Verb, trust
from headwise.errors import HeadwiseError
from headwise.settings import Opening, Settings, checked, marks

SIMPLE = (str, int, float, bool, Path)


def verb(app: typer.Typer, name: str, function: Callable[..., None]) -> None:
    """Adds `function` to the command line; what it leaves in an `out` of its own can be resumed.

    Parameters annotated with a `Settings` class become one option per field; the others are typer's own, as annotated, and stand
    for the field of the same name, if there is one.
    """
    app.command(name, cls=Resumable if "out" in inspect.signature(function).parameters else Verb)(
        with_options(function)
    )


def with_options(function: Callable[..., None]) -> Callable[..., None]:
    """`function` with its settings parameters spread into options."""
    hints = get_type_hints(function, include_extras=True)
    given = inspect.signature(function).parameters
    tables = {
        key: hints[key]
        for key in given
        if inspect.isclass(hints.get(key)) and issubclass(hints[key], Settings)
    }
    parameters = [
        parameter.replace(annotation=hints[key], kind=inspect.Parameter.KEYWORD_ONLY)
        for key, parameter in given.items()
        if key not in tables
    ]
    own = {parameter.name for parameter in parameters}
    owner: dict[str, tuple[str, str]] = {}  # the option -> its table and field
    for key, table in tables.items():
        for field in options_of(table):
            if _argument(field, table) not in own:  # else the verb has an option of its own in its place
                owner[_argument(field, table)] = key, field
    for argument, (key, field) in owner.items():
        parameters.append(_parameter(argument, tables[key].model_fields[field]))

    @wraps(function)
    def call(**values: Any) -> None:
        spread: dict[str, dict[str, Any]] = {key: {} for key in tables}
        for argument, (key, field) in owner.items():
            value = values.pop(argument)
            if value is not None:  # None: not given, so the settings' own default holds
                spread[key][field] = _read(value, tables[key].model_fields[field].annotation)
        function(**values, **{key: _checked(table, spread[key]) for key, table in tables.items()})

    # an option that must be given comes first, as Python's signatures want it
    parameters.sort(key=lambda parameter: parameter.default is not inspect.Parameter.empty)
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def options_of(table: type[Settings]) -> list[str]:
    """The fields of a settings class that the command line can give."""
    given = [name for name, field in table.model_fields.items() if not marks(field)["live"]]
    return sorted(given, key=lambda name: name in Opening.model_fields)  # how a model is opened comes last


def help_of(table: type[Settings], field: str) -> str:
    """The help of a field, for a verb's own option in its place."""
    return table.model_fields[field].description or ""


def flag(field: str, table: type[Settings] | None = None) -> str:
    """The option of a field."""
    known = table.model_fields if table is not None else {}
    return (marks(known[field])["flag"] if field in known else "") or "--" + field.replace("_", "-")


def _argument(field: str, table: type[Settings]) -> str:
    return flag(field, table)[2:].replace("-", "_")


def pair(text: str) -> tuple[str, Any]:
    """One `key=value`; values are read as TOML where they can be, else as text."""
    from headwise.engine import set_value

    name, equals, value = text.partition("=")
    if not equals:
        raise HeadwiseError(f"--set {text}: write it as key=value, e.g. --set rank=4")
    read = set_value(value)
    return name.strip().replace("-", "_"), tuple(read) if isinstance(read, list) else read


def _read(value: Any, annotation: Any) -> Any:
    if get_origin(annotation) is dict:
        return dict(map(pair, value))
    return tuple(value) if isinstance(value, list) else value


def _checked(table: type[Settings], values: dict[str, Any]) -> Any:
    try:
        return checked(table, values)
    except HeadwiseError as error:  # names as they are typed here
        lines = [line.partition(":") for line in str(error).splitlines()]
        known = [
            f"{flag(name, table)}:{rest}" if name in table.model_fields else name + colon + rest
            for name, colon, rest in lines
        ]
        raise HeadwiseError("\n".join(known)) from None


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    noted = marks(field)
    kind, several = _plain(field.annotation)
    own = "--" + name.replace("_", "-")
    flags = [one for one in (noted["short"], own, noted["also"]) if one]
    required = field.is_required()
    default = None if required else field.get_default(call_default_factory=True)
    if (
        kind is bool and default is not False
    ):  # what is on, or on by what a model remembers, can be turned off
        flags = [f"{own}/--no-{own[2:]}"]
    help_ = (field.description or "") + _shown(default, required, several)
    info = typer.Option(
        *flags, help=help_, show_default=False, callback=trust if name == "trust_remote_code" else None
    )
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
    if default is None or default in ((), {}, ""):
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
        return (plain.pop() if len(plain) == 1 else float if plain == {int, float} else str), any(
            many for _, many in kinds
        )
    if origin is Literal:
        return type(get_args(annotation)[0]), False
    if origin is dict:
        return str, True  # key=value
    if origin in (tuple, list):
        return _plain(get_args(annotation)[0])[0], True
    return (annotation if annotation in SIMPLE else str), False
