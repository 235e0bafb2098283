"""CoNLL columns: one word a line with its tags, an empty line after each sentence (CoNLL-2003, WNUT, and the like)."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from headwise._base.writing import new_text
from headwise.errors import HeadwiseError
from headwise.tasks._sentence import Sentence
from headwise.tasks.readers.blocks import Block, blocks, gather
from headwise.tasks.readers.tags import spans_from_tags, tags_from_spans

NAMES = ("words", "lemmas", "upos", "xpos", "ner", "_")
USUAL: dict[int, tuple[str, ...]] = {
    2: ("words", "ner"),
    3: ("words", "xpos", "ner"),
    4: ("words", "xpos", "_", "ner"),
}
NUMBERED = (
    "_",
    "words",
    "ner",
    "_",
    "_",
)  # Universal NER: the word's number, the word, its tag, and who annotated it


def read(
    path: str | Path, *, skip_bad: bool = False, columns: Sequence[str] | None = None, scheme: str = "bio"
) -> list[Sentence]:
    """Reads a file of columns, divided by tabs if there are any, else by spaces. "-DOCSTART-" lines and "# " comments are left out.

    Args:
        path: the file, compressed or not.
        skip_bad: leave out malformed sentences and count them.
        columns: what each column is: words, lemmas, upos, xpos, ner, or "_" for one to pass over. Default by number: 2: words, ner;
            3: words, xpos, ner; 4 (CoNLL-2003): words, xpos, _, ner; 5, the first of which counts the words (Universal NER): _, words,
            ner, _, _.
        scheme: of the ner column: "bio" (IOB2), "iob1" (CoNLL-2003 as first published), "bioes".

    Raises:
        HeadwiseError: a wrong number of columns, or tags that cannot follow each other, by file, line and sentence.
    """
    where = Path(path)
    wanted = tuple(columns) if columns is not None else None
    if wanted is not None and (not set(wanted) <= set(NAMES) or wanted.count("words") != 1):
        raise HeadwiseError(
            f"columns={wanted!r}: each column is one of {', '.join(NAMES)}, and one of them is words"
        )

    def parse(block: Block) -> Sentence | None:
        kept = [
            (block.line + i, line)
            for i, line in enumerate(block.lines)
            if not line.startswith(("-DOCSTART-", "# "))
        ]
        if not kept:
            return None
        tabs = any("\t" in line for _, line in kept)
        rows = [
            (place, [cell.strip() for cell in line.split("\t")] if tabs else line.split())
            for place, line in kept
        ]
        counted = len(rows[0][1]) == len(NUMBERED) and [row[0] for _, row in rows] == [
            str(i + 1) for i in range(len(rows))
        ]
        names = wanted or (NUMBERED if counted else USUAL.get(len(rows[0][1])))
        if names is None:
            raise HeadwiseError(
                f"{block.where(rows[0][0])}: {len(rows[0][1])} columns; say what they are with columns="
            )
        for place, row in rows:
            if len(row) != len(names) or not row[names.index("words")].strip():
                raise HeadwiseError(
                    f"{block.where(place)}: expected {len(names)} columns ({', '.join(names)}), found {row!r}"
                )
        found: dict[str, Any] = {
            name: tuple(row[i] for _, row in rows) for i, name in enumerate(names) if name != "_"
        }
        entities = (
            spans_from_tags(found.pop("ner"), scheme, block.where(rows[0][0])) if "ner" in found else None
        )
        words = found.pop("words")
        return Sentence(
            words,
            **found,
            entities=None if entities is None else tuple(entities),
            source=block.where(),
        )

    return gather(blocks(where), parse, skip_bad, where)


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
                if name == "ner":
                    layer = (
                        None
                        if sentence.entities is None
                        else tags_from_spans(sentence.entities, len(sentence), scheme)
                    )
                else:
                    layer = ["_"] * len(sentence) if name == "_" else getattr(sentence, name)
                if layer is None:
                    raise HeadwiseError(f"{sentence.source or str(sentence)!r} has no {name} to write")
                filled.append(layer)
            handle.write("\n".join("\t".join(row) for row in zip(*filled, strict=True)) + "\n\n")
