"""From raw tables to Examples: texts checked, labels numbered, bad rows named by file, row and value."""

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise._base.names import HALF, listed, shown, writable
from headwise.errors import HeadwiseError
from headwise.tasks import _kinds as kinds
from headwise.tasks._classes import LISTS, By, class_name, named, warn_of_names
from headwise.tasks._columns import column, column_name, column_values, missing
from headwise.tasks._examples import Examples
from headwise.tasks._kinds import KINDS
from headwise.tasks._sentence import Sentence, has_layer
from headwise.tasks._sources import Raw
from headwise.tasks._splits import text_numbers
from headwise.tasks._texts import keep_texts
from headwise.tasks.readers import spans_from_tags

# of sentences, that tasks can be asked of
LAYERS = ("upos", "xpos", "heads", "deprels", "entities", "tree", "roles")


def text_columns(task: str, text: str | Sequence[str], kind: str | None) -> tuple[str, ...]:
    """The text columns of a task: one or two, or as many as its kind has.

    Raises:
        HeadwiseError: it names another number.
    """
    columns = (text,) if isinstance(text, str) else tuple(text)
    if kind is not None and KINDS[kind].columns:
        kind_columns = KINDS[kind].columns
        if columns == ("text",):
            return kind_columns
        expected = f"{len(kind_columns)} columns ({', '.join(kind_columns)})"
        fits = len(columns) == len(kind_columns)
    else:
        expected, fits = "one or two columns", len(columns) in (1, 2)
    if not fits:
        raise HeadwiseError(f"task {task!r}: text= names {expected}, got {columns!r}")
    if len(set(columns)) < len(columns):
        raise HeadwiseError(f"task {task!r}: text= names the column {columns[0]!r} twice")
    return columns


def _texts(raw: Raw, columns: Sequence[str]) -> Sequence[tuple[str, ...]]:
    """The text columns as tuples of strings; an empty or missing text is an error."""
    rows = zip(*(column_values(raw, name) for name in columns), strict=True)
    return keep_texts((_checked(raw, columns, number, row) for number, row in enumerate(rows)), len(raw))


def without_empty(task: str, raw: Raw, columns: Sequence[str]) -> Raw:
    """The table without the rows in which a text is empty or missing; a warning says how many there were, and
    which was the first.
    """
    empty = np.zeros(len(raw), bool)
    for name in columns:
        empty |= np.fromiter(map(_blank, column_values(raw, name)), bool, len(raw))
    if not empty.any():
        return raw
    first = raw.where(int(empty.argmax()))
    warnings.warn(
        f"task {task!r}: {empty.sum():,} of {len(raw):,} rows have an empty text and are left out; "
        f"the first: {first}",
        stacklevel=5,
    )
    return raw.subset(np.flatnonzero(~empty))


def _blank(value: Any) -> bool:
    return missing(value) or (isinstance(value, str) and not value.strip())


