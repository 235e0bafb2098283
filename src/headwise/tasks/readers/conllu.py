"""CoNLL-U: words, lemmas, tags, features and dependencies; entities from MISC where the file declares them (`global.Entity`)."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from headwise._base.names import shown
from headwise._base.parsing import whole_number
from headwise._base.writing import new_text
from headwise.errors import HeadwiseError
from headwise.tasks._sentence import Sentence, Span
from headwise.tasks.readers.blocks import Block, blocks, check_heads, gather


def read(path: str | Path, *, skip_bad: bool = False, mentions: str = "named") -> list[Sentence]:
    """Reads a CoNLL-U file. Ranges (1-2) and empty nodes (8.1) are left out; a column of underscores is a missing layer.

    Args:
        path: the file, compressed or not.
        skip_bad: leave out malformed sentences and count them.
        mentions: which entities of MISC to read: "named" (with an identity and a proper noun inside), "outer" (all that lie
            inside no other).

    Raises:
        HeadwiseError: a wrong number of columns, word numbers out of order, two roots, a cycle, an entity left open.
    """
    if mentions not in ("named", "outer"):
        raise HeadwiseError(f"unknown mentions={mentions!r}; expected 'named' or 'outer'")
    where = Path(path)
    fields: list[str] = []  # the parts of an Entity value, as the newest document declares them

    def parse(block: Block) -> Sentence | None:
        for line in block.lines:
            if line.startswith("# global.Entity"):
                fields[:] = line.partition("=")[2].strip().split("-")
        return _sentence(block, fields, mentions)

    return gather(blocks(where), parse, skip_bad, where)


def _sentence(block: Block, fields: list[str], mentions: str) -> Sentence | None:
    comments = dict(_comments(block.lines))
    rows: list[list[str]] = []
    for place, line in enumerate(block.lines):
        if line.startswith("#"):
            continue
        columns = line.split("\t")
        if len(columns) != 10:
            raise HeadwiseError(
                f"{block.where(block.line + place)}: CoNLL-U has 10 columns, found {len(columns)}"
            )
        if "-" in columns[0] or "." in columns[0]:
            continue
        if columns[0] != str(len(rows) + 1):
            raise HeadwiseError(
                f"{block.where(block.line + place)}: word number {shown(columns[0])}, expected {len(rows) + 1}"
            )
        if not columns[1].strip():
            raise HeadwiseError(f"{block.where(block.line + place)}: the word is empty")
        rows.append(columns)
    if not rows:
        return None
    heads = _heads([row[6] for row in rows], block.where())
    upos = _layer([row[3] for row in rows])
    spans = _entities([row[9] for row in rows], upos, fields, mentions, block.where()) if fields else None
    return Sentence(
        words=tuple(row[1] for row in rows),
        lemmas=_layer([row[2] for row in rows]),
        upos=upos,
        xpos=_layer([row[4] for row in rows]),
        feats=tuple(row[5] for row in rows),  # a sentence may well have no feature
        heads=heads,
        deprels=_layer([row[7] for row in rows]) if heads is not None else None,
        entities=spans,
        text=comments.get("text", ""),
        id=comments.get("sent_id", ""),
        source=block.where(),
    )


def _comments(lines: list[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        if line.startswith("#") and "=" in line:
            name, _, value = line[1:].partition("=")
            yield name.strip(), value.strip()


def _layer(column: list[str]) -> tuple[str, ...] | None:
    return None if all(value == "_" for value in column) else tuple(column)


def _heads(column: list[str], where: str) -> tuple[int, ...] | None:
    if all(value == "_" for value in column):
        return None
    heads = []
    for word, value in enumerate(column, 1):
        if (head := whole_number(value)) is None:
            raise HeadwiseError(f"{where}: word {word} has the head {shown(value)}, not a number")
        heads.append(head)
    check_heads(heads, where)
    return tuple(heads)


def _entities(
    misc: list[str], upos: tuple[str, ...] | None, fields: list[str], mentions: str, where: str
) -> tuple[Span, ...]:
    """Entities of the MISC column: "(1-person-..." opens, "1)" closes, "(1-person-...)" does both."""
    place = fields.index("etype") if "etype" in fields else 1
    identity = fields.index("identity") if "identity" in fields else None
    open_at: dict[str, list[tuple[int, str, bool]]] = {}
    found: list[tuple[Span, bool]] = []
    for word, cell in enumerate(misc):
        value = next((part[7:] for part in cell.split("|") if part.startswith("Entity=")), "")
        for mark in re.findall(r"\([^()]*\)|\([^()]*|[^()]+\)", value):
            parts = mark.strip("()").split("-")
            if mark.startswith("("):
                if len(parts) <= place:
                    raise HeadwiseError(f"{where}: word {word + 1} has the entity {mark!r}, without its type")
                known = identity is not None and len(parts) > identity and parts[identity] not in ("", "_")
                open_at.setdefault(parts[0], []).append((word, parts[place], known))
            if mark.endswith(")"):
                if not open_at.get(parts[0]):
                    raise HeadwiseError(
                        f"{where}: word {word + 1} closes the entity {parts[0]!r}, which is not open"
                    )
                start, label, known = open_at[parts[0]].pop()
                named = known and (upos is None or "PROPN" in upos[start : word + 1])
                found.append((Span(start, word + 1, label), named))
    left = sorted(name for name, opened in open_at.items() if opened and not name.endswith("]"))
    if left:  # [1/2] marks a part of a discontinuous mention, which no span can express
        raise HeadwiseError(f"{where}: the entity {left[0]!r} is never closed")
    wanted = [span for span, named in found if named or mentions == "outer"]
    return flat(wanted)


def flat(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Spans without overlaps: where two overlap the longer stays (of equal ones the first), in order."""
    kept: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start - span.end, span)):
        if all(span.end <= other.start or span.start >= other.end for other in kept):
            kept.append(span)
    return tuple(sorted(kept))


def lines(sentence: Sentence) -> Iterator[str]:
    """The lines of one sentence, without the empty line after it."""
    if sentence.id:
        yield f"# sent_id = {sentence.id}"
    yield f"# text = {sentence}"
    size = len(sentence)
    blank = ("_",) * size
    heads = blank if sentence.heads is None else tuple(map(str, sentence.heads))
    layers = (sentence.lemmas, sentence.upos, sentence.xpos, sentence.feats, heads, sentence.deprels, None)
    columns = [blank if layer is None else layer for layer in layers]
    for i, word in enumerate(sentence.words):
        yield "\t".join([str(i + 1), word, *(column[i] for column in columns), _entity_cell(sentence, i)])


def _entity_cell(sentence: Sentence, word: int) -> str:
    """The MISC cell of a word: entities as `Entity=(1-person-name` ... `1)`, so that reading gives them back."""
    marks = ""
    for number, (start, end, label) in enumerate(sentence.entities or (), 1):
        if start == word:
            marks += f"({number}-{label}-named" + (")" if end == word + 1 else "")
        elif end == word + 1:
            marks += f"{number})"
    return f"Entity={marks}" if marks else "_"


def write(sentences: Iterable[Sentence], path: str | Path) -> None:
    """Writes CoNLL-U; missing layers become underscores, entities go to MISC."""
    sentences = list(sentences)
    with new_text(path) as handle:
        if any(sentence.entities is not None for sentence in sentences):
            handle.write("# global.Entity = eid-etype-identity\n")
        for sentence in sentences:
            handle.write("\n".join(lines(sentence)) + "\n\n")
