"""What the readers share: files cut into numbered blocks, bad sentences raised or counted, and trees of heads
checked.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from headwise.errors import HeadwiseError
from headwise.tasks._sentence import Predicate, Sentence, Span
from headwise.tasks._tables import open_text

T = TypeVar("T")


class Block(NamedTuple):
    """The lines of one sentence, with the number of the first (from 1), and the sentence's number in the file
    (from 1).
    """

    path: Path
    line: int
    number: int
    lines: list[str]

    def where(self, line: int | None = None) -> str:
        """ "file, line 7 (sentence 2)", for messages."""
        if line is None:
            line = self.line
        return f"{self.path}, line {line} (sentence {self.number})"


def blocks(path: Path) -> Iterator[Block]:
    """A file cut at its empty lines."""
    lines: list[str] = []
    first, number = 1, 0
    with open_text(path) as handle:
        for line_number, raw in enumerate(handle, 1):
            line = raw.rstrip("\r\n")
            if line.strip():
                if not lines:
                    first = line_number
                lines.append(line)
            elif lines:
                number += 1
                yield Block(path, first, number, lines)
                lines = []
    if lines:
        yield Block(path, first, number + 1, lines)


def gather(
    sources: Iterable[T], parse: Callable[[T], Sentence | None], skip_bad: bool, path: Path
) -> list[Sentence]:
    """Parses the source of every sentence; None means there is no sentence in it.

    A malformed one raises, or with `skip_bad` is left out and counted in one warning that quotes the first
    error.
    """
    sentences: list[Sentence] = []
    errors: list[str] = []
    for source in sources:
        try:
            sentence = parse(source)
        except HeadwiseError as error:
            if not skip_bad:
                raise
            errors.append(str(error))
        else:
            if sentence is not None:
                sentences.append(sentence)
    if errors:
        total = len(sentences) + len(errors)
        warnings.warn(
            f"{path}: skipped {len(errors)} malformed of {total} sentences; the first: {errors[0]}",
            stacklevel=3,
        )
    if errors and not sentences:
        raise HeadwiseError(f"{path} holds no well-formed sentence")
    if not sentences:
        raise HeadwiseError(f"{path} holds no sentence")
    return sentences


def check_heads(heads: Sequence[int], where: str) -> None:
    """Heads must be a tree: within the sentence, one root, no cycle."""
    size = len(heads)
    for word, head in enumerate(heads, 1):
        if not 0 <= head <= size:
            raise HeadwiseError(
                f"{where}: word {word} has the head {head}, outside the sentence of {size} words"
            )
    roots = [word for word, head in enumerate(heads, 1) if head == 0]
    if len(roots) != 1:
        words = f": words {str(roots)[1:-1]}" if roots else ""
        raise HeadwiseError(f"{where}: there must be one root, found {len(roots)}{words}")
    rooted = {0}
    for word in range(1, size + 1):
        path: list[int] = []
        while word not in rooted:
            if word in path:
                cycle = path[path.index(word) :]
                raise HeadwiseError(
                    f"{where}: the heads of words {', '.join(map(str, cycle))} run in a cycle"
                )
            path.append(word)
            word = heads[word - 1]
        rooted.update(path)


def check_spans(spans: Iterable[Span], size: int, where: str) -> None:
    """Spans must lie within the sentence and not be empty."""
    for start, end, label in spans:
        if not 0 <= start < end <= size:
            raise HeadwiseError(
                f"{where}: the span {start}-{end - 1} ({label}) is empty or outside the sentence of {size} "
                "words"
            )


def check_roles(roles: Iterable[Predicate], size: int, where: str) -> None:
    """Predicates and arguments must lie within the sentence."""
    for predicate in roles:
        if not 0 <= predicate.index < size:
            raise HeadwiseError(
                f"{where}: the predicate {predicate.index} is outside the sentence of {size} words"
            )
        check_spans(predicate.arguments, size, where)
