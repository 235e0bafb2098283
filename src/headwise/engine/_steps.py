"""What a study is made of: steps (functions with a name and a version), cells (a step with its settings), and
the study itself."""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, get_type_hints

from headwise.errors import HeadwiseError
from headwise.store import fingerprint, noting_files

Task = dict[str, Any]  # one line of a run's plan: a cell as JSON, which is all that travels to a worker


@dataclass(frozen=True)
class Step:
    """A named, versioned function `(out, *, setting, ..., result, ...)`; made by the decorator `step`."""

    function: Callable[..., None]
    name: str
    version: int

    def __call__(self, out: Any, **arguments: Any) -> None:
        self.function(out, **arguments)

    @cached_property
    def target(self) -> str:
        """Where a worker finds this step: "module:name"."""
        module, name = self.function.__module__, self.function.__qualname__
        if "<locals>" in name or resolve(f"{module}:{name}") is not self:
            raise HeadwiseError(
                f"step {self.name!r} must be a top-level name of its module, where workers can find it, not "
                f"{name}"
            )
        return f"{module}:{name}"

    @cached_property
    def kinds(self) -> dict[str, Any]:
        """By argument, the type that it is annotated with."""
        hints = get_type_hints(self.function, include_extras=True)
        return {name: hints.get(name, Any) for name in self._parameters}

    @cached_property
    def _parameters(self) -> dict[str, Parameter]:
        """The parameters of the function after `out`."""
        return dict(list(signature(self.function).parameters.items())[1:])

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Raises a HeadwiseError where the function would not take these arguments."""
        takes = f"step {self.name!r} takes {', '.join(self._parameters) or 'nothing'}"
        for name in arguments:
            if name not in self._parameters:
                raise HeadwiseError(f"{takes}; it has no {name!r}")
        for name, parameter in self._parameters.items():
            if parameter.default is Parameter.empty and name not in arguments:
                raise HeadwiseError(f"{takes}; {name!r} is missing")


def step(version: int = 1, name: str | None = None) -> Callable[[Callable[..., None]], Step]:
    """Makes a top-level function a step of studies.

    Its first parameter is `out`, where it saves (see `Out`); the others are keywords: settings, annotated
    with their types, and results of other cells, given as `Result`. It must depend on nothing else: raise
    `version` when its meaning changes, and old results will be computed again.
    """

    def make(function: Callable[..., None]) -> Step:
        return Step(function, name or function.__name__.replace("_", "-"), version)

    return make


@dataclass(frozen=True)
class Cell:
    """One piece of work: a call of a step.

    Args:
        step: what to do.
        arguments: its keywords: settings (JSON values, dataclasses, pydantic models; paths count by the
            content of the file), and cells, or lists of cells, whose results the step receives.
        coords: where this cell stands in the study's grid, e.g. {"model": "bert", "seed": 0}; columns of
            every table read back.
        seed: of the global random generators when the step starts; also `out.seed`.
        megabytes: expected size of the result, for the check of the disk.
    """

    step: Step
    arguments: Mapping[str, Any] = field(default_factory=dict)
    coords: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    megabytes: float = 0.1

    def __post_init__(self) -> None:
        self.step.check(self.arguments)

    @cached_property
    def inputs(self) -> "dict[str, Cell | Sequence[Cell]]":
        """The arguments that are cells, or lists of cells."""
        return {name: value for name, value in self.arguments.items() if _is_input(value)}

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The other arguments."""
        return {name: value for name, value in self.arguments.items() if not _is_input(value)}

    @cached_property
    def _key_and_files(self) -> tuple[str, dict[str, str]]:
        inputs = _over_inputs(self, "key")
        with noting_files() as files:
            return fingerprint(self.step.name, self.step.version, self.settings, inputs, self.seed), files

    @property
    def key(self) -> str:
        """Hash of the step's name and version, the settings (files and weights by content), the inputs' keys,
        and the seed."""
        return self._key_and_files[0]

    @property
    def files(self) -> dict[str, str]:
        """Every file that the settings name, with the hash it had when the key was made of it."""
        return self._key_and_files[1]

    @cached_property
    def folder(self) -> str:
        """Name of the result's folder."""
        return f"{self.step.name}-{self.key[:20]}"


