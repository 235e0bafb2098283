"""CoNLL columns: one word a line with its tags, an empty line after each sentence (CoNLL-2003, WNUT, and the
like).
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from headwise._base.writing import new_text
from headwise.errors import HeadwiseError
from headwise.tasks._sentence import Sentence
from headwise.tasks.readers.blocks import Block, blocks, gather
from headwise.tasks.readers.tags import spans_from_tags, tags_from_spans

NAMES = ("words", "lemmas", "upos", "xpos", "ner", "_")
LAYERS = {"ner": "entities"}  # of `Sentence`, where they have another name
USUAL: dict[int, tuple[str, ...]] = {
    2: ("words", "ner"),
    3: ("words", "xpos", "ner"),
    4: ("words", "xpos", "_", "ner"),
}
# Universal NER: the word's number, the word, its tag, and who annotated it
NUMBERED = ("_", "words", "ner", "_", "_")


def read(
    path: str | Path, *, skip_bad: bool = False, columns: Sequence[str] | None = None, scheme: str = "bio"
) -> list[Sentence]:
    """Reads a file of columns, divided by tabs if there are any, else by spaces. "-DOCSTART-" lines and "# "
    comments are left out.

    Args:
        path: the file, compressed or not.
        skip_bad: leave out malformed sentences and count them.
        columns: what each column is: words, lemmas, upos, xpos, ner, or "_" for one to pass over. Default by
            number: 2: words, ner; 3: words, xpos, ner; 4 (CoNLL-2003): words, xpos, _, ner; 5, the first of
                which counts the words (Universal NER): _, words,
            ner, _, _.
        scheme: of the ner column: "bio" (IOB2), "iob1" (CoNLL-2003 as first published), "bioes".

    Raises:
        HeadwiseError: a wrong number of columns, or tags that cannot follow each other, by file, line and
            sentence.
    """
    path = Path(path)
    names = None if columns is None else tuple(columns)
    if names is not None and (not set(names) <= set(NAMES) or names.count("words") != 1):
        raise HeadwiseError(
            f"columns={names!r}: each column is one of {', '.join(NAMES)}, and one of them is words"
        )
    return gather(blocks(path), partial(_sentence, names=names, scheme=scheme), skip_bad, path)


def _sentence(block: Block, names: tuple[str, ...] | None, scheme: str) -> Sentence | None:
    """The sentence of a block; None where it holds comments alone."""
    lines = {
        number: line
        for number, line in enumerate(block.lines, block.line)
        if not line.startswith(("-DOCSTART-", "# "))
    }
    if not lines:
        return None
    rows = _cells(lines)
    first = block.where(min(rows))
    names = names or _usual_names(list(rows.values()))
    if names is None:
        count = len(rows[min(rows)])
        raise HeadwiseError(f"{first}: {count} columns; say what they are with columns=")
    for number, row in rows.items():
        if len(row) != len(names) or not row[names.index("words")].strip():
            raise HeadwiseError(
                f"{block.where(number)}: expected {len(names)} columns ({', '.join(names)}), found {row!r}"
            )
    layers: dict[str, Any] = dict(zip(names, zip(*rows.values(), strict=True), strict=True))
    layers.pop("_", None)
    if "ner" in layers:
        layers["entities"] = tuple(spans_from_tags(layers.pop("ner"), scheme, first))
    return Sentence(**layers, source=block.where())


def _cells(lines: Mapping[int, str]) -> dict[int, list[str]]:
    """The cells of numbered lines, divided by tabs if there are any, else by spaces."""
    if any("\t" in line for line in lines.values()):
        return {number: list(map(str.strip, line.split("\t"))) for number, line in lines.items()}
    return {number: line.split() for number, line in lines.items()}


def _usual_names(rows: Sequence[Sequence[str]]) -> tuple[str, ...] | None:
    """What columns of this number usually are; None: that is not known."""
    count = len(rows[0])
    numbers = [row[0] for row in rows]
    if count == len(NUMBERED) and numbers == [str(i) for i in range(1, len(rows) + 1)]:
        return NUMBERED
    return USUAL.get(count)


def write(
    sentences: Iterable[Sentence],
    path: str | Path,
    *,
    columns: Sequence[str] = ("words", "ner"),
    scheme: str = "bio",
) -> None:
    """Writes columns divided by tabs; "_" stands for a column to fill with underscores.

    Raises:
        HeadwiseError: a sentence lacks a layer.
    """
    with new_text(path) as handle:
        for sentence in sentences:
            filled: list[Sequence[str]] = []
            for name in columns:
                layer: Any = ["_"] * len(sentence)
                if name != "_":
                    layer = getattr(sentence, LAYERS.get(name, name))
                if layer is None:
                    raise HeadwiseError(f"{sentence.source or str(sentence)!r} has no {name} to write")
                if name == "ner":
                    layer = tags_from_spans(layer, len(sentence), scheme)
                filled.append(layer)
            handle.write("\n".join("\t".join(row) for row in zip(*filled, strict=True)) + "\n\n")
