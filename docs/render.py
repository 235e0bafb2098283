"""Runs the notebooks and writes them with their outputs: `python docs/render.py [NAME ...]`, or `make notebooks`.

A notebook is a script docs/notebooks/NAME.py in the percent format: `# %%` begins a cell of code, `# %% [markdown]` one of text. Each is
run from top to bottom in one process, in an empty folder. Beside it appear NAME.ipynb, for Jupyter and hosted notebooks, and NAME.md with
its pictures, for the docs. A line `# %pip ...` is a magic: it stands in the notebook and is not run here. The value of a cell's last line
is shown, as Jupyter does, and so are open figures.
"""

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "notebooks"


def cells(script: str) -> Iterator[tuple[str, str]]:
    """The kind (code or markdown) and the text of each cell."""
    for piece in script.split("\n# %%")[1:]:
        head, _, body = piece.partition("\n")
        if "[markdown]" in head:
            yield "markdown", "\n".join(line.removeprefix("#").removeprefix(" ") for line in body.strip().splitlines())
        else:
            yield "code", body.strip()


def run(code: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Runs one cell in `names`; gives its outputs in Jupyter's format, version 4: what was printed, the last value, figures."""
    import matplotlib.pyplot as plt

    tree = ast.parse(code)
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None  # type: ignore[attr-defined]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), names)
        value = None if last is None else eval(compile(last, "<cell>", "eval"), names)  # the notebook's own code
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue()})
    if value is not None and not isinstance(value, plt.Figure):
        outputs.append(
            {"output_type": "execute_result", "data": {"text/plain": repr(value)}, "metadata": {}, "execution_count": None}
        )
    figures = [plt.figure(number) for number in plt.get_fignums()]
    if isinstance(value, plt.Figure) and value not in figures:  # made without pyplot
        figures.append(value)
    outputs += [picture(figure) for figure in figures]
    plt.close("all")
    return outputs


def picture(figure: Any) -> dict[str, Any]:
    """A figure as an output of a cell."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=80, bbox_inches="tight", metadata={"Software": None})
    return {"output_type": "display_data", "data": {"image/png": base64.b64encode(data.getvalue()).decode()}, "metadata": {}}


def magic(code: str) -> str:
    return "\n".join(line.removeprefix("# ") if line.startswith("# %") else line for line in code.splitlines())


def execute(path: Path) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Runs a notebook in an empty folder; its cells with their outputs."""
    os.environ.setdefault("MPLBACKEND", "agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as empty:
        os.chdir(empty)
        try:
            found = cells("\n" + path.read_text(encoding="utf-8"))
            return [(kind, text, run(text, names) if kind == "code" else []) for kind, text in found]
        finally:
            os.chdir(here)


def render(path: Path) -> None:
    """Runs a notebook and writes NAME.ipynb, NAME.md and its pictures beside it."""
    start = time.monotonic()
    done = execute(path)
    for old in path.parent.glob(f"{path.stem}-*.png"):
        old.unlink()
    page, notebook, pictures = [], [], 0
    for number, (kind, text, outputs) in enumerate(done):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"{path.stem}-{number}"[-64:], "metadata": {}, "source": text}
        if kind == "markdown":
            page.append(text)
        else:
            cell |= {"source": magic(text), "outputs": outputs, "execution_count": None}
            page.append(f"```python\n{magic(text)}\n```" if "# %pip" not in text else f"    {magic(text)}")
        notebook.append(cell)
        for output in outputs:
            data = output.get("data", {})
            if "image/png" in data:
                pictures += 1
                name = f"{path.stem}-{pictures}.png"
                path.with_name(name).write_bytes(base64.b64decode(data["image/png"]))
                page.append(f"![Figure {pictures}]({name})")
            else:
                page.append(f"```text\n{(output.get('text') or data['text/plain']).rstrip()}\n```")
    note = f"*Made from [{path.name}]({path.name}) by `make notebooks`; open [{path.stem}.ipynb]({path.stem}.ipynb) to run it.*"
    path.with_suffix(".md").write_text("\n\n".join([page[0], note, *page[1:]]) + "\n", encoding="utf-8")
    kernel = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    whole = {"cells": notebook, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    path.with_suffix(".ipynb").write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{path.stem}: {time.monotonic() - start:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    for script in sorted(FOLDER.glob("*.py")):
        if not sys.argv[1:] or script.stem in sys.argv[1:]:
            render(script)
