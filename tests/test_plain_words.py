"""Plain English: phrases that read as foreign stay out of the source, the docs and the README."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = {"src": {".py", ".html", ".js"}, "docs": {".md", ".py"}, "recipes": {".toml"}}
DATA = "src/headwise/grammar"  # words of generated sentences
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    path
    for folder, endings in FOLDERS.items()
    for path in (ROOT / folder).rglob("*")
    if path.suffix in endings and DATA not in path.as_posix()
)
# each with what to write instead
PHRASES = {
    r"so many (?!that\b)": "this many, at most",
    r"go(?:es)? on (?:with|from|where|in|without|moving|learning|doing|bit)\b": "resume, continue, keep",
    r"to go on\b": "to resume",
    r"goes on\b": "resumes, continues",
    r"mend(?:s|ed|ing)?\b": "fix",
    r"for want of": "because ... is missing",
    r"anew": "again",
    r"really": "(leave it out)",
    r"one's own": "your own, custom",
    r"wherefrom": "where ... comes from",
    r"tastes for": "preferences for",
    r"is wanted": "is required",
    r"without a word": "silently",
    r"(?:cannot|could not) be told": "cannot be determined",
    r"(?:can|was|is|are|been|was) told\b": "(say what happens)",
    r"brings? along": "contains",
    r"were asked of": "were requested",
    r"gone wrong": "failed",
    r"(?:is|are) to be (?!\w+ed as\b)": "must be, will be",
    r"(?<!there )(?:is|are) no (?:\w+ )?(?:preset|task|option|head|sites?|projection|list|text|tokens|multiple|null)\b": "is not a",
    r"Share of the steps": "Fraction of training",
}
BANNED = re.compile(r"\b(?:" + "|".join(f"(?:{phrase})" for phrase in PHRASES) + ")")


def test_the_pages_are_in_plain_english() -> None:
    texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
    found = [
        f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, hit.start()) + 1}: {hit[0]!r}"
        for page, text in texts.items()
        for hit in BANNED.finditer(text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "sentence",
    [
        "At most so many sentences.",
        "the same command goes on from there",
        "mend or remove the row",
        "x is no preset",
        "drawn anew",
    ],
)
def test_the_phrases_are_found(sentence: str) -> None:
    assert BANNED.search(sentence)
