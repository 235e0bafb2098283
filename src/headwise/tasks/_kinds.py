"""The kinds of task, in one table: what labels, batches, answers, metrics, chance and decoders of each kind are.

To add a kind, add its entry to `KINDS` and its decoder to `headwise.models`; everything else reads the table.

Structured labels are small integer arrays: what decoders train on and what `Examples.labels` holds for word kinds.

tags: (words,): the class.
spans: (spans, 3): start, end (exclusive), class.
dependencies: (words, 3): head (0 = root, k = the k-th word counted from 1), relation class, and 1 if the word counts in the metric
(0: punctuation). Of the layer "tree" they are made by head rules (`tasks._head_rules`).
constituents: (constituents, 3): start, end (exclusive), class; a unary chain is one constituent whose class name joins it, top to bottom:
"S+VP". Then a row (i, i + 1, -1) for every word that does not count in the metric (punctuation, as evalb has it).
roles: (predicates + arguments, 4): predicate word, start, end (exclusive), class; class 0 is "V": one row (p, p, p + 1, 0) for every
predicate p.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headwise.errors import HeadwiseError
from headwise.tasks._head_rules import with_dependencies
from headwise.tasks._sentence import Sentence, Tree, bare

TOPS = ("TOP", "ROOT", "S1", "")
UNCOUNTED = {",", ":", "``", "''", ".", "-NONE-"}  # parts of speech that evalb's usual settings delete
IGNORED = -100  # what cross-entropy leaves out
Row = tuple[Any, ...]


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


def punctuation(sentence: Sentence) -> list[bool]:
    """Which words are punctuation: by `upos`, else by relation, else by having no letter or digit."""
    if sentence.upos is not None:
        return [tag == "PUNCT" for tag in sentence.upos]
    if sentence.deprels is not None:
        return [relation == "punct" for relation in sentence.deprels]
    return [not any(char.isalnum() for char in word) for word in sentence.words]


def _tags(sentence: Sentence, value: Any) -> list[Row]:
    return [(tag,) for tag in value]


def _spans(sentence: Sentence, value: Any) -> list[Row]:
    return [tuple(span) for span in value]


def _dependencies(sentence: Sentence, value: Any) -> list[Row]:
    if isinstance(value, Tree):
        sentence = replace(with_dependencies(sentence), upos=None)  # punctuation by the tree's own tags
    heads = sentence.heads or ()
    relations = sentence.deprels or ("dep",) * len(heads)
    dots = punctuation(sentence)
    return [(head, relation, int(not dot)) for head, relation, dot in zip(heads, relations, dots, strict=True)]


def _constituents(sentence: Sentence, value: Any) -> list[Row]:
    dots = [i for i, leaf in enumerate(value.leaves()) if leaf.label in UNCOUNTED]
    return [*constituents(value), *((i, i + 1, None) for i in dots)]


def _roles(sentence: Sentence, value: Any) -> list[Row]:
    found: list[Row] = []
    for predicate in value:
        found.append((predicate.index, predicate.index, predicate.index + 1, "V"))
        found.extend((predicate.index, *span) for span in predicate.arguments)
    return found


@dataclass(frozen=True)
class Kind:
    """One kind of task.

    Attributes:
        reads: what an example is: a "text" (or two as one), the "words" of a sentence, running "tokens", a "pair" of texts compared,
            or a "contrast": two prompts and two answers.
        metrics: names in `tasks.METRICS` that fit, the default first.
        batched: how labels of a batch lie: one number an "example"; one row a "word", filled up with `filling`; a "list" of rows, each
            led by its example's number; or one number a "token".
        decoder: the module of headwise/models/_decoders whose `build` makes its decoder; "" where a language model's own head answers.
        head: the transformers head that can answer it: "sequence-classification", "token-classification", "causal-lm", "masked-lm", or
            "" for none.
        counts: what the columns of a prediction count; () where a prediction is one number.
        chance: the metric of a guess that ignores the text: a number, "constant" (the best constant class), or "commonest" (the
            share of the commonest class among all words).
        dtype: of labels in batches.
        numbers: whether labels and predictions are real numbers (else whole ones: classes or tokens).
        masks: whether a batch hides the tokens to predict.
        layers: the layers of `Sentence` that it can be asked of, the default first (word kinds).
        rows: the label rows of a sentence with classes by name (word kinds).
        width: columns of a label row.
        place: which of them is the class.
        filling: a row beyond the end of a sentence.
        first: a class that is number 0 whatever the others are called.
        columns: the text columns it has unless told otherwise, where they are not one or two.
        trees: whether batches bring the gold trees made binary.
    """

    reads: Literal["text", "words", "tokens", "pair", "contrast"]
    metrics: tuple[str, ...]
    batched: Literal["example", "word", "list", "token"]
    decoder: str = ""
    head: str = ""
    counts: tuple[str, ...] = ()
    chance: float | Literal["constant", "commonest"] = 0.0
    dtype: str = "int64"
    numbers: bool = False
    masks: bool = False
    layers: tuple[str, ...] = ()
    rows: Callable[[Sentence, Any], list[Row]] | None = None
    width: int = 1
    place: int = 0
    filling: tuple[int, ...] = (IGNORED,)
    first: str = ""
    columns: tuple[str, ...] = ()
    trees: bool = False


_FOUND: Any = {"counts": ("correct", "predicted", "gold")}
_TOKENS: Any = {
    "reads": "tokens",
    "metrics": ("token-accuracy", "perplexity", "bits-per-byte"),
    "batched": "token",
    "counts": ("right", "tokens", "nll", "bytes"),
}

KINDS: dict[str, Kind] = {
    "classes": Kind(
        "text",
        ("accuracy", "f1", "macro-f1", "matthews"),
        "example",
        decoder="sequence",
        head="sequence-classification",
        chance="constant",
    ),
    "number": Kind(
        "text",
        ("spearman", "pearson"),
        "example",
        decoder="sequence",
        head="sequence-classification",
        dtype="float32",
        numbers=True,
    ),
    "tags": Kind(
        "words",
        ("count-accuracy", "count-f1"),
        "word",
        decoder="tagging",
        head="token-classification",
        **_FOUND,
        chance="commonest",
        layers=("upos", "xpos", "deprels"),
        rows=_tags,
    ),
    "spans": Kind("words", ("count-f1",), "list", decoder="spans", **_FOUND, layers=("entities",), rows=_spans, width=3, place=2),
    "dependencies": Kind(
        "words",
        ("las", "uas"),
        "word",
        decoder="dependencies",
        counts=("correct", "predicted", "gold", "correct_arcs"),
        layers=("heads", "tree"),
        rows=_dependencies,
        width=3,
        place=1,
        filling=(IGNORED, IGNORED, 0),
    ),
    "constituents": Kind(
        "words",
        ("count-f1",),
        "list",
        decoder="constituents",
        **_FOUND,
        layers=("tree",),
        rows=_constituents,
        width=3,
        place=2,
        trees=True,
    ),
    "roles": Kind(
        "words",
        ("count-f1",),
        "list",
        decoder="semantic_roles",
        **_FOUND,
        layers=("roles",),
        rows=_roles,
        width=4,
        place=3,
        first="V",
    ),
    "next-token": Kind(head="causal-lm", **_TOKENS),
    "masked-token": Kind(head="masked-lm", masks=True, **_TOKENS),
    "minimal-pairs": Kind("pair", ("accuracy",), "token", head="causal-lm", chance=0.5),
    "contrast": Kind(
        "contrast",
        ("logit-difference",),
        "example",
        head="causal-lm",
        numbers=True,
        columns=("clean", "corrupted", "answer", "other"),
    ),
}
SEQUENCE_KINDS = tuple(name for name, kind in KINDS.items() if kind.reads == "text")
WORD_KINDS = tuple(name for name, kind in KINDS.items() if kind.reads == "words")
TOKEN_KINDS = tuple(name for name, kind in KINDS.items() if kind.reads == "tokens")


def rows(sentence: Sentence, kind: str, layer: str) -> list[Row]:
    """The label rows of one sentence with the class still by name.

    Raises:
        HeadwiseError: the sentence lacks the layer.
    """
    value, read = getattr(sentence, layer), KINDS[kind].rows
    if value is None:
        raise HeadwiseError(f"{sentence.source or str(sentence)!r} has no layer {layer!r}, which a task of kind {kind!r} needs")
    assert read is not None
    return read(sentence, value)


def class_names(found: Iterable[list[Row]], kind: str) -> list[str]:
    """The class names in use, sorted ("V" first for roles)."""
    place, first = KINDS[kind].place, KINDS[kind].first
    names = {row[place] for sentence in found for row in sentence} - {None}
    return [first, *sorted(names - {first})] if first else sorted(names)


def to_array(found: Sequence[Row], kind: str, number: dict[str, int]) -> NDArray[np.int64]:
    """Rows with class names as the integer array that the top of this module describes."""
    width, place = KINDS[kind].width, KINDS[kind].place
    numbered = [[*row[:place], -1 if row[place] is None else number[row[place]], *row[place + 1 :]] for row in found]
    out = np.array(numbered, dtype=np.int64).reshape(-1, width)
    return out[:, 0] if width == 1 else out
