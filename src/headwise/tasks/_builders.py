"""From raw tables to Examples: columns found, labels numbered, bad rows named by file, row and value."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headwise._base.names import HALF, shown, writable
from headwise._base.parsing import whole_number
from headwise.errors import HeadwiseError, did_you_mean
from headwise.tasks import _kinds as kinds
from headwise.tasks._examples import Examples
from headwise.tasks._kinds import KINDS, SEQUENCE_KINDS, TOKEN_KINDS, WORD_KINDS
from headwise.tasks._sentence import Sentence
from headwise.tasks._sources import Raw
from headwise.tasks._splits import text_numbers
from headwise.tasks._texts import keep

CHUNK = 10_000  # values of a column turned into Python objects at once


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
    return named


def column(raw: Raw, name: str) -> pd.Series:
    """A column of a table ("a|b": the first of two that is there), or an error that names the file, the column and those it has."""
    assert raw.table is not None
    found = known(raw, name)
    if found is None:
        have = [str(c) for c in raw.table.columns]
        hint = f"; name it with {name}=" if name in ("text", "label") else ""  # the default names
        raise HeadwiseError(f"{raw.origin} has no column {name!r}, only: {', '.join(have)}{did_you_mean(name, have)}{hint}")
    if list(raw.table.columns).count(found) > 1:
        raise HeadwiseError(f"{raw.origin} has {list(raw.table.columns).count(found)} columns {found!r}: rename all but one")
    return raw.table[found] if raw.rows is None else raw.table[found].iloc[raw.rows].reset_index(drop=True)


def known(raw: Raw, name: str) -> str | None:
    """The column that `name` means, or None where the table has none."""
    assert raw.table is not None
    return next((part for part in (name, *name.split("|")) if part in raw.table.columns), None)


def values(raw: Raw, name: str) -> Iterator[Any]:
    """The values of a column as Python objects, some thousands at a time: all of them at once would take much memory."""
    whole = column(replace(raw, rows=None), name)
    pieces = (_piece(whole, raw.rows, begin, begin + CHUNK) for begin in range(0, len(whole), CHUNK))
    return (value for piece in pieces for value in _listed(raw, name, piece))


def _listed(raw: Raw, name: str, piece: pd.Series) -> list[Any]:
    try:
        return piece.tolist()
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "pyarrow":
            raise
        raise HeadwiseError(f"{raw.origin}: column {name!r} is damaged or not UTF-8 text ({error})") from None


def _piece(whole: pd.Series, rows: NDArray[np.int64] | None, begin: int, end: int) -> pd.Series:
    """Rows `begin` to `end` of a column, as far as they are among `rows`; no copy is made of the whole column."""
    piece = whole.iloc[begin:end]
    return piece if rows is None else piece.iloc[rows[slice(*np.searchsorted(rows, (begin, end)))] - begin]


def texts(raw: Raw, columns: Sequence[str]) -> Sequence[tuple[str, ...]]:
    """The text columns as tuples of strings; an empty or missing text is an error."""
    rows = zip(*(values(raw, name) for name in columns), strict=True)
    return keep((_checked(raw, columns, number, row) for number, row in enumerate(rows)), len(raw))


def _checked(raw: Raw, columns: Sequence[str], number: int, row: tuple[Any, ...]) -> tuple[str, ...]:
    for name, value in zip(columns, row, strict=True):
        if not isinstance(value, str) or not value.strip():
            what = "is empty" if missing(value) or isinstance(value, str) else f"is {shown(value)}, not text"
            raise HeadwiseError(f"{raw.where(number)}: {name} {what}; fix or remove the row")
        if not writable(value):
            raise HeadwiseError(f"{raw.where(number)}: {name} {HALF}; fix or remove the row")
    return row


def missing(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def guess_kind(raw: Raw, label: str) -> str:
    """The kind of task a label column asks for: fractions -> number; lists -> tags; the rest -> classes."""
    if not len(raw):
        raise HeadwiseError(f"{raw.origin}: no row fell into the training split; give more rows, or name the rows' splits")
    count, first, fractions, names = 0, None, False, set()
    for value in values(raw, label):
        if missing(value):
            continue
        if isinstance(value, (list, tuple, np.ndarray)):
            return "tags"
        first = value if not count else first
        count += 1
        fractions = fractions or (isinstance(value, float) and not value.is_integer())
        if not fractions:
            names.add(class_name(value))
    if not count:
        raise HeadwiseError(f"{raw.origin}: column {label!r} is empty; name the label column with label=")
    if fractions:
        return "number"
    if count > 50 and len(names) > count / 2:
        raise HeadwiseError(
            f"{raw.origin}: column {label!r} holds {len(names)} different values in {count} rows, such as {shown(first)}; "
            'give kind="number" or kind="classes" if that is intended, or choose another label='
        )
    return "classes"


def class_name(value: Any) -> str:
    """A label as the name of its class: 3, 3.0 and "3" are one class; True is "1"."""
    if isinstance(value, (bool, np.bool_)):
        return str(int(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def find_classes(raw: Raw, label: str) -> tuple[str, ...]:
    """The classes of a training table: names the source knows, else the values found, sorted (numbers by size)."""
    own = (raw.names or {}).get(known(raw, label) or label)
    if own:
        return own
    names = {class_name(value) for value in values(raw, label) if not missing(value)} - {"-1"}
    broken = next((name for name in names if not writable(name)), None)
    if broken is not None:
        raise HeadwiseError(f"{raw.origin}: the label {shown(broken)} {HALF}; fix or remove its rows")
    return tuple(sorted(names, key=lambda name: (_number(name), name)) if all(map(_is_number, names)) else sorted(names))


def _is_number(name: str) -> bool:
    return whole_number(name.removeprefix("-")) is not None


def _number(name: str) -> int:
    size = whole_number(name.removeprefix("-")) or 0
    return -size if name.startswith("-") else size


def class_numbers(raw: Raw, label: str, classes: Sequence[str], *, may_miss: bool) -> NDArray[np.int64]:
    """Labels as class numbers, (n,); -1 where the label is missing or -1, which `may_miss` allows (unlabelled test sets).

    A label may be a class name, or, where every class name is not itself a number, the class number.
    """
    number = {name: i for i, name in enumerate(classes)}
    if not any(map(_is_number, classes)):
        number |= {str(i): i for i in range(len(classes))}
    out = np.full(len(raw), -1, dtype=np.int64)
    for row, value in enumerate(values(raw, label)):
        name = "-1" if missing(value) else class_name(value)
        if name in number:
            out[row] = number[name]
        elif name != "-1":
            known = ", ".join(classes[:20])
            raise HeadwiseError(f"{raw.where(row)}: label {shown(value)} is not among the classes of the training split: {known}")
        elif not may_miss:
            raise HeadwiseError(
                f"{raw.where(row)}: {label} is {value!r}, that is, unlabelled; remove the row or give skip_unlabelled=True"
            )
    return out


def numbers(raw: Raw, label: str, *, may_miss: bool) -> NDArray[np.float64]:
    """Labels as floats, (n,); NaN where missing, which `may_miss` allows; so is a test split that is -1 throughout (GLUE)."""
    out = np.empty(len(raw))
    for row, value in enumerate(values(raw, label)):
        try:
            out[row] = math.nan if missing(value) else float(value)
        except (TypeError, ValueError, OverflowError):
            raise HeadwiseError(f"{raw.where(row)}: {label} is {shown(value)}, not a number") from None
        if math.isinf(out[row]) or (math.isnan(out[row]) and not may_miss):
            raise HeadwiseError(f"{raw.where(row)}: {label} is {value!r}, not a finite number; fix or remove the row")
    return np.full(len(out), math.nan) if may_miss and (out == -1).all() else out


def plain(raw: Raw, kind: str, text: Sequence[str], label: str, classes: Sequence[str], *, may_miss: bool) -> Examples:
    """Examples of a table of texts (every kind but the word kinds)."""
    found = texts(raw, text)
    labels: NDArray[Any] = np.zeros(len(found), dtype=np.int64)
    if kind in SEQUENCE_KINDS:
        if may_miss and known(raw, label) is None:
            labels = np.full(len(found), math.nan) if KINDS[kind].numbers else np.full(len(found), -1, dtype=np.int64)
        elif KINDS[kind].numbers:
            labels = numbers(raw, label, may_miss=may_miss)
        else:
            labels = class_numbers(raw, label, classes, may_miss=may_miss)
    return Examples(found, labels, kind, tuple(classes))


def tagged_sentences(raw: Raw, kind: str, words: str, label: str) -> list[Sentence]:
    """Sentences from a table with a column of word lists and a column of tag lists (BIO tags for spans)."""
    from headwise.tasks.readers.tags import spans_from_tags

    names = (raw.names or {}).get(known(raw, label) or label)
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
        tag_names = [names[int(tag)] if names else class_name(tag) for tag in tags]
        if not all(writable(part) for part in (*map(str, word_list), *tag_names)):
            raise HeadwiseError(f"{where}: a word or tag {HALF}; fix or remove the row")
        sentence = tuple(str(word) for word in word_list)
        if kind == "spans":
            found.append(Sentence(sentence, entities=tuple(spans_from_tags(tag_names, "bio", where)), source=where))
        else:
            found.append(Sentence(sentence, upos=tuple(tag_names), source=where))
    return found


def word_level(
    by_split: Mapping[str, list[Sentence]], kind: str, layer: str, classes: Sequence[str] | None
) -> dict[str, Examples]:
    """Examples of annotated sentences; sentences without the layer are left out.

    Classes found only outside the training split are numbered after those of training: rare relations and phrase labels
    are too common an accident for an error, and their numbers change nothing for the others.
    """
    kept = {split: [s for s in sentences if getattr(s, layer) is not None] for split, sentences in by_split.items()}
    found = {split: [kinds.rows(s, kind, layer) for s in sentences] for split, sentences in kept.items()}
    names = list(classes or kinds.class_names(found.get("train", []), kind))
    extra = [name for name in kinds.class_names([r for rows in found.values() for r in rows], kind) if name not in set(names)]
    if classes is not None and extra:
        raise HeadwiseError(f"labels {', '.join(extra[:10])} occur in the data but not in classes=")
    names += extra
    number = {name: i for i, name in enumerate(names)}
    return {
        split: Examples(
            [(str(sentence),) for sentence in kept[split]],
            [kinds.to_array(rows, kind, number) for rows in found[split]],
            kind,
            tuple(names),
            sentences=kept[split],
        )
        for split in by_split
        if kept[split]
    }


def check(task: str, splits: Mapping[str, Examples]) -> None:
    """What a split alone cannot show: one class only, and texts shared between splits (a warning with the count)."""
    train = splits.get("train")
    if train is not None and train.kind in SEQUENCE_KINDS and len(np.unique(np.asarray(train.labels))) < 2:
        what = train.classes[int(train.labels[0])] if train.kind == "classes" and len(train) else str(train.labels[:1])
        raise HeadwiseError(f"task {task!r}: all {len(train)} training examples have the label {what}; at least two are needed")
    if train is None or train.kind in TOKEN_KINDS:
        return
    seen = text_numbers(train.texts)
    for name, examples in splits.items():
        shared = int(np.isin(text_numbers(examples.texts), seen).sum()) if name != "train" else 0
        if shared and (train.kind not in WORD_KINDS or shared > len(examples) / 2):
            share = f"{shared} of the {len(examples)} {name} examples"
            warnings.warn(f"task {task!r}: {share} also occur in the training split", stacklevel=4)
