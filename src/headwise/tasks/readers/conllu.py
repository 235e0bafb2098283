"""CoNLL-U: words, lemmas, tags, features and dependencies; entities from MISC where the file declares them
(`global.Entity`).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headwise._base.names import shown
from headwise._base.parsing import whole_number
from headwise._base.writing import new_text
from headwise.errors import HeadwiseError
from headwise.tasks._sentence import Sentence, Span
from headwise.tasks.readers.blocks import Block, blocks, check_heads, gather


def read(path: str | Path, *, skip_bad: bool = False, mentions: str = "named") -> list[Sentence]:
    """Reads a CoNLL-U file. Ranges (1-2) and empty nodes (8.1) are left out; a column of underscores is a
    missing layer.

    Args:
        path: the file, compressed or not.
        skip_bad: leave out malformed sentences and count them.
        mentions: which entities of MISC to read: "named" (with an identity and a proper noun inside), "outer"
            (all that lie inside no other).

    Raises:
        HeadwiseError: a wrong number of columns, word numbers out of order, two roots, a cycle, an entity
            left open.
    """
    if mentions not in ("named", "outer"):
        raise HeadwiseError(f"unknown mentions={mentions!r}; expected 'named' or 'outer'")
    path = Path(path)
    fields: list[str] = []  # of an Entity value, as the newest document declares them

    def parse(block: Block) -> Sentence | None:
        for line in block.lines:
            if line.startswith("# global.Entity"):
                fields[:] = line.partition("=")[2].strip().split("-")
        return _sentence(block, fields, mentions)

    return gather(blocks(path), parse, skip_bad, path)


def _sentence(block: Block, fields: list[str], mentions: str) -> Sentence | None:
    comments = dict(_comments(block.lines))
    rows: list[list[str]] = []
    for line_number, line in enumerate(block.lines, block.line):
        if line.startswith("#"):
            continue
        cells, where = line.split("\t"), block.where(line_number)
        if len(cells) != 10:
            raise HeadwiseError(f"{where}: CoNLL-U has 10 columns, found {len(cells)}")
        if "-" in cells[0] or "." in cells[0]:
            continue
        if cells[0] != str(len(rows) + 1):
            raise HeadwiseError(f"{where}: word number {shown(cells[0])}, expected {len(rows) + 1}")
        if not cells[1].strip():
            raise HeadwiseError(f"{where}: the word is empty")
        rows.append(cells)
    if not rows:
        return None
    _, words, lemmas, upos, xpos, feats, heads, deprels, _, misc = zip(*rows, strict=True)
    layers: dict[str, Any] = {}
    if _layer(heads) is not None:
        layers = {"heads": _heads(heads, block.where()), "deprels": _layer(deprels)}
    if fields:
        layers["entities"] = _entities(misc, _layer(upos), fields, mentions, block.where())
    return Sentence(
        words=words,
        lemmas=_layer(lemmas),
        upos=_layer(upos),
        xpos=_layer(xpos),
        feats=feats,  # a sentence may well have no feature
        **layers,
        text=comments.get("text", ""),
        id=comments.get("sent_id", ""),
        source=block.where(),
    )


def _comments(lines: list[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        if line.startswith("#") and "=" in line:
            name, _, value = line[1:].partition("=")
            yield name.strip(), value.strip()


def _layer(column: tuple[str, ...]) -> tuple[str, ...] | None:
    """A column; None where all of it is underscores."""
    if set(column) == {"_"}:
        return None
    return column


def _heads(column: Sequence[str], where: str) -> tuple[int, ...]:
    heads = []
    for word, value in enumerate(column, 1):
        head = whole_number(value)
        if head is None:
            raise HeadwiseError(f"{where}: word {word} has the head {shown(value)}, not a number")
        heads.append(head)
    check_heads(heads, where)
    return tuple(heads)


def _entities(
    misc: Sequence[str], upos: tuple[str, ...] | None, fields: list[str], mentions: str, where: str
) -> tuple[Span, ...]:
    """Entities of the MISC column."""
    label_field = fields.index("etype") if "etype" in fields else 1
    open_entities: dict[str, list[_OpenEntity]] = {}
    spans: list[Span] = []
    for word, cell in enumerate(misc):
        for mark in _entity_marks(cell):
            values = mark.strip("()").split("-")
            name = values[0]
            if mark.startswith("("):
                if len(values) <= label_field:
                    raise HeadwiseError(f"{where}: word {word + 1} has the entity {mark!r}, without its type")
                identity = dict(zip(fields, values, strict=False)).get("identity", "")
                entity = _OpenEntity(word, values[label_field], identity not in ("", "_"))
                open_entities.setdefault(name, []).append(entity)
            if mark.endswith(")"):
                if not open_entities.get(name):
                    raise HeadwiseError(
                        f"{where}: word {word + 1} closes the entity {name!r}, which is not open"
                    )
                entity = open_entities[name].pop()
                proper = upos is None or "PROPN" in upos[entity.start : word + 1]
                if mentions == "outer" or (entity.identified and proper):
                    spans.append(Span(entity.start, word + 1, entity.label))
    for name, entities in sorted(open_entities.items()):
        if entities and not name.endswith(
            "]"
        ):  # [1/2]: of a discontinuous mention, which no span can express
            raise HeadwiseError(f"{where}: the entity {name!r} is never closed")
    return flat(spans)


class _OpenEntity(NamedTuple):
    start: int
    label: str
    identified: bool


def _entity_marks(cell: str) -> list[str]:
    """The marks of a MISC cell: "(1-person" opens, "1)" closes, "(1-person)" does both."""
    for value in cell.split("|"):
        if value.startswith("Entity="):
            return re.findall(r"\([^()]*\)|\([^()]*|[^()]+\)", value.removeprefix("Entity="))
    return []


def flat(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Spans without overlaps: where two overlap the longer stays (of equal ones the first), in order."""
    apart: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start - span.end, span)):
        if all(span.end <= longer.start or span.start >= longer.end for longer in apart):
            apart.append(span)
    return tuple(sorted(apart))


def lines(sentence: Sentence) -> Iterator[str]:
    """The lines of one sentence, without the empty line after it."""
    if sentence.id:
        yield f"# sent_id = {sentence.id}"
    yield f"# text = {sentence}"
    size = len(sentence)
    blank = ("_",) * size
    heads = tuple(map(str, sentence.heads or ()))
    layers = (sentence.lemmas, sentence.upos, sentence.xpos, sentence.feats, heads, sentence.deprels, None)
    columns = [layer or blank for layer in layers]
    for i, word in enumerate(sentence.words):
        yield "\t".join([str(i + 1), word, *(column[i] for column in columns), _entity_cell(sentence, i)])


def _entity_cell(sentence: Sentence, word: int) -> str:
    """The MISC cell of a word: entities as `Entity=(1-person-name` ... `1)`, so that reading gives them
    back.
    """
    marks = ""
    for number, (start, end, label) in enumerate(sentence.entities or (), 1):
        if start == word:
            marks += f"({number}-{label}-named"
        if start < word and end == word + 1:
            marks += str(number)
        if end == word + 1:
            marks += ")"
    return f"Entity={marks}" if marks else "_"


def write(sentences: Iterable[Sentence], path: str | Path) -> None:
    """Writes CoNLL-U; missing layers become underscores, entities go to MISC."""
    sentences = list(sentences)
    with new_text(path) as handle:
        if any(sentence.entities is not None for sentence in sentences):
            handle.write("# global.Entity = eid-etype-identity\n")
        for sentence in sentences:
            handle.write("\n".join(lines(sentence)) + "\n\n")