def _checked(raw: Raw, columns: Sequence[str], number: int, row: tuple[Any, ...]) -> tuple[str, ...]:
    for name, value in zip(columns, row, strict=True):
        if _blank(value):
            raise HeadwiseError(
                f"{raw.where(number)}: {name} is empty; fix or remove the row, "
                "or leave out such rows with drop_empty=True"
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
    """Examples of a table of texts (every kind but the word kinds); `by` and `may_miss` as for
    `class_numbers`.
    """
    texts = _texts(raw, text)
    _warn_of_ties(raw, kind, text, texts)
    read_labels = KINDS[kind].labels
    if read_labels is None:
        labels: NDArray[Any] = np.zeros(len(texts), dtype=np.int64)
    elif label in text:
        raise HeadwiseError(
            f"{raw.origin}: the column {label!r} is both the text and the label; "
            "name another with text= or label="
        )
    elif may_miss and column_name(raw, label) is None:
        labels = KINDS[kind].unlabelled(len(texts))
    else:
        labels = read_labels(raw, label, classes, by=by, may_miss=may_miss)
    return Examples(texts, labels, kind, tuple(classes))


def _warn_of_ties(raw: Raw, kind: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> None:
    """Warns of rows in which the two texts that a kind compares, the last two, are one text (BLiMP has
    seven).
    """
    if not KINDS[kind].compares:
        return
    same = [number for number, row in enumerate(rows) if row[-1] == row[-2]]
    if same:
        warnings.warn(
            f"{raw.where(same[0])}: {columns[-2]} and {columns[-1]} are the same text, which no model can "
            "tell "
            f"apart; so they are in {len(same):,} of {len(rows):,} rows",
            stacklevel=5,
        )


def warn_of_gaps(task: str, split: str, examples: Examples) -> None:
    """Warns of a split in which some examples have labels and others none: it has no score."""
    if isinstance(examples.labels, list) or examples.labelled:
        return
    lacking = KINDS[examples.kind].lacking(examples.labels)
    if not lacking.all():
        warnings.warn(
            f"task {task!r}: {lacking.sum():,} of the {len(examples):,} {split} examples have no label, "
            "so this split has no score; fix them, or leave such rows out with skip_unlabelled=True",
            stacklevel=5,
        )


def tagged_sentences(raw: Raw, kind: str, words: str, label: str) -> list[Sentence]:
    """Sentences from a table with a column of word lists and a column of tag lists (BIO tags for spans)."""
    names = named(raw, label)
    sentences = []
    for row, (word_list, tags) in enumerate(zip(column(raw, words), column(raw, label), strict=True)):
        where = raw.where(row)
        are_lists = isinstance(word_list, LISTS) and isinstance(tags, LISTS)
        if not are_lists or len(word_list) != len(tags) or len(tags) == 0:
            raise HeadwiseError(
                f"{where}: {words} and {label} must be lists of equal length, at least 1, "
                f"got {shown(word_list)} and {shown(tags)}"
            )
        if names and not all(isinstance(tag, (int, np.integer)) and 0 <= tag < len(names) for tag in tags):
            raise HeadwiseError(
                f"{where}: {label} is {shown(list(tags))}; "
                f"expected numbers of the {len(names)} tags the source names"
            )
        for number, (word, tag) in enumerate(zip(word_list, tags, strict=True), 1):
            if _blank(word) or _blank(tag):
                raise HeadwiseError(f"{where}: word {number} or its tag is empty; fix or remove the row")
        word_list = tuple(map(str, word_list))
        if names:
            tags = tuple(names[int(tag)] for tag in tags)
        else:
            tags = tuple(class_name(tag, where) for tag in tags)
        if not all(map(writable, (*word_list, *tags))):
            raise HeadwiseError(f"{where}: a word or tag {HALF}; fix or remove the row")
        if KINDS[kind].layers[0] == "entities":
            entities = tuple(spans_from_tags(tags, "bio", where))
            sentences.append(Sentence(word_list, entities=entities, source=where))
        else:
            sentences.append(Sentence(word_list, upos=tags, source=where))
    return sentences


def annotated(
    task: str, raw: Mapping[str, Raw], kind: str, words: str, label: str | None, classes: Sequence[str] | None
) -> dict[str, Examples]:
    """Examples of a word kind, of annotated sentences or of tables with word lists; `label` is the layer, or
    the table's column.
    """
    layers = KINDS[kind].layers
    layer = label or layers[0]
    if any(table.sentences is None for table in raw.values()):
        layer = layers[0]  # `label` is a column
    elif layer not in layers:
        raise HeadwiseError(f"task {task!r}: label={layer!r} does not fit {kind!r}: {', '.join(layers)}")
    sentences = {}
    for split, table in raw.items():
        if table.sentences is not None:
            sentences[split] = table.sentences
        else:
            sentences[split] = tagged_sentences(table, kind, words, label or "label")
    examples = word_level(sentences, kind, layer, classes)
    if not examples:
        every = list(chain.from_iterable(sentences.values()))
        layers_there = [name for name in LAYERS if has_layer(every, name)]
        fitting = [name for name in layers_there if name in layers]
        remedy = f"; for those give label={fitting[0]!r}" if fitting else ""
        raise HeadwiseError(
            f"task {task!r}: no sentence has the layer {layer!r}; "
            f"they have: {', '.join(layers_there) or 'none'}{remedy}"
        )
    return examples


def word_level(
    every_sentence: Mapping[str, list[Sentence]], kind: str, layer: str, classes: Sequence[str] | None
) -> dict[str, Examples]:
    """Examples of annotated sentences; sentences without the layer are left out.

    Classes found only outside the training split are numbered after those of training: rare relations and
    phrase labels are too common an accident for an error, and their numbers change nothing for the others.
    """
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
    """What a split alone cannot show: one class only, and texts shared between splits (a warning with the
    count).
    """
    train = splits.get("train")
    if train is not None and KINDS[train.kind].one_answer and len(np.unique(np.asarray(train.labels))) < 2:
        label = str(train.labels[:1])
        if train.classes and len(train):
            label = train.classes[int(train.labels[0])]
        raise HeadwiseError(
            f"task {task!r}: all {len(train)} training examples have the label {label}; at least two are "
            "needed"
        )
    if train is None or KINDS[train.kind].reads == "tokens":
        return
    seen = text_numbers(train.texts)
    for name, examples in splits.items():
        if name == "train":
            continue
        shared = int(np.isin(text_numbers(examples.texts), seen).sum())
        if shared and (KINDS[train.kind].reads != "words" or shared > len(examples) / 2):
            share = f"{shared} of the {len(examples)} {name} examples"
            warnings.warn(f"task {task!r}: {share} also occur in the training split", stacklevel=4)
