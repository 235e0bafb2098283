"""The notebooks in docs/notebooks run from top to bottom, and what is rendered of them is of today's scripts."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted((ROOT / "docs" / "notebooks").glob("*.py"))
QUICK = "language-model-heads"  # seconds; the others train or probe the embedded model
_spec = importlib.util.spec_from_file_location("render", ROOT / "docs" / "render.py")
assert _spec is not None
assert _spec.loader is not None
render = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(render)


def text_of(outputs: list[dict[str, Any]]) -> str:
    return "".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs)


@pytest.mark.parametrize(
    "script",
    [pytest.param(s, marks=() if s.stem == QUICK else pytest.mark.slow) for s in SCRIPTS],
    ids=lambda s: s.stem,
)
def test_a_notebook_runs_and_shows_something(script: Path) -> None:
    done = render.execute(script)
    outputs = [output for _, _, found in done for output in found]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    if (
        script.stem == QUICK
    ):  # the claim of the notebook: two heads carry copying, two others of their layer do not
        said = "\n".join(text_of(found) for _, _, found in done)
        intact = float(re.search(r"copied: ([\d.]+) %", said)[1])  # type: ignore[index]
        without, others = (
            float(number) for number in re.findall(r"without 2 heads: .*?: ([\d.]+) %", said)[:2]
        )
        assert intact > 90
        assert without < 40
        assert others > 80


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: s.stem)
def test_the_rendered_notebook_is_that_of_the_script(script: Path) -> None:
    found = list(render.cells("\n" + script.read_text(encoding="utf-8")))
    notebook = json.loads(script.with_suffix(".ipynb").read_text(encoding="utf-8"))
    assert [(cell["cell_type"], cell["source"]) for cell in notebook["cells"]] == [
        (kind, render.magic(text) if kind == "code" else text) for kind, text in found
    ]
    codes = [text for kind, text in found if kind == "code"]
    assert codes[0].startswith("# %pip install")
    page = script.with_suffix(".md").read_text(encoding="utf-8")
    assert all(render.magic(text) in page for text in codes)
    for name in re.findall(r"\]\(([\w-]+\.png)\)", page):
        assert script.with_name(name).read_bytes().startswith(b"\x89PNG")


def test_a_cell_shows_what_it_prints_its_last_value_and_its_figures() -> None:
    names: dict[str, Any] = {}
    assert text_of(render.run("print('a')\n1 + 1", names)) == "a\n2"
    assert render.run("x = 3", names) == []
    shown = render.run("import matplotlib.pyplot as plt\nplt.figure()", names)
    assert [list(output["data"]) for output in shown] == [["image/png"]]
