"""From raw tables to Examples: texts checked, labels numbered, bad rows named by file, row and value."""

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise._base.names import HALF, listed, shown, writable
from headwise.errors import HeadwiseError
from headwise.tasks import _kinds as kinds
from headwise.tasks._classes import By, class_name, named, warn_of_names
from headwise.tasks._columns import column, column_values, known, missing
from headwise.tasks._examples import Examples
from headwise.tasks._kinds import KINDS
from headwise.tasks._sentence import Sentence
from headwise.tasks._sources import Raw
from headwise.tasks._splits import text_numbers
from headwise.tasks._texts import keep_texts

LAYERS = (
    "upos",
    "xpos",
    "heads",
    "deprels",
    "entities",
    "tree",
    "roles",
)  # of sentences, that tasks can be asked of


def text_columns(task: str, text: str | Sequence[str], kind: str | None) -> tuple[str, ...]:
    """The text columns of a task: one or two, or as many as its kind has.

    Raises:
        HeadwiseError: it names another number.
    """
    own = KINDS[kind].columns if kind is not None else ()
    named = (text,) if isinstance(text, str) else tuple(text)
    if own and named == ("text",):
        return own
    if len(named) not in ((len(own),) if own else (1, 2)):
        wanted = f"{len(own)} columns ({', '.join(own)})" if own else "one or two columns"
        raise HeadwiseError(f"task {task!r}: text= names {wanted}, got {named!r}")
    if len(set(named)) < len(named):
        raise HeadwiseError(f"task {task!r}: text= names the column {named[0]!r} twice")
    return named


def texts(raw: Raw, columns: Sequence[str]) -> Sequence[tuple[str, ...]]:
    """The text columns as tuples of strings; an empty or missing text is an error."""
    rows = zip(*(column_values(raw, name) for name in columns), strict=True)
    return keep_texts((_checked(raw, columns, number, row) for number, row in enumerate(rows)), len(raw))


def without_empty(task: str, raw: Raw, columns: Sequence[str]) -> Raw:
    """The table without the rows in which a text is empty or missing; a warning says how many there were, and which was the first."""
    rows = zip(*(column_values(raw, name) for name in columns), strict=True)
    empty = np.fromiter((any(_blank(value) for value in row) for row in rows), bool, len(raw))
    if not empty.any():
        return raw
    first = raw.where(int(empty.argmax()))
    warnings.warn(
        f"task {task!r}: {empty.sum():,} of {len(raw):,} rows have an empty text and are left out; the first: {first}",
        stacklevel=5,
    )
    left = np.arange(len(raw)) if raw.rows is None else raw.rows
    return replace(raw, rows=left[~empty])


def _blank(value: Any) -> bool:
    return missing(value) or (isinstance(value, str) and not value.strip())


def _checked(raw: Raw, columns: Sequence[str], number: int, row: tuple[Any, ...]) -> tuple[str, ...]:
    for name, value in zip(columns, row, strict=True):
        if _blank(value):
            raise HeadwiseError(
                f"{raw.where(number)}: {name} is empty; fix or remove the row, or leave out such rows with drop_empty=True"
            )
        if not isinstance(value, str):
            raise HeadwiseError(
                f"{raw.where(number)}: {name} is {shown(value)}, not text; fix or remove the row"
            )
        if not writable(value):
            raise HeadwiseError(f"{raw.where(number)}: {name} {HALF}; fix or remove the row")
    return row


def plain(
    raw: Raw,
    kind: str,
    text: Sequence[str],
    label: str,
    classes: Sequence[str],
    *,
    by: By,
    may_miss: bool,
) -> Examples:
    """Examples of a table of texts (every kind but the word kinds); `by` and `may_miss` as for `class_numbers`."""
    found = texts(raw, text)
    _warn_of_ties(raw, kind, text, found)
    entry = KINDS[kind]
    if entry.labels is not None and label in text:
        raise HeadwiseError(
            f"{raw.origin}: the column {label!r} is both the text and the label; name another with text= or label="
        )
    labels: NDArray[Any] = np.zeros(len(found), dtype=np.int64)
    if entry.labels is not None:
        without = may_miss and known(raw, label) is None
        labels = (
            entry.unlabelled(len(found))
            if without
            else entry.labels(raw, label, classes, by=by, may_miss=may_miss)
        )
    return Examples(found, labels, kind, tuple(classes))


