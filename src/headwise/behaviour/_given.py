"""What a user gives roles to read: texts, and tables of pairs, needles and documents."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError
from headwise.tasks import read_table, read_texts

TABLES = {
    "pairs": ("input", "answer"),
    "needles": ("context", "needle", "question"),
    "documents": ("documents", "query", "gold"),
}


def given_rows(given: Any, columns: Sequence[str], what: str) -> tuple[tuple[Any, ...], ...]:
    """Rows of a table that a user gives: a file, or a list of dicts or tuples."""
    if isinstance(given, str | Path):
        if not Path(given).exists():
            raise HeadwiseError(f"looked for {what} in {given}, which does not exist")
        table = read_table(Path(given), numbers=True)
        missing = [name for name in columns if name not in table]
        if missing:
            raise HeadwiseError(
                f"{given} has no column {missing[0]!r}; it has {', '.join(map(str, table.columns))}"
            )
        return tuple(zip(*(table[name].tolist() for name in columns), strict=True))
    rows = [tuple(row[name] for name in columns) if isinstance(row, Mapping) else tuple(row) for row in given]
    if not rows or any(len(row) != len(columns) for row in rows):
        raise HeadwiseError(f"{what} are rows of {', '.join(columns)}; got {rows[:1] or 'none'}")
    return tuple(rows)


def given_texts(texts: Any, examples: int, seed: int) -> tuple[str, ...]:
    """The texts a user gives, or synthetic ones."""
    if texts is None:
        from headwise.grammar import task

        found = [
            " ".join(text)
            for text in task("topic", size=max(examples, 16), seed=seed, held_out=16).split("train").texts
        ]
    elif isinstance(texts, str | Path):
        if not Path(texts).exists():
            raise HeadwiseError(f"looked for texts in {texts}, which does not exist")
        found = read_texts(Path(texts), examples)
    else:
        found = list(texts)
    wrong = next((text for text in found if not isinstance(text, str)), None)
    if wrong is not None or not any(text.strip() for text in found):
        raise HeadwiseError(
            f"texts are a file, or a list of texts; got {type(texts).__name__} with {wrong!r}"
        )
    return tuple(text for text in found if text.strip())[:examples]
