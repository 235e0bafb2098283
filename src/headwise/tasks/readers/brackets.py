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
        HeadwiseError: unbalanced brackets, a word without a part of speech, text around the tree, or one too
            deep.
    """
    tokens = text.replace("(", " ( ").replace(")", " ) ").split()
    stack: list[tuple[str, list[Tree], list[str]]] = []  # label, children, words
    done: Tree | None = None
    for number, token in enumerate(tokens):
        if done is not None:
            raise HeadwiseError(f"{where}: {token!r} after the end of the tree: brackets are unbalanced")
        if token == "(":
            if len(stack) == DEEPEST:
                raise HeadwiseError(f"{where}: the tree is more than {DEEPEST} phrases deep")
            label = tokens[number + 1] if number + 1 < len(tokens) else ""
            stack.append(("" if label in ("(", ")") else label, [], []))
        elif token == ")":
            if not stack:
                raise HeadwiseError(f"{where}: a bracket closes that was never opened")
            label, children, words = stack.pop()
            if label:
                words = words[1:]  # the label is the first bare token of its bracket
            if bool(children) == bool(words) or len(words) > 1:
                ellipsis = " ..." if children else ""
                raise HeadwiseError(
                    f"{where}: ({label} {' '.join(words)}{ellipsis}) is neither a phrase "
                    "nor a part of speech over one word"
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
    if stack:
        raise HeadwiseError(f"{where}: {len(stack)} brackets are never closed")
    if done is None:
        raise HeadwiseError(f"{where} is empty")
    return done


def without_traces(tree: Tree) -> Tree | None:
    """The tree without empty elements (-NONE-) and the phrases that hold nothing else."""
    if not tree.children and tree.label == "-NONE-":
        return None
    if not tree.children:
        return tree
    children = tuple(filter(None, map(without_traces, tree.children)))
    return Tree(tree.label, children) if children else None


class _TreeText(NamedTuple):
    where: str
    text: str


def read(path: str | Path, *, skip_bad: bool = False) -> list[Sentence]:
    """Reads a file of bracketed trees as sentences with `tree` and `xpos`; traces are removed, function tags
    stay.

    Raises:
        HeadwiseError: a malformed tree, by file, line and number.
    """
    path = Path(path)
    return gather(_tree_texts(path), _sentence, skip_bad, path)


def _sentence(source: _TreeText) -> Sentence:
    tree = without_traces(parse(source.text, source.where))
    if tree is None:
        raise HeadwiseError(f"{source.where}: the tree holds no word")
    xpos = tuple(leaf.label for leaf in tree.leaves())
    return Sentence(tree.words(), xpos=xpos, tree=tree, source=source.where)


def _tree_texts(path: Path) -> Iterator[_TreeText]:
    """The file cut into trees: where brackets balance, or (so that one bad tree spoils no other) at a line
    that starts a new one.
    """
    depth, first, number = 0, 1, 1
    lines: list[str] = []
    with open_text(path) as handle:
        for line_number, line in enumerate(handle, 1):
            if lines and (line.startswith("(") or depth <= 0):
                yield _TreeText(f"{path}, line {first} (sentence {number})", "".join(lines))
                lines, depth = [], 0
                number += 1
            if line.strip():
                if not lines:
                    first = line_number
                lines.append(line)
                depth += line.count("(") - line.count(")")
    if lines:
        yield _TreeText(f"{path}, line {first} (sentence {number})", "".join(lines))


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
