"""CoNLL-2012 (OntoNotes): words, parts of speech, parse bits, entities and roles in one file of columns."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from headwise._base.writing import new_text
from headwise.errors import HeadwiseError
from headwise.tasks._sentence import Predicate, Sentence, Span, Tree
from headwise.tasks.readers import brackets
from headwise.tasks.readers.blocks import Block, blocks, gather

FIXED = 11  # columns before the predicates' own; one more, coreference, comes last


def read(path: str | Path, *, skip_bad: bool = False) -> list[Sentence]:
    """Reads a CoNLL-2012 file as sentences with xpos, tree, entities and roles.

    Raises:
        HeadwiseError: a wrong number of columns, unbalanced parse bits, or spans left open, by file, line and
            sentence.
    """
    path = Path(path)
    return gather(blocks(path), _sentence, skip_bad, path)


def _sentence(block: Block) -> Sentence | None:
    """The sentence of a block; None where it holds comments alone."""
    lines = {number: line for number, line in enumerate(block.lines, block.line) if not line.startswith("#")}
    if not lines:
        return None
    rows = {number: line.split() for number, line in lines.items()}
    where, width = block.where(min(rows)), len(rows[min(rows)])
    for number, row in rows.items():
        if len(row) != width or width < FIXED + 1:
            raise HeadwiseError(
                f"{block.where(number)}: expected {max(width, FIXED + 1)} columns, found {len(row)}"
            )
    columns = list(zip(*rows.values(), strict=True))
    words = tuple(_plain(word) for word in columns[3])
    tree = None
    if any("(" in bit for bit in columns[5]):
        leaves = (f"({tag} {brackets.escape(word)})" for tag, word in zip(columns[4], words, strict=True))
        text = " ".join(bit.replace("*", leaf, 1) for bit, leaf in zip(columns[5], leaves, strict=True))
        tree = brackets.parse(text, where)
    return Sentence(
        words,
        xpos=None if set(columns[4]) == {"-"} else columns[4],
        entities=tuple(star_spans(columns[10], where)),
        tree=tree,
        roles=tuple(_predicate(column, columns, where) for column in columns[FIXED : width - 1]),
        id=f"{columns[0][0]}-{columns[1][0]}-{block.number}",
        source=where,
    )


def _plain(word: str) -> str:
    """OntoNotes writes "/." for "." and the like; brackets have their stand-ins."""
    if len(word) == 2 and word[0] == "/" and not word[1].isalnum():
        word = word[1:]
    return brackets.unescape(word)


def _predicate(column: Sequence[str], columns: Sequence[tuple[str, ...]], where: str) -> Predicate:
    spans = star_spans(column, where)
    verbs = [span for span in spans if span.label == "V"]
    if len(verbs) != 1:
        raise HeadwiseError(f"{where}: a column of roles has {len(verbs)} predicates (V), expected 1")
    index = verbs[0].start
    sense = None if columns[6][index] == "-" else f"{columns[6][index]}.{columns[7][index]}"
    return Predicate(index, sense, tuple(span for span in spans if span.label not in ("V", "C-V")))


def star_spans(column: Sequence[str], where: str) -> list[Span]:
    """Spans written as "(ARG0*", "*", "*)"; they may nest."""
    stack: list[tuple[int, str]] = []
    spans: list[Span] = []
    for word, cell in enumerate(column):
        if not re.fullmatch(r"(\([^()*\s]+)*\*?\)*", cell) or cell == "":
            raise HeadwiseError(
                f"{where}: word {word + 1} has {cell!r}; expected something like (ARG0*, * or *)"
            )
        stack.extend((word, label.rstrip("*")) for label in re.findall(r"\(([^()*]+)", cell))
        for _ in range(cell.count(")")):
            if not stack:
                raise HeadwiseError(
                    f"{where}: word {word + 1} has {cell!r}, which closes a span that is not open"
                )
            start, label = stack.pop()
            spans.append(Span(start, word + 1, label))
    if stack:
        raise HeadwiseError(
            f"{where}: the span ({stack[-1][1]} opened at word {stack[-1][0] + 1} is never closed"
        )
    return sorted(spans)


def stars(spans: Iterable[Span], size: int) -> list[str]:
    """Nested or separate spans as a column of stars; the inverse of `star_spans`."""
    before, after = [""] * size, [""] * size
    for start, end, label in sorted(spans, key=lambda span: (span.start, -span.end)):
        before[start] += f"({label}"
        after[end - 1] += ")"
    return [f"{a}*{b}" for a, b in zip(before, after, strict=True)]


def _bits(tree: Tree | None, size: int) -> list[str]:
    if tree is None:
        return ["*"] * size
    cells: list[str] = []

    def visit(node: Tree, opened: str) -> None:
        if not node.children:
            cells.append(f"{opened}*")
            return
        first, *further = node.children
        visit(first, f"{opened}({node.label}")
        for child in further:
            visit(child, "")
        cells[-1] += ")"

    visit(tree, "")
    return cells


def write(sentences: Iterable[Sentence], path: str | Path) -> None:
    """Writes CoNLL-2012 columns; missing layers become "-" or "*"."""
    document = Path(path).stem
    with new_text(path) as handle:
        handle.write(f"#begin document ({document}); part 000\n")
        for sentence in sentences:
            for row in zip(*_columns(sentence, document), strict=True):
                handle.write("   ".join(row) + "\n")
            handle.write("\n")
        handle.write("#end document\n")


def _columns(sentence: Sentence, document: str) -> list[Sequence[str]]:
    size = len(sentence)
    blank = ["-"] * size
    lemmas, senses, roles = list(blank), list(blank), []
    for predicate in sentence.roles or ():
        lemma, _, sense = (predicate.sense or "-").partition(".")
        lemmas[predicate.index], senses[predicate.index] = lemma, sense or "-"
        verb = Span(predicate.index, predicate.index + 1, "V")
        roles.append(stars([*predicate.arguments, verb], size))
    return [
        [document] * size,
        ["0"] * size,
        list(map(str, range(size))),
        list(map(brackets.escape, sentence.words)),
        sentence.xpos or blank,
        _bits(sentence.tree, size),
        lemmas,
        senses,
        blank,
        blank,
        stars(sentence.entities or (), size),
        *roles,
        blank,
    ]
