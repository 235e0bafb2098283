"""The kinds of task, in one table: labels, batches, answers, metrics, chance and decoders of each kind.

A kind is one entry of `KINDS`, which everything else reads; docs/extending.md adds one from outside.

Structured labels are small integer arrays: what decoders train on and what `Examples.labels` holds for word
kinds.

- tags: (words,): the class.
- spans: (spans, 3): start, end (exclusive), class.
- dependencies: (words, 3): head (0 = root, k = the k-th word counted from 1), relation class, and 1 if the
word
  counts in the metric (0: punctuation). Of the layer "tree" they are made by head rules
  (`tasks._head_rules`).
- constituents: (constituents, 3): start, end (exclusive), class; a unary chain is one constituent whose class
  name joins it, top to bottom: "S+VP". Then a row (i, i + 1, -1) for every word that does not count in the
  metric (punctuation, as evalb has it).
- roles: (predicates + arguments, 4): predicate word, start, end (exclusive), class; class 0 is "V": one row
  (p, p, p + 1, 0) for every predicate p.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headwise._base.lazy import Registry
from headwise.errors import HeadwiseError
from headwise.tasks._classes import By, class_numbers, find_classes, numbers
from headwise.tasks._head_rules import with_dependencies
from headwise.tasks._sentence import Sentence, Tree, bare_label
from headwise.tasks._sources import Raw

TOPS = ("TOP", "ROOT", "S1", "")
UNCOUNTED = {",", ":", "``", "''", ".", "-NONE-"}  # parts of speech that evalb's usual settings delete
IGNORED = -100  # what cross-entropy leaves out
Row = tuple[Any, ...]


def constituents(tree: Tree) -> list[tuple[int, int, str]]:
    """Phrases (start, end, label), parents first, without the top node, with unary chains joined by "+", top
    to bottom.
    """
    phrases: dict[tuple[int, int], str] = {}
    for start, end, label in tree.spans():
        if label in TOPS:
            continue
        if (start, end) in phrases:  # a unary chain
            phrases[start, end] += f"+{bare_label(label)}"
        else:
            phrases[start, end] = bare_label(label)
    return [(start, end, label) for (start, end), label in phrases.items()]


def punctuation(sentence: Sentence) -> list[bool]:
    """Which words are punctuation: by `upos`, else by relation, else by having no letter or digit."""
    if sentence.upos is not None:
        return [tag == "PUNCT" for tag in sentence.upos]
    if sentence.deprels is not None:
        return [relation == "punct" for relation in sentence.deprels]
    return [not any(map(str.isalnum, word)) for word in sentence.words]


def _tags(sentence: Sentence, value: Any) -> list[Row]:
    return [(tag,) for tag in value]


def _spans(sentence: Sentence, value: Any) -> list[Row]:
    return [tuple(span) for span in value]


def _dependencies(sentence: Sentence, value: Any) -> list[Row]:
    if isinstance(value, Tree):
        sentence = replace(with_dependencies(sentence), upos=None)  # punctuation by the tree's own tags
    heads = sentence.heads or ()
    relations = sentence.deprels or ("dep",) * len(heads)
    counted = [int(not is_punctuation) for is_punctuation in punctuation(sentence)]
    return list(zip(heads, relations, counted, strict=True))


def _constituents(sentence: Sentence, value: Any) -> list[Row]:
    uncounted = [i for i, leaf in enumerate(value.leaves()) if leaf.label in UNCOUNTED]
    return [*constituents(value), *((i, i + 1, None) for i in uncounted)]


def _roles(sentence: Sentence, value: Any) -> list[Row]:
    rows: list[Row] = []
    for predicate in value:
        rows.append((predicate.index, predicate.index, predicate.index + 1, "V"))
        rows.extend((predicate.index, *span) for span in predicate.arguments)
    return rows


Score = Callable[[Any], float]  # the metric of predictions, by the labels that a guess was made for


def constant_answer(score: Score, labels: Any) -> float:
    """The score of the best class to give to every example."""
    gold = np.asarray(labels)
    return max(score(np.full(len(gold), guess)) for guess in np.unique(gold))


def commonest_class(score: Score, labels: Any) -> float:
    """The share of the commonest class among all words."""
    counts = np.bincount(np.concatenate(list(labels)))
    return float(counts.max() / counts.sum())


def number_labels(
    raw: Raw, label: str, classes: Sequence[str], *, by: By, may_miss: bool
) -> NDArray[np.float64]:
    """Labels that are numbers of their own, (n,); see `class_numbers`."""
    return numbers(raw, label, may_miss=may_miss)


@dataclass(frozen=True)
class Kind:
    """One kind of task.

    Attributes:
        reads: what an example is: a "text" (or two as one), the "words" of a sentence, running "tokens", a
            "pair" of texts compared, or a "contrast": two prompts and two answers.
        metrics: names in `tasks.METRICS` that fit, the default first.
        batched: how labels of a batch lie: one row of the labels an "example"; one row a "word", filled up
            with `filling`; a "list" of rows, each led by its example's number; or one number a "token".
        decoder: makes the decoder of a task, with the loss: called with (task, dim, config=, pooling=, and
            the user's options), or its "module:name"; "" where a language model's own head answers.
        head: the transformers head that can answer it: "sequence-classification", "token-classification",
            "causal-lm", "masked-lm", or "" for none.
        output: reads the logits of such a head: called with (logits, batch), or its "module:name".
        counts: what the columns of a prediction count; () where a prediction is one number.
        chance: the metric of a guess that ignores the text: a number, or a function of the metric and the
            labels.
        dtype: of labels in batches.
        numbers: whether labels and predictions are real numbers (else whole ones: classes or tokens).
        one_hot: whether labels have one column a class, 1 where the example is of it, since it may be of
            several.
        masks: whether a batch hides the tokens to predict.
        class_names: finds the classes in the label column of a training table, called with (table, column);
            None: it has no classes, or (word kinds) those of its rows.
        labels: reads the label column of a table, called with (table, column, classes, by=, may_miss=) as
            `class_numbers`; an array with one row an example. None: texts have no labels.
        layers: the layers of `Sentence` that it can be asked of, the default first (word kinds).
        rows: the label rows of a sentence with classes by name (word kinds).
        width: columns of a label row.
        class_column: which of them is the class.
        filling: a row beyond the end of a sentence.
        first: a class that is number 0 whatever the others are called.
        columns: the text columns it has unless told otherwise, where they are not one or two.
        trees: whether batches bring the gold trees made binary.
    """

    reads: Literal["text", "words", "tokens", "pair", "contrast"]
    metrics: tuple[str, ...]
    batched: Literal["example", "word", "list", "token"]
    decoder: str | Callable[..., Any] = ""
    head: str = ""
    output: str | Callable[..., Any] = ""
    counts: tuple[str, ...] = ()
    chance: float | Callable[[Score, Any], float] = 0.0
    dtype: str = "int64"
    numbers: bool = False
    one_hot: bool = False
    masks: bool = False
    class_names: Callable[[Raw, str], Sequence[str]] | None = None
    labels: Callable[..., NDArray[Any]] | None = None
    layers: tuple[str, ...] = ()
    rows: Callable[[Sentence, Any], list[Row]] | None = None
    width: int = 1
    class_column: int = 0
    filling: tuple[int, ...] = (IGNORED,)
    first: str = ""
    columns: tuple[str, ...] = ()
    trees: bool = False

    @property
    def one_answer(self) -> bool:
        """Whether a text has one class or one number, which probes, few-shot trainings and sequence
        classifiers can give.
        """
        return self.reads == "text" and not self.counts

    @property
    def one_class(self) -> bool:
        """Whether a text has one class."""
        return self.one_answer and not self.numbers

    @property
    def tags_words(self) -> bool:
        """Whether every word of a sentence has one class."""
        return self.batched == "word" and self.width == 1

    @property
    def compares(self) -> bool:
        """Whether an example is two texts or answers, of which the first is right."""
        return self.reads in ("pair", "contrast")

    def unlabelled(self, size: int) -> NDArray[Any]:
        """Labels of examples that have none."""
        if self.numbers:
            return np.full(size, np.nan)
        return np.full(size, -1, dtype=np.int64)

    def lacking(self, labels: NDArray[Any]) -> NDArray[np.bool_]:
        """Which examples have no label, (n,)."""
        absent: Any = np.isnan(labels) if self.numbers else labels < 0
        rows: NDArray[np.bool_] = absent.reshape(len(labels), -1).any(axis=1)
        return rows


DECODERS = "headwise.models._decoders"
_COUNTS: Any = {"counts": ("correct", "predicted", "gold")}
_TOKENS: Any = {
    "reads": "tokens",
    "metrics": ("token-accuracy", "perplexity", "bits-per-byte"),
    "batched": "token",
    "counts": ("right", "tokens", "nll", "bytes"),
}

KINDS: Registry[Kind] = Registry(
    "kind of task",
    {
        "classes": Kind(
            "text",
            ("accuracy", "f1", "macro-f1", "matthews"),
            "example",
            decoder=f"{DECODERS}.sequence:build",
            head="sequence-classification",
            output=f"{DECODERS}.sequence:class_output",
            chance=constant_answer,
            class_names=find_classes,
            labels=class_numbers,
        ),
        "number": Kind(
            "text",
            ("spearman", "pearson"),
            "example",
            decoder=f"{DECODERS}.sequence:build",
            head="sequence-classification",
            output=f"{DECODERS}.sequence:number_output",
            dtype="float32",
            numbers=True,
            labels=number_labels,
        ),
        "tags": Kind(
            "words",
            ("count-accuracy", "count-f1"),
            "word",
            decoder=f"{DECODERS}.tagging:build",
            head="token-classification",
            output=f"{DECODERS}.language:tag_output",
            **_COUNTS,
            chance=commonest_class,
            layers=("upos", "xpos", "deprels"),
            rows=_tags,
        ),
        "spans": Kind(
            "words",
            ("count-f1",),
            "list",
            decoder=f"{DECODERS}.spans:build",
            **_COUNTS,
            layers=("entities",),
            rows=_spans,
            width=3,
            class_column=2,
        ),
        "dependencies": Kind(
            "words",
            ("las", "uas"),
            "word",
            decoder=f"{DECODERS}.dependencies:build",
            counts=("correct", "predicted", "gold", "correct_arcs"),
            layers=("heads", "tree"),
            rows=_dependencies,
            width=3,
            class_column=1,
            filling=(IGNORED, IGNORED, 0),
        ),
        "constituents": Kind(
            "words",
            ("count-f1",),
            "list",
            decoder=f"{DECODERS}.constituents:build",
            **_COUNTS,
            layers=("tree",),
            rows=_constituents,
            width=3,
            class_column=2,
            trees=True,
        ),
        "roles": Kind(
            "words",
            ("count-f1",),
            "list",
            decoder=f"{DECODERS}.semantic_roles:build",
            **_COUNTS,
            layers=("roles",),
            rows=_roles,
            width=4,
            class_column=3,
            first="V",
        ),
        "next-token": Kind(head="causal-lm", output=f"{DECODERS}.language:next_token_output", **_TOKENS),
        "masked-token": Kind(
            head="masked-lm", output=f"{DECODERS}.language:masked_token_output", masks=True, **_TOKENS
        ),
        "minimal-pairs": Kind(
            "pair",
            ("accuracy",),
            "token",
            head="causal-lm",
            output=f"{DECODERS}.language:minimal_pair_output",
            chance=0.5,
        ),
        "contrast": Kind(
            "contrast",
            ("logit-difference",),
            "example",
            head="causal-lm",
            output=f"{DECODERS}.language:contrast_output",
            numbers=True,
            columns=("clean", "corrupted", "answer", "other"),
        ),
    },
)


def check_one_answer(task: str, kind: str, use: str) -> None:
    """Refuses tasks whose texts have more than one class or number; `use` says what cannot read them.

    Raises:
        HeadwiseError: the kind is another.
    """
    if not KINDS[kind].one_answer:
        fitting = " and ".join(name for name, entry in KINDS.items() if entry.one_answer)
        raise HeadwiseError(f"task {task!r} is of kind {kind!r}; {use} tasks of kind {fitting}")


def rows(sentence: Sentence, kind: str, layer: str) -> list[Row]:
    """The label rows of one sentence with the class still by name.

    Raises:
        HeadwiseError: the sentence lacks the layer.
    """
    value, read = getattr(sentence, layer), KINDS[kind].rows
    if value is None:
        raise HeadwiseError(
            f"{sentence.source or str(sentence)!r} has no layer {layer!r}, which a task of kind {kind!r} "
            "needs"
        )
    assert read is not None
    return read(sentence, value)


def class_names(names: Iterable[str], kind: str) -> list[str]:
    """Class names without repetition, sorted ("V" first for roles)."""
    first = KINDS[kind].first
    if not first:
        return sorted(set(names))
    return [first, *sorted(set(names) - {first})]


def to_array(rows: Sequence[Row], kind: str, numbers: Mapping[str | None, int]) -> NDArray[np.int64]:
    """Rows with class names as the integer array that the top of this module describes.

    Args:
        rows: of one sentence.
        kind: the kind of task.
        numbers: of the classes by name; -1 for None.
    """
    width, column = KINDS[kind].width, KINDS[kind].class_column
    numbered = [(*row[:column], numbers[row[column]], *row[column + 1 :]) for row in rows]
    labels = np.array(numbered, dtype=np.int64).reshape(-1, width)
    return labels[:, 0] if width == 1 else labels