def _warn_of_ties(raw: Raw, kind: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> None:
    """Warns of rows in which the two texts that a kind compares, the last two, are one text (BLiMP has seven)."""
    if KINDS[kind].compares:
        same = [number for number, row in enumerate(rows) if row[-1] == row[-2]]
        if same:
            warnings.warn(
                f"{raw.where(same[0])}: {columns[-2]} and {columns[-1]} are the same text, which no model can tell apart; so they are in "
                f"{len(same):,} of {len(rows):,} rows",
                stacklevel=5,
            )


def warn_of_gaps(task: str, split: str, examples: Examples) -> None:
    """Warns of a split in which some examples have labels and others none: it has no score."""
    if isinstance(examples.labels, list) or examples.labelled:
        return
    lacking = KINDS[examples.kind].lacking(examples.labels)
    if not lacking.all():
        warnings.warn(
            f"task {task!r}: {lacking.sum():,} of the {len(examples):,} {split} examples have no label, so this split has no score; fix "
            "them, or leave such rows out with skip_unlabelled=True",
            stacklevel=5,
        )


def tagged_sentences(raw: Raw, kind: str, words: str, label: str) -> list[Sentence]:
    """Sentences from a table with a column of word lists and a column of tag lists (BIO tags for spans)."""
    from headwise.tasks.readers.tags import spans_from_tags

    names = named(raw, label)
    found = []
    for row, (word_list, tags) in enumerate(zip(column(raw, words), column(raw, label), strict=True)):
        where = raw.where(row)
        lists = all(isinstance(one, (list, tuple, np.ndarray)) for one in (word_list, tags))
        if not lists or len(word_list) != len(tags) or len(tags) == 0:
            raise HeadwiseError(
                f"{where}: {words} and {label} must be lists of equal length, at least 1, got {shown(word_list)} and {shown(tags)}"
            )
        if names and not all(isinstance(tag, (int, np.integer)) and 0 <= tag < len(names) for tag in tags):
            raise HeadwiseError(
                f"{where}: {label} is {shown(list(tags))}; expected numbers of the {len(names)} tags the source names"
            )
        gap = next(
            (i for i, pair in enumerate(zip(word_list, tags, strict=True), 1) if any(map(_blank, pair))), None
        )
        if gap is not None:
            raise HeadwiseError(f"{where}: word {gap} or its tag is empty; fix or remove the row")
        tag_names = [names[int(tag)] if names else class_name(tag, where) for tag in tags]
        if not all(writable(part) for part in (*map(str, word_list), *tag_names)):
            raise HeadwiseError(f"{where}: a word or tag {HALF}; fix or remove the row")
        sentence = tuple(str(word) for word in word_list)
        if KINDS[kind].layers[0] == "entities":
            found.append(
                Sentence(sentence, entities=tuple(spans_from_tags(tag_names, "bio", where)), source=where)
            )
        else:
            found.append(Sentence(sentence, upos=tuple(tag_names), source=where))
    return found


def annotated(
    task: str, raw: Mapping[str, Raw], kind: str, words: str, label: str | None, classes: Sequence[str] | None
) -> dict[str, Examples]:
    """Examples of a word kind, of annotated sentences or of tables with word lists; `label` is the layer, or the table's column."""
    layer = label or KINDS[kind].layers[0]
    sentences = {split: part.sentences for split, part in raw.items() if part.sentences is not None}
    for split in [split for split in raw if split not in sentences]:
        sentences[split] = tagged_sentences(raw[split], kind, words, label or "label")
    if any(part.sentences is None for part in raw.values()):
        layer = KINDS[kind].layers[0]
    elif layer not in KINDS[kind].layers:
        raise HeadwiseError(
            f"task {task!r}: label={layer!r} does not fit {kind!r}: {', '.join(KINDS[kind].layers)}"
        )
    found = word_level(sentences, kind, layer, classes)
    if not found:
        held = [
            name
            for name in LAYERS
            if any(getattr(s, name) is not None for part in sentences.values() for s in part)
        ]
        fits = next((name for name in held if name in KINDS[kind].layers), None)
        remedy = f"; for those give label={fits!r}" if fits else ""
        raise HeadwiseError(
            f"task {task!r}: no sentence has the layer {layer!r}; they have: {', '.join(held) or 'none'}{remedy}"
        )
    return found


def word_level(
    by_split: Mapping[str, list[Sentence]], kind: str, layer: str, classes: Sequence[str] | None
) -> dict[str, Examples]:
    """Examples of annotated sentences; sentences without the layer are left out.

    Classes found only outside the training split are numbered after those of training: rare relations and phrase labels
    are too common an accident for an error, and their numbers change nothing for the others.
    """
    every_sentence = by_split
    by_split = {}
    for split, sentences in every_sentence.items():
        by_split[split] = [sentence for sentence in sentences if getattr(sentence, layer) is not None]
    lost = [split for split, sentences in every_sentence.items() if sentences and not by_split[split]]
    if lost and len(lost) < len(by_split):
        warnings.warn(
            f"no sentence of the split {listed(lost)} has the layer {layer!r}, so it is left out",
            stacklevel=5,
        )
    rows_by_split = {}
    counts: dict[str, Counter[str]] = {}  # of class names
    class_column = KINDS[kind].class_column
    for split, sentences in by_split.items():
        sentence_rows = [kinds.rows(sentence, kind, layer) for sentence in sentences]
        rows_by_split[split] = sentence_rows
        counts[split] = Counter(row[class_column] for row in chain.from_iterable(sentence_rows))
        del counts[split][None]
    training_counts = counts.get("train", Counter())
    names = list(classes or kinds.class_names(training_counts, kind))
    if classes is None:
        warn_of_names(training_counts, f"the training split ({kind})")
    in_use = kinds.class_names(chain.from_iterable(counts.values()), kind)
    extra = [name for name in in_use if name not in set(names)]
    if classes is not None and extra:
        raise HeadwiseError(f"labels {listed(extra, 10)} occur in the data but not in classes=")
    names += extra
    numbers = {None: -1} | {name: i for i, name in enumerate(names)}
    return {
        split: Examples(
            [(str(sentence),) for sentence in sentences],
            [kinds.to_array(rows, kind, numbers) for rows in rows_by_split[split]],
            kind,
            tuple(names),
            sentences=sentences,
        )
        for split, sentences in by_split.items()
        if sentences
    }


def check(task: str, splits: Mapping[str, Examples]) -> None:
    """What a split alone cannot show: one class only, and texts shared between splits (a warning with the count)."""
    train = splits.get("train")
    if train is not None and KINDS[train.kind].one_answer and len(np.unique(np.asarray(train.labels))) < 2:
        what = train.classes[int(train.labels[0])] if train.classes and len(train) else str(train.labels[:1])
        raise HeadwiseError(
            f"task {task!r}: all {len(train)} training examples have the label {what}; at least two are needed"
        )
    if train is None or KINDS[train.kind].reads == "tokens":
        return
    seen = text_numbers(train.texts)
    for name, examples in splits.items():
        shared = int(np.isin(text_numbers(examples.texts), seen).sum()) if name != "train" else 0
        if shared and (KINDS[train.kind].reads != "words" or shared > len(examples) / 2):
            share = f"{shared} of the {len(examples)} {name} examples"
            warnings.warn(f"task {task!r}: {share} also occur in the training split", stacklevel=4)
