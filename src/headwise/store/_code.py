"""Whose code something runs, and which: that of libraries by its name, since their versions are noted; a
user's own by what is written in it."""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

Contents = Callable[[Any], Any]  # what a value holds, as JSON

LIBRARIES = sys.stdlib_module_names | {
    "headwise", "torch", "transformers", "peft", "accelerate", "numpy", "tokenizers", "huggingface_hub",
    "safetensors", "kernels", "bitsandbytes", "torchao", "typing_extensions",
}  # fmt: skip
INSTALLED = {"site-packages", "dist-packages"}
WITHOUT_CODE = ("__module__", "__doc__", "__dict__", "__weakref__", "__annotations__",
                "__firstlineno__", "__static_attributes__", "__annotate__", "__annotate_func__",
                "__annotations_cache__", "__parameters__", "__orig_bases__",
                "__abstractmethods__", "_abc_impl", "__slots__")  # fmt: skip


def is_foreign(value: Any) -> bool:
    """Whether calling `value`, or an object of this class, runs code of others than the libraries that models
    are made of."""
    return any(_home(code) not in LIBRARIES for code in _reached(value, set()))


def is_own(value: Any) -> bool:
    """Whether a function or class was written by the user: it is neither in a library nor in any package that
    is installed."""
    home = _module(value)
    if home.partition(".")[0] in LIBRARIES:
        return False
    file = None if home == "__main__" else getattr(sys.modules.get(home), "__file__", None)
    return not (file and INSTALLED & set(Path(file).parts))


def name_of(value: Any) -> str:
    """A function's or class's module and name within it; of a wrapped one that of the user's own code, if it
    comes to any."""
    reached = list(_reached(value, set()))
    named = next((code for code in reached if _home(code) not in LIBRARIES), reached[0])
    if isinstance(named, FunctionType):  # decorators copy names, but not these
        return f"{named.__globals__.get('__name__', '')}.{named.__code__.co_qualname}"
    return f"{getattr(named, '__module__', None) or 'builtins'}.{named.__qualname__}"


def function_code(value: Any, contents: Contents) -> Any:
    """What a function does, as JSON: of a library's its name, of any other also its instructions and the
    values these read."""
    if isinstance(value, partial):
        return {"partial": [contents(value.func), contents(value.args), contents(value.keywords)]}
    if isinstance(value, MethodType):
        return {"method": [contents(value.__func__), contents(value.__self__)]}
    if not isinstance(value, FunctionType) or not is_own(value):
        inside = [_cell(cell) for cell in getattr(value, "__closure__", None) or ()]
        # of a library's closure what it was made with; the rest are its own notes, which calls may change
        return {
            "function": _versioned(value),
            "with": [contents(held) for held in inside if _plain(held) or is_foreign(held)],
        }
    reads = sorted(set(_names(value.__code__)) & value.__globals__.keys())
    return {
        "own": value.__qualname__,
        "code": _instructions(value.__code__, contents),
        "defaults": [contents(value.__defaults__), contents(value.__kwdefaults__)],
        "closure": [contents(_cell(cell)) for cell in value.__closure__ or ()],
        "globals": [[name, contents(value.__globals__[name])] for name in reads],
    }


def class_code(kind: type, contents: Contents) -> Any:
    """What a class is, as JSON: of a library's its name and what was put into it since, of any other all that
    stands in it."""
    if not is_own(kind):
        bases = [base for base in kind.__mro__ if base.__name__ != "Module" and not is_own(base)]
        changed = []
        for base in bases:
            changed += [[base.__qualname__, name, contents(code)] for name, code in _changed(base)]
        # parametrized modules have classes of torch's making
        below = [contents(base) for base in kind.__bases__ if any(map(is_own, base.__mro__))]
        description: dict[str, Any] = {"class": _versioned(kind)}
        if changed:
            description["changed"] = changed
        if below:
            description["below"] = below
        return description
    body = {name: value for name, value in vars(kind).items() if name not in WITHOUT_CODE}
    return {
        "own class": kind.__qualname__,
        "bases": [contents(base) for base in kind.__bases__],
        "body": [[name, contents(_bare(body[name]))] for name in sorted(body)],
    }


def digest(value: Any) -> str:
    """A short hash of JSON values."""
    return hashlib.blake2b(json.dumps(value, separators=(",", ":")).encode(), digest_size=12).hexdigest()


def _module(value: Any) -> str:
    """The module that a function or class was written in; where decorators copy names, its globals still
    tell."""
    if isinstance(value, FunctionType):
        return str(value.__globals__.get("__name__", ""))
    kind = value if isinstance(value, type | BuiltinFunctionType) else type(value)
    return str(getattr(kind, "__module__", None) or "builtins")


def _home(value: Any) -> str:
    return _module(value).partition(".")[0]


def _versioned(value: Any) -> str:
    """The name of a function or class; where no version is noted with the result, with that of its
    package."""
    home = _home(value)
    version = "" if home in LIBRARIES else getattr(sys.modules.get(home), "__version__", "")
    return f"{name_of(value)} {version}".rstrip()


def _reached(value: Any, seen: set[int]) -> Iterator[Any]:
    """The functions and classes that a call comes to: behind partials, bound methods, decorators and in
    closures."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, partial):
        for inner in (value.func, *value.args, *value.keywords.values()):
            if callable(inner):
                yield from _reached(inner, seen)
    elif isinstance(value, MethodType):
        yield from _reached(value.__func__, seen)
    elif isinstance(value, FunctionType):
        yield value
        for inner in (getattr(value, "__wrapped__", None), *map(_cell, value.__closure__ or ())):
            if isinstance(inner, FunctionType | MethodType | partial):
                yield from _reached(inner, seen)
    elif isinstance(value, type):
        yield from (base for base in value.__mro__ if base is not object)
    elif isinstance(value, BuiltinFunctionType):
        yield value
    else:
        yield from _reached(type(value), seen)


def _changed(base: type) -> list[tuple[str, Any]]:
    """What code of the user's stands in a library's class."""
    members = [(name, _bare(value)) for name, value in vars(base).items()]
    return sorted(
        (name, value) for name, value in members if isinstance(value, FunctionType) and is_own(value)
    )


def _bare(value: Any) -> Any:
    """The function in a property, a class method or a static method."""
    if isinstance(value, property):
        return value.fget
    if isinstance(value, classmethod | staticmethod):
        return value.__func__
    return value


def _cell(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was put there yet
        return None


def _plain(value: Any) -> bool:
    return isinstance(value, int | float | str | bytes | tuple) or callable(getattr(value, "detach", None))


def _names(code: CodeType) -> Iterator[str]:
    """Names that instructions read: globals, and attributes, which may be called the same."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _instructions(code: CodeType, contents: Contents) -> Any:
    """Instructions without where they stand in a file."""
    constants = [
        _instructions(constant, contents) if isinstance(constant, CodeType) else contents(constant)
        for constant in code.co_consts
    ]
    return digest(
        [code.co_code.hex(), code.co_names, code.co_argcount, code.co_exceptiontable.hex(), constants]
    )


def is_code(value: Any) -> bool:
    """Whether `value` is a function, in whatever wrapping, or a module of Python."""
    return isinstance(value, FunctionType | BuiltinFunctionType | MethodType | partial | ModuleType)