def _over_inputs(cell: Cell, attribute: str) -> dict[str, Any]:
    """By input of a cell, an attribute of the cell that it is, or of each cell in the list that it is."""
    values: dict[str, Any] = {}
    for name, cells in cell.inputs.items():
        if isinstance(cells, Cell):
            values[name] = getattr(cells, attribute)
        else:
            values[name] = [getattr(listed, attribute) for listed in cells]
    return values


def _is_input(value: Any) -> bool:
    """Whether an argument is a cell or a list of cells."""
    several = isinstance(value, list | tuple) and bool(value)
    return isinstance(value, Cell) or (several and all(isinstance(element, Cell) for element in value))


@dataclass(frozen=True)
class Study:
    """A kind of study: its recipe (a pydantic model) and the cells a recipe asks for.

    Args:
        recipe: the pydantic model that reads the recipe; derive it from `engine.Recipe`.
        cells: gives the cells of a recipe, in the order they should be computed. Inputs of a cell need not be
            given themselves.
        check: further checks of a recipe before any work; gives one message for each thing that is wrong.
        section: gives what a report shows of a run (a `figures.blocks.Section`): sentences, figures, tables.
    """

    recipe: type[Any]
    cells: Callable[[Any], Iterable[Cell]]
    check: Callable[[Any], Iterable[str]] | None = None
    section: Callable[[Any], Any] | None = None


def tasks(cells: Iterable[Cell]) -> Iterator[tuple[Task, float]]:
    """Every cell, its inputs before it, as a line of the plan, with its expected megabytes; a cell given
    twice comes once.

    A line's "after" holds the numbers of the lines it needs.
    """
    numbers: dict[str, int] = {}
    count = 0

    def walk(cell: Cell) -> Iterator[tuple[Task, float]]:
        nonlocal count
        for name in cell.coords:
            if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
                raise HeadwiseError(
                    f"step {cell.step.name!r} has a coordinate {name!r}: letters, digits and _ only"
                )
        needed_cells: list[Cell] = []
        for cells in cell.inputs.values():
            needed_cells += [cells] if isinstance(cells, Cell) else cells
        for needed in needed_cells:
            if needed.folder not in numbers:
                yield from walk(needed)
        address = f"{cell.folder} {json.dumps(dict(cell.coords), sort_keys=True)}"
        if address in numbers:
            return
        numbers[address] = count
        numbers.setdefault(cell.folder, count)
        count += 1
        yield (
            {
                "folder": cell.folder,
                "step": cell.step.name,
                "version": cell.step.version,
                "key": cell.key,
                "target": cell.step.target,
                "settings": plain(cell.settings),
                "seed": cell.seed,
                "coords": dict(cell.coords),
                "inputs": _over_inputs(cell, "folder"),
                "files": cell.files,
                "after": sorted({numbers[needed.folder] for needed in needed_cells}),
            },
            cell.megabytes,
        )

    for cell in cells:
        yield from walk(cell)


def label(task: Task) -> str:
    """A cell as people read it: train model=bert seed=0."""
    return " ".join([task["step"], *(f"{name}={value}" for name, value in task["coords"].items())])


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON values."""
    values: dict[str, Any] = json.loads(json.dumps(settings, default=_plain))
    return values


def _plain(value: Any) -> Any:
    kind: Any = type(value)
    return str(value) if isinstance(value, Path) else adapter(kind).dump_python(value, mode="json")


def typed(target: Step, settings: Mapping[str, Any]) -> dict[str, Any]:
    """JSON settings as the types that the step's parameters are annotated with."""
    kinds = target.kinds
    return {
        name: value if value is None or kinds[name] is Any else adapter(kinds[name]).validate_python(value)
        for name, value in settings.items()
    }


def resolve(target: str) -> Any:
    """The object that "module:name" names."""
    module, _, name = target.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise HeadwiseError(
            f"cannot find {target!r}: {error}; it must be importable here, as module:name (for a file in "
            "this folder: export PYTHONPATH=.)"
        ) from error


@cache
def adapter(kind: Any) -> Any:
    """pydantic's reader and writer of a type."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def study_of(kind: str) -> "Study | None":
    """The study of a kind; of a user's own only where its module is imported: a folder names no code to
    run."""
    studies = resolve("headwise.studies:STUDIES")
    if kind not in studies and kind.partition(":")[0] not in sys.modules:
        return None
    study = resolve(studies.get(kind, kind))
    return study if isinstance(study, Study) else None
