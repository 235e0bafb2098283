"""Structured labels as small integer arrays: what decoders train on and what `Examples.labels` holds for them.

tags: (words,): the class.
spans: (spans, 3): start, end (exclusive), class.
dependencies: (words, 3): head (0 = root, k = the k-th word counted from 1), relation class, and 1 if the word counts in the metric
(0: punctuation).
constituents: (constituents, 3): start, end (exclusive), class; a unary chain is one constituent whose class name joins it, top to bottom:
"S+VP". Then a row (i, i + 1, -1) for every word that does not count in the metric (punctuation, as evalb has it).
roles: (predicates + arguments, 4): predicate word, start, end (exclusive), class; class 0 is "V": one row (p, p, p + 1, 0) for every
predicate p.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import HeadwiseError
from headwise.tasks.sentence import Sentence, Tree

# kind -> the layers of Sentence it can be asked of, the first being the default
LAYERS: dict[str, tuple[str, ...]] = {
    "tags": ("upos", "xpos", "deprels"),
    "spans": ("entities",),
    "dependencies": ("heads",),
    "constituents": ("tree",),
    "roles": ("roles",),
}
TOPS = ("TOP", "ROOT", "S1", "")
UNCOUNTED = {",", ":", "``", "''", ".", "-NONE-"}  # parts of speech that evalb's usual settings delete
Row = tuple[Any, ...]


def bare(label: str) -> str:
    """A phrase label without function tags and indices: "NP-SBJ-1" -> "NP"; "-LRB-" stays."""
    return label if label.startswith("-") else label.split("-")[0].split("=")[0]


def constituents(tree: Tree) -> list[tuple[int, int, str]]:
    """Phrases (start, end, label), parents first, without the top node, with unary chains joined by "+", top to bottom."""
    found: list[tuple[int, int, str]] = []
    for start, end, label in tree.spans():
        if label in TOPS:
            continue
        if found and found[-1][:2] == (start, end):
            found[-1] = (start, end, f"{found[-1][2]}+{bare(label)}")
        else:
            found.append((start, end, bare(label)))
    return found


def rows(sentence: Sentence, kind: str, layer: str) -> list[Row]:
    """The label rows of one sentence with the class still by name, in the last column (dependencies: in the second of three).

    Raises:
        HeadwiseError: the sentence lacks the layer.
    """
    value = getattr(sentence, layer)
    if value is None:
        raise HeadwiseError(f"{sentence.source or str(sentence)!r} has no layer {layer!r}, which a task of kind {kind!r} needs")
    if kind == "tags":
        return [(tag,) for tag in value]
    if kind == "spans":
        return [tuple(span) for span in value]
    if kind == "dependencies":
        relations = sentence.deprels or ("dep",) * len(value)
        counted = punctuation(sentence)
        return [(head, relation, int(not dot)) for head, relation, dot in zip(value, relations, counted, strict=True)]
    if kind == "constituents":
        dots = [i for i, leaf in enumerate(value.leaves()) if leaf.label in UNCOUNTED]
        return [*constituents(value), *((i, i + 1, None) for i in dots)]
    found: list[Row] = []
    for predicate in value:
        found.append((predicate.index, predicate.index, predicate.index + 1, "V"))
        found.extend((predicate.index, *span) for span in predicate.arguments)
    return found


def punctuation(sentence: Sentence) -> list[bool]:
    """Which words are punctuation: by `upos`, else by relation, else by having no letter or digit."""
    if sentence.upos is not None:
        return [tag == "PUNCT" for tag in sentence.upos]
    if sentence.deprels is not None:
        return [relation == "punct" for relation in sentence.deprels]
    return [not any(char.isalnum() for char in word) for word in sentence.words]


def class_names(found: Iterable[list[Row]], kind: str) -> list[str]:
    """The class names in use, sorted ("V" first for roles)."""
    place = 1 if kind == "dependencies" else -1
    names = {row[place] for sentence in found for row in sentence} - {None}
    return ["V", *sorted(names - {"V"})] if kind == "roles" else sorted(names)


def to_array(found: Sequence[Row], kind: str, number: dict[str, int]) -> NDArray[np.int64]:
    """Rows with class names as the integer array the table above describes."""
    width = {"tags": 1, "spans": 3, "dependencies": 3, "constituents": 3, "roles": 4}[kind]
    place = 1 if kind == "dependencies" else width - 1
    numbered = [[*row[:place], -1 if row[place] is None else number[row[place]], *row[place + 1 :]] for row in found]
    out = np.array(numbered, dtype=np.int64).reshape(-1, width)
    return out[:, 0] if kind == "tags" else out
