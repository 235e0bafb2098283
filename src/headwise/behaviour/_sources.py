"""Texts, and tables of pairs, needles and documents, from files or lists of a user; without torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError
from headwise.grammar import task as grammar_task
from headwise.tasks import read_table, read_texts

TABLES = {
    "pairs": ("input", "answer"),
    "needles": ("context", "needle", "question"),
    "documents": ("documents", "query", "gold"),
}


def rows_of(source: Any, name: str) -> tuple[tuple[Any, ...], ...]:
    """Rows of the table `name` of `TABLES`, from a file, or from a list of dicts or tuples."""
    columns = TABLES[name]
    if isinstance(source, str | Path):
        if not Path(source).exists():
            raise HeadwiseError(f"looked for {name} in {source}, which does not exist")
        table = read_table(Path(source), numbers=True)
        missing = [column for column in columns if column not in table]
        if missing:
            raise HeadwiseError(
                f"{source} has no column {missing[0]!r}; it has {', '.join(map(str, table.columns))}"
            )
        return tuple(zip(*(table[column].tolist() for column in columns), strict=True))
    rows = []
    for row in source:
        cells = [row[column] for column in columns] if isinstance(row, Mapping) else row
        rows.append(tuple(cells))
    if not rows or any(len(row) != len(columns) for row in rows):
        raise HeadwiseError(f"{name} are rows of {', '.join(columns)}; got {rows[:1] or 'none'}")
    return tuple(rows)


def texts_of(source: Any, examples: int, seed: int) -> tuple[str, ...]:
    """At most `examples` texts, of a file or a list; without a source synthetic ones."""
    if source is None:
        task = grammar_task("topic", size=max(examples, 16), seed=seed, held_out=16)
        texts = [" ".join(text) for text in task.split("train").texts]
    elif isinstance(source, str | Path):
        if not Path(source).exists():
            raise HeadwiseError(f"looked for texts in {source}, which does not exist")
        texts = read_texts(Path(source), examples)
    else:
        texts = list(source)
    wrong = next((text for text in texts if not isinstance(text, str)), None)
    if wrong is not None or not any(text.strip() for text in texts):
        raise HeadwiseError(
            f"texts are a file, or a list of texts; got {type(source).__name__} with {wrong!r}"
        )
    return tuple(text for text in texts if text.strip())[:examples]
