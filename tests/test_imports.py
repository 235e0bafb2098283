"""Imports go one way, as the architecture says, and importing headwise is quick."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "headwise"
GROUND = {"heads", "tasks", "runs", "figures", "decoders"}
SHARED = {
    "adapters",
    "command",
    "errors",
    "inference",
    "manifest",
    "memory",
    "lazy",
    "loading",
    "names",
    "opener",
    "parsing",
    "places",
    "writing",
    "settings",
    "sources",
}
MAY_IMPORT: dict[str, set[str]] = {
    "heads": set(),
    "tasks": set(),
    "runs": set(),
    "figures": set(),
    "decoders": {"tasks"},
    "passes": GROUND,
    "scoring": GROUND | {"passes"},
    "training": GROUND | {"scoring"},
    "lesions": GROUND | {"passes", "scoring"},
    "probing": GROUND,
    "similarity": GROUND,
    "studies": GROUND | {"scoring", "training", "lesions", "probing", "similarity"},
    "report": GROUND | {"scoring", "training", "lesions", "probing", "similarity", "studies"},
    "app": GROUND | {"scoring", "training", "lesions", "probing", "similarity", "studies"},
}


def rooms_imported(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "headwise" else [f"headwise.{a.name}" for a in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("headwise.")}
    return found


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_rooms_import_only_what_lies_below(room: str) -> None:
    for file in (SRC / room).rglob("*.py"):
        beyond = rooms_imported(file) - MAY_IMPORT[room] - SHARED - {room, "__version__"}
        assert not beyond, f"{file.relative_to(SRC)} imports {sorted(beyond)}, which {room} may not"


def test_importing_headwise_loads_neither_torch_nor_transformers() -> None:
    code = "import sys, headwise, headwise.cli; print([m for m in ('torch', 'transformers', 'pandas') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
