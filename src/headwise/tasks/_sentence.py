"""A sentence with layers of annotation, any of which may be missing: what the structured tasks and the
probing generator read.

Positions are word numbers from 0; spans are half-open, `words[start:end]`. Heads are the exception, kept as
CoNLL-U writes them: 0 is the root and k the k-th word counted from 1.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Span(NamedTuple):
    """The words `start` to `end` (exclusive) under one label."""

    start: int
    end: int
    label: str


@dataclass(frozen=True)
class Tree:
    """A constituent: a phrase with children, or a part of speech over one word (`word` set, no children)."""

    label: str
    children: tuple["Tree", ...] = ()
    word: str | None = None

    def words(self) -> tuple[str, ...]:
        """The words under this node, left to right."""
        return tuple(leaf.word for leaf in self.leaves() if leaf.word is not None)

    def leaves(self) -> Iterator["Tree"]:
        """The part-of-speech nodes, left to right."""
        stack = [self]
        while stack:
            node = stack.pop()
            if node.children:
                stack.extend(reversed(node.children))
            else:
                yield node

    def spans(self) -> list[Span]:
        """Every phrase (part-of-speech nodes left out) as a span, parents before children, left to right."""
        spans: list[Span] = []

        def visit(node: Tree, start: int) -> int:
            if not node.children:
                return start + 1
            number = len(spans)
            spans.append(Span(start, start, node.label))
            end = start
            for child in node.children:
                end = visit(child, end)
            spans[number] = Span(start, end, node.label)
            return end

        visit(self, 0)
        return spans

    def __str__(self) -> str:
        """The tree in brackets on one line."""
        if not self.children:
            return f"({self.label} {self.word})"
        return f"({self.label} {' '.join(map(str, self.children))})"


@dataclass(frozen=True)
class Predicate:
    """A predicate and its arguments (PropBank)."""

    index: int
    """word number of the predicate"""
    sense: str | None
    """roleset such as "give.01" """
    arguments: tuple[Span, ...]
    """labelled ARG0, ARGM-TMP, ...; the predicate itself ("V") is not among them"""


@dataclass(frozen=True)
class Sentence:
    """Words with annotation. A layer that is None was not annotated; an empty tuple was annotated and holds
    nothing.

    Attributes:
        words: the words.
        upos, xpos, lemmas, feats: one string a word; `feats` as in CoNLL-U ("Number=Sing|Person=3", "_" for
            none).
        heads, deprels: the dependency tree; `heads[i]` is 0 for the root, else the head's number counted from
            1.
        entities: named entities, not overlapping.
        tree: the constituency tree; its words are `words`.
        roles: the predicates with their arguments.
        labels: labels of the whole sentence, such as topic or tense.
        id, source: the sentence's own name, and "file, line n" where it was read.
    """

    words: tuple[str, ...]
    upos: tuple[str, ...] | None = None
    xpos: tuple[str, ...] | None = None
    lemmas: tuple[str, ...] | None = None
    feats: tuple[str, ...] | None = None
    heads: tuple[int, ...] | None = None
    deprels: tuple[str, ...] | None = None
    entities: tuple[Span, ...] | None = None
    tree: Tree | None = None
    roles: tuple[Predicate, ...] | None = None
    text: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    id: str = ""
    source: str = ""

    def __len__(self) -> int:
        return len(self.words)

    def __str__(self) -> str:
        """The sentence as written, or its words with spaces between."""
        return self.text or " ".join(self.words)

    def feature(self, word: int, name: str) -> str | None:
        """The value of a morphological feature, e.g. `feature(3, "Number")` -> "Sing"; None where it has
        none.
        """
        if self.feats is None or self.feats[word] == "_":
            return None
        return dict(pair.partition("=")[::2] for pair in self.feats[word].split("|")).get(name)


def has_layer(sentences: Iterable[Sentence], layer: str) -> bool:
    """Whether any of the sentences was annotated with a layer."""
    return any(getattr(sentence, layer) is not None for sentence in sentences)


def bare_label(label: str) -> str:
    """A phrase label without function tags and indices: "NP-SBJ-1" -> "NP"; "-LRB-" stays."""
    if label.startswith("-"):
        return label
    return label.split("-")[0].split("=")[0]
