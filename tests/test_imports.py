"""Imports go one way, as the architecture says, and importing headwise is quick."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SRC = Path(__file__).parent.parent / "src" / "headwise"
BASE = {"_base", "errors", "settings", "__version__"}
# Two floors: the library, which computes, and the laboratory, which runs studies and shows them. `figures` draws arrays and tables and knows
# nothing above them, so that a result can plot itself.
GROUND = BASE | {"sections", "heads", "tasks", "grammar", "store", "figures", "models"}
METHODS = {"scoring", "evaluation", "training", "lesions", "probing", "behaviour", "similarity", "steering"}
LABORATORY = {"engine", "studies", "report", "app", "harness", "cli"}
MAY_IMPORT: dict[str, set[str]] = {
    "_base": BASE - {"settings"},
    "sections": BASE | {"tasks", "figures"},  # names of metrics; how head maps are drawn
    "heads": BASE | {"store", "sections"},
    "tasks": BASE | {"store"},
    "grammar": BASE | {"tasks"},
    "store": BASE,
    "figures": BASE,
    "models": BASE | {"heads", "tasks", "grammar", "store"},
    "_passes": GROUND,
    "scoring": GROUND | {"_passes"},
    "evaluation": GROUND | {"_passes", "lesions"},
    "training": GROUND | {"_passes", "scoring", "evaluation"},
    "lesions": GROUND | {"_passes", "scoring"},
    "probing": GROUND,
    "behaviour": GROUND | {"_passes", "scoring"},
    "similarity": GROUND | {"engine"},
    "steering": GROUND | {"lesions", "probing"},
    "sharing": GROUND | METHODS | {"report"},
    "engine": BASE | {"store"},
    "harness": GROUND | {"lesions", "steering"},
    "studies": GROUND | METHODS | {"engine", "harness"},
    "report": GROUND | METHODS | {"engine", "harness", "studies"},
    "app": GROUND | METHODS | {"_passes", "studies"},
    "cli": GROUND | METHODS | LABORATORY | {"sharing"},
}
# to go: a model in a recipe (`ModelName`), and the sections of a study's folder on its card
BREACHES = {("similarity", "engine"), ("sharing", "report")}
# Imports of headwise inside functions hide cycles. Import the room instead (`from headwise import models`): its door is lazy, so that this
# loads neither torch nor transformers. The rooms that do not yet, with how many they have; numbers only fall.
INSIDE_FUNCTIONS = {
    "studies": 53,
    "training": 26,
    "evaluation": 10,
    "store": 9,
    "lesions": 8,
    "scoring": 8,
    "tasks": 5,
    "probing": 2,
    "engine": 2,
    "heads": 2,
    "behaviour": 1,
    "models": 1,
}
# registries: what is opened or run by name lies above the room that knows the names
REGISTRIES = {"store/_loading.py", "engine/_steps.py", "tasks/_kinds.py", "tasks/_names.py"}


def rooms_imported(file: Path) -> set[str]:
    """Rooms that a file imports: by statement, or by a name in a string (`import_module("headwise.x")`, tables of places)."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "headwise" else [f"headwise.{a.name}" for a in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and file.relative_to(SRC).as_posix() not in REGISTRIES
        ):
            place = re.fullmatch(r"headwise\.(\w+)(\.\w+)*\.?(:\w+)?", node.value)
            names = [node.value] if place and (SRC / place[1]).is_dir() else []
        found |= {name.split(".")[1] for name in names if name.startswith("headwise.")}
    return found


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_rooms_import_only_what_lies_below(room: str) -> None:
    for file in (SRC / room).rglob("*.py"):
        beyond = rooms_imported(file) - MAY_IMPORT[room] - {room}
        assert not beyond, f"{file.relative_to(SRC)} imports {sorted(beyond)}, which {room} may not"


def test_every_room_has_its_line() -> None:
    rooms = {folder.name for folder in SRC.iterdir() if (folder / "__init__.py").is_file()}
    assert rooms == set(MAY_IMPORT)


def test_the_library_does_not_import_the_laboratory() -> None:
    breaches = set()
    for room in set(MAY_IMPORT) - LABORATORY:
        breaches |= {(room, above) for above in MAY_IMPORT[room] & LABORATORY}
    assert breaches == BREACHES


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_headwise_is_imported_at_the_top_of_a_file(room: str) -> None:
    inside = []
    for file in (SRC / room).rglob("*.py"):
        functions = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, FUNCTIONS)]
        nodes = {node for function in functions for node in ast.walk(function)}
        inside += [f"{file.relative_to(SRC)}:{node.lineno}" for node in nodes if imports_headwise(node)]
    assert len(inside) <= INSIDE_FUNCTIONS.get(room, 0), "\n".join(sorted(inside))


def imports_headwise(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").partition(".")[0] == "headwise"
    return isinstance(node, ast.Import) and any(name.name.startswith("headwise") for name in node.names)


def test_modules_that_are_not_for_users_are_private() -> None:
    """What users import stands in `headwise` and its rooms; the folders of tasks and methods named here are public as well."""
    public = {"errors.py", "settings.py"}
    for room in set(MAY_IMPORT) - {"_base", "_passes", "app", "report", "cli"}:
        folders = {"tasks": {"readers"}, "training": {"methods"}}.get(room, set())
        for file in (SRC / room).rglob("*.py"):
            parts = file.relative_to(SRC / room).parts
            private = any(part.startswith("_") for part in parts)
            assert private or parts[0] in folders, f"{file.relative_to(SRC)}: start its name with _"
    assert {file.name for file in SRC.glob("*.py")} - {"__init__.py", "__main__.py"} == public


def test_importing_headwise_loads_neither_torch_nor_transformers() -> None:
    code = "import sys, headwise, headwise.cli; print([m for m in ('torch', 'transformers', 'pandas') if m in sys.modules])"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


def test_planning_a_study_loads_neither_torch_nor_transformers() -> None:
    """So that a finished study starts again in a second or two."""
    code = """
import sys
from headwise.engine._steps import resolve
from headwise.engine._study import read
from headwise.studies import STUDIES
studies = {kind: resolve(place) for kind, place in STUDIES.items()}
shared = {"methods": ["multi-task", "iat", "prune", "lora"], "tasks": {"names": ["grammar:tense", "grammar:sentiment"], "size": 64}}
for kind, models in (("training", ["demo"]), ("specialization", {"m": "demo"})):
    print(kind, sum(len(cell.key) == 64 for cell in studies[kind].cells(read(studies[kind], {"kind": kind, "models": models, **shared}, "."))))
import headwise.report.html
print([name for name in ("torch", "transformers", "accelerate", "matplotlib", "scipy.stats") if name in sys.modules])
"""
    lines = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert lines == ["training 7", "specialization 19", "[]"]


def test_tasks_are_read_in_one_place() -> None:
    """Names of tasks become tasks in `find_tasks`: through a `TaskSource`, or through what a model remembers."""
    users = {"tasks/_source.py", "models/_memory.py"}
    for file in SRC.rglob("*.py"):
        name = file.relative_to(SRC).as_posix()
        for node in ast.walk(ast.parse(file.read_text())):
            called = isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", ""))
            if called == "find_tasks":
                assert name in users, f"{name}:{node.lineno} reads tasks by itself, not through a TaskSource"
