"""What a study is made of: steps (functions with a name and a version), cells (a step with its settings), and the study itself."""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

from headwise.errors import HeadwiseError
from headwise.store import fingerprint, noting_files

Task = dict[str, Any]  # one line of a run's plan: a cell as JSON, which is all that travels to a worker


@dataclass(frozen=True)
class Step:
    """A named, versioned function `(config, inputs, out)`; made by the decorator `step`."""

    function: Callable[..., None]
    name: str
    version: int

    def __call__(self, config: Any, inputs: Mapping[str, Any], out: Any) -> None:
        self.function(config, inputs, out)

    @cached_property
    def target(self) -> str:
        """Where a worker finds this step: "module:name"."""
        module, name = self.function.__module__, self.function.__qualname__
        if "<locals>" in name or resolve(f"{module}:{name}") is not self:
            raise HeadwiseError(
                f"step {self.name!r} must be a top-level name of its module, where workers can find it, not {name}"
            )
        return f"{module}:{name}"


def step(version: int = 1, name: str | None = None) -> Callable[[Callable[..., None]], Step]:
    """Makes a top-level function a step of studies.

    The function takes `config` (annotated with a dataclass or pydantic model), `inputs` (name to the result, or list of results, of
    other cells) and `out` (where it saves; see `Out`). It must depend on nothing else: raise `version` when its meaning changes,
    and old results will be computed again.
    """

    def make(function: Callable[..., None]) -> Step:
        return Step(function, name or function.__name__.replace("_", "-"), version)

    return make


@dataclass(frozen=True)
class Cell:
    """One piece of work: a step with its settings.

    Args:
        step: what to do.
        config: its settings: dataclass, pydantic model or dict. Paths in it count by the content of the file.
        coords: where this cell stands in the study's grid, e.g. {"model": "bert", "seed": 0}; columns of every table read back.
        inputs: name to a cell, or list of cells, whose results the step receives.
        seed: of the global random generators when the step starts; also `out.seed`.
        megabytes: expected size of the result, for the check of the disk.
    """

    step: Step
    config: Any = None
    coords: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    inputs: Mapping[str, "Cell | Sequence[Cell]"] = field(default_factory=dict)
    seed: int = 0
    megabytes: float = 0.1

    @cached_property
    def _known(self) -> tuple[str, dict[str, str]]:
        inputs = {
            name: given.key if isinstance(given, Cell) else [c.key for c in given]
            for name, given in self.inputs.items()
        }
        with noting_files() as files:
            return fingerprint(self.step.name, self.step.version, self.config, inputs, self.seed), files

    @property
    def key(self) -> str:
        """Hash of the step's name and version, the settings (files and weights by content), the inputs' keys, and the seed."""
        return self._known[0]

    @property
    def files(self) -> dict[str, str]:
        """Every file that the settings name, with the hash it had when the key was made of it."""
        return self._known[1]

    @cached_property
    def folder(self) -> str:
        """Name of the result's folder."""
        return f"{self.step.name}-{self.key[:20]}"


@dataclass(frozen=True)
class Study:
    """A kind of study: its recipe (a pydantic model) and the cells a recipe asks for.

    Args:
        recipe: the pydantic model that reads the recipe; derive it from `engine.Recipe`.
        cells: gives the cells of a recipe, in the order they should be computed. Inputs of a cell need not be given themselves.
        check: further checks of a recipe before any work; gives one message for each thing that is wrong.
        section: gives what a report shows of a run (a `figures.blocks.Section`): sentences, figures, tables.
    """

    recipe: type[Any]
    cells: Callable[[Any], Iterable[Cell]]
    check: Callable[[Any], Iterable[str]] | None = None
    section: Callable[[Any], Any] | None = None


def tasks(cells: Iterable[Cell]) -> Iterator[tuple[Task, float]]:
    """Every cell, its inputs before it, as a line of the plan, with its expected megabytes; a cell given twice comes once.

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
        groups = {
            name: [given] if isinstance(given, Cell) else list(given) for name, given in cell.inputs.items()
        }
        for needed in (needed for group in groups.values() for needed in group):
            if needed.folder not in numbers:
                yield from walk(needed)
        place = f"{cell.folder} {json.dumps(dict(cell.coords), sort_keys=True)}"
        if place in numbers:
            return
        numbers[place] = count
        numbers.setdefault(cell.folder, count)
        count += 1
        yield (
            {
                "folder": cell.folder,
                "step": cell.step.name,
                "version": cell.step.version,
                "key": cell.key,
                "target": cell.step.target,
                "config": plain(cell.config),
                "seed": cell.seed,
                "coords": dict(cell.coords),
                "inputs": {
                    name: given.folder if isinstance(given, Cell) else [c.folder for c in given]
                    for name, given in cell.inputs.items()
                },
                "files": cell.files,
                "after": sorted({numbers[needed.folder] for group in groups.values() for needed in group}),
            },
            cell.megabytes,
        )

    for cell in cells:
        yield from walk(cell)


def label(task: Task) -> str:
    """A cell as people read it: train model=bert seed=0."""
    return " ".join([task["step"], *(f"{name}={value}" for name, value in task["coords"].items())])


def plain(config: Any) -> Any:
    """Settings as JSON values."""
    if config is None or isinstance(config, dict):
        return json.loads(
            json.dumps(config, default=lambda value: str(value) if isinstance(value, Path) else plain(value))
        )
    kind: Any = type(config)
    return adapter(kind).dump_python(config, mode="json")


def typed(target: Step, config: Any) -> Any:
    """JSON settings as the type that the step's first parameter is annotated with."""
    kind = _config_type(target)
    return config if kind in (None, Any, dict) else adapter(kind).validate_python(config)


def resolve(target: str) -> Any:
    """The object that "module:name" names."""
    module, _, name = target.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise HeadwiseError(
            f"cannot find {target!r}: {error}; it must be importable here, as module:name (for a file in this folder: export PYTHONPATH=.)"
        ) from error


@cache
def adapter(kind: Any) -> Any:
    """pydantic's reader and writer of a type."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


@cache
def _config_type(target: Step) -> Any:
    hints = get_type_hints(target.function)
    first = target.function.__code__.co_varnames[0]
    return hints.get(first)


def study_of(kind: str) -> "Study | None":
    """The study of a kind; of a user's own only where its module is imported: a folder names no code to run."""
    studies = resolve("headwise.studies:STUDIES")
    if kind not in studies and kind.partition(":")[0] not in sys.modules:
        return None
    study = resolve(studies.get(kind, kind))
    return study if isinstance(study, Study) else None
