"""Bracketed trees, as in the Penn Treebank: one after another, over any number of lines."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from headwise._base.writing import new_text
from headwise.errors import HeadwiseError
from headwise.tasks._sentence import Sentence, Tree
from headwise.tasks._tables import open_text
from headwise.tasks.readers.blocks import gather

ESCAPES = {"-LRB-": "(", "-RRB-": ")", "-LCB-": "{", "-RCB-": "}", "-LSB-": "[", "-RSB-": "]"}

DEEPEST = 200  # phrases within each other; the deepest of the Penn Treebank has about 40


def unescape(word: str) -> str:
    """A word as written: brackets for their stand-ins, also inside words (":-RRB-" -> ":)")."""
    if "-" in word and "B-" in word:
        for stand_in, char in ESCAPES.items():
            word = word.replace(stand_in, char)
    return word


def escape(word: str) -> str:
    """A word as it stands in a bracketed tree."""
    return word.replace("(", "-LRB-").replace(")", "-RRB-")


def parse(text: str, where: str = "the tree") -> Tree:
    """One bracketed tree.

    Raises:
        HeadwiseError: unbalanced brackets, a word without a part of speech, text around the tree, or one too deep.
    """
    tokens = text.replace("(", " ( ").replace(")", " ) ").split()
    stack: list[tuple[str, list[Tree], list[str]]] = []  # label, children, words
    done: Tree | None = None
    for place, token in enumerate(tokens):
        if done is not None:
            raise HeadwiseError(f"{where}: {token!r} after the end of the tree: brackets are unbalanced")
        if token == "(":
            if len(stack) == DEEPEST:
                raise HeadwiseError(f"{where}: the tree is more than {DEEPEST} phrases deep")
            follows = tokens[place + 1] if place + 1 < len(tokens) else ""
            stack.append(("" if follows in ("(", ")") else follows, [], []))
        elif token == ")":
            if not stack:
                raise HeadwiseError(f"{where}: a bracket closes that was never opened")
            label, children, words = stack.pop()
            words = words[1:] if label else words  # the label is the first bare token of its bracket
            if bool(children) == bool(words) or len(words) > 1:
                content = f"({label} {' '.join(words)}{' ...' if children else ''})"
                raise HeadwiseError(
                    f"{where}: {content} is neither a phrase nor a part of speech over one word"
                )
            node = Tree(label, tuple(children), unescape(words[0]) if words else None)
            if stack:
                stack[-1][1].append(node)
            else:
                done = node
        elif not stack:
            raise HeadwiseError(f"{where}: {token!r} stands outside the tree")
        else:
            stack[-1][2].append(token)
    if stack or done is None:
        raise HeadwiseError(
            f"{where}: {len(stack)} brackets are never closed" if stack else f"{where} is empty"
        )
    return done


def without_traces(tree: Tree) -> Tree | None:
    """The tree without empty elements (-NONE-) and the phrases that hold nothing else."""
    if not tree.children:
        return None if tree.label == "-NONE-" else tree
    kept = tuple(child for child in map(without_traces, tree.children) if child is not None)
    return Tree(tree.label, kept) if kept else None


class _Piece(NamedTuple):
    where: str
    text: str


def read(path: str | Path, *, skip_bad: bool = False) -> list[Sentence]:
    """Reads a file of bracketed trees as sentences with `tree` and `xpos`; traces are removed, function tags stay.

    Raises:
        HeadwiseError: a malformed tree, by file, line and number.
    """
    where = Path(path)

    def sentence(piece: _Piece) -> Sentence:
        tree = without_traces(parse(piece.text, piece.where))
        if tree is None:
            raise HeadwiseError(f"{piece.where}: the tree holds no word")
        return Sentence(
            tree.words(), xpos=tuple(leaf.label for leaf in tree.leaves()), tree=tree, source=piece.where
        )

    return gather(_pieces(where), sentence, skip_bad, where)


def _pieces(path: Path) -> Iterator[_Piece]:
    """The file cut into trees: where brackets balance, or (so that one bad tree spoils no other) at a line that starts a new one."""
    depth, first, number = 0, 1, 0
    lines: list[str] = []
    with open_text(path) as handle:
        for place, line in enumerate(handle, 1):
            fresh = line.startswith("(") and lines
            if (fresh or depth < 0) and lines:
                number += 1
                yield _Piece(f"{path}, line {first} (sentence {number})", "".join(lines))
                lines, depth = [], 0
            if line.strip():
                if not lines:
                    first = place
                lines.append(line)
                depth += line.count("(") - line.count(")")
                if depth == 0:
                    number += 1
                    yield _Piece(f"{path}, line {first} (sentence {number})", "".join(lines))
                    lines = []
    if lines:
        yield _Piece(f"{path}, line {first} (sentence {number + 1})", "".join(lines))


def bracketed(tree: Tree) -> str:
    """The tree on one line, brackets inside words escaped."""
    if tree.word is not None:
        return f"({tree.label} {escape(tree.word)})"
    return f"({tree.label} {' '.join(bracketed(child) for child in tree.children)})"


def write(sentences: Iterable[Sentence], path: str | Path) -> None:
    """Writes the sentences' trees, one a line.

    Raises:
        HeadwiseError: a sentence has no tree.
    """
    with new_text(path) as handle:
        for sentence in sentences:
            if sentence.tree is None:
                raise HeadwiseError(f"{sentence.source or str(sentence)!r} has no tree to write")
            handle.write(bracketed(sentence.tree) + "\n")
