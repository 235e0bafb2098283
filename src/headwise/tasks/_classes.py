"""Labels of tables: what kind of task they ask for, the names of their classes, and their numbers."""

import math
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from enum import Enum
from numbers import Number
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headwise._base.names import HALF, cut, listed, shown, spelling, writable
from headwise._base.parsing import whole_number
from headwise.errors import HeadwiseError, did_you_mean
from headwise.tasks._columns import column, column_name, column_values, missing
from headwise.tasks._sources import Raw

By = Literal["names", "source", "user"]
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
COMMAS = re.compile(r"[+-]?\d+(,\d+)?")  # a number with a decimal comma, or without a fraction
LIST = re.compile(r"\[.*\]", re.DOTALL)
WHOLE = re.compile(r"-?\d+\.0+")
NOTHING = {"_", "nan", "<na>", "nat", "null", "n/a", "#n/a"}  # what programs write for a missing value
BOOLEANS = {"false": "0", "true": "1"}
FORM = "letter case, white space, underscores, zeros, types or the form of characters"
LISTS = (list, tuple, np.ndarray)
SEVERAL = (
    "several labels for one text are not supported, because accuracy, chance, lesions and probes compare one "
    "answer with one label: "
    "make one task of each label, or name a column with one label for each text"
)


def guess_kind(raw: Raw, label: str, text: str) -> str:
    """The kind of task a label column asks for: number for fractions, tags for lists beside lists of words,
    else classes.

    Raises:
        HeadwiseError: it holds nothing, several labels for one text, numbers and words, or nearly as many
            values as rows.
    """
    count, names = 0, set()
    examples: dict[str, Any] = {}  # the first value of each sort
    for row, value in enumerate(column_values(raw, label)):
        if missing(value):
            continue
        if isinstance(value, LISTS) and all(isinstance(words, LISTS) for words in column(raw, text).iloc[:1]):
            return "tags"
        count += 1
        name = class_name(value, raw.where(row))
        examples.setdefault("any", value)
        if isinstance(value, str) and not NUMBER.fullmatch(value.strip()):
            examples.setdefault("word", value)
            if COMMAS.fullmatch(value.strip()):
                examples.setdefault("comma", value)
        if "fraction" not in examples and _is_fraction(value):
            examples["fraction"] = value
        if "fraction" not in examples:
            names.add(name)
    if not count:
        raise HeadwiseError(f"{raw.origin}: column {label!r} is empty; name the label column with label=")
    where = f"{raw.origin}: column {label!r} holds"
    choose = 'give kind="number" or kind="classes" if that is intended, or choose another label='
    if {"fraction", "word"} <= set(examples):
        raise HeadwiseError(
            f"{where} numbers such as {shown(examples['fraction'])} and others such as "
            f"{shown(examples['word'])}; "
            f"fix those, or {choose}"
        )
    if "fraction" in examples:
        return "number"
    if "comma" in examples and all(COMMAS.fullmatch(name.strip()) for name in names):
        raise HeadwiseError(
            f"{where} numbers with decimal commas, such as {shown(examples['comma'])}; write 2.5 for 2,5, "
            'or give kind="classes" if these are names'
        )
    if all(LIST.fullmatch(name.strip()) for name in names):
        raise HeadwiseError(
            f"{where} lists written as text, such as {shown(examples['any'])}; "
            f'give kind="classes" if these are names. As lists, {SEVERAL}'
        )
    if count > 50 and len(names) > count / 2:
        raise HeadwiseError(
            f"{where} {len(names)} different values in {count} rows, such as {shown(examples['any'])}; "
            f"{choose}"
        )
    return "classes"


def _is_fraction(value: Any) -> bool:
    if isinstance(value, str) and NUMBER.fullmatch(value.strip()):
        value = float(value)
    return isinstance(value, (float, Decimal)) and math.isfinite(value) and value != int(value)


def class_name(value: Any, where: str = "the data") -> str:
    """A label as the name of its class: 3, 3.0, "3" and "3.0" are one class; True is "True".

    Raises:
        HeadwiseError: it is a list, or neither a name nor a number; `where` says whose.
    """
    if isinstance(value, (list, tuple, set, frozenset, np.ndarray, Mapping)):
        raise HeadwiseError(f"{where}: the label is {shown(value)}; {SEVERAL}")
    if not isinstance(value, (str, Number, date, Enum)):
        raise HeadwiseError(f"{where}: the label is {shown(value)}; expected a name or a number")
    if isinstance(value, (float, Decimal)) and math.isfinite(value) and value == int(value):
        return str(int(value))
    if isinstance(value, str) and WHOLE.fullmatch(value):
        return str(int(value.partition(".")[0]))
    return str(value)


def named(raw: Raw, label: str) -> tuple[str, ...] | None:
    """The names that a source itself gives the numbers in a column (a ClassLabel)."""
    if raw.table is None or raw.names is None:
        return None
    return raw.names.get(column_name(raw, label) or label)


def numbered_by(raw: Raw, label: str, by_user: bool) -> By:
    """Who numbers the classes of a training table; `by_user`: the user names them."""
    if by_user:
        return "user"
    if named(raw, label) is not None:
        return "source"
    return "names"


def find_classes(raw: Raw, label: str) -> tuple[str, ...]:
    """The classes of a training table: names the source knows, else the values found, sorted (numbers by
    size).
    """
    source_names = named(raw, label)
    if source_names is not None:
        return source_names
    counts = Counter(
        class_name(value, raw.where(row))
        for row, value in enumerate(column_values(raw, label))
        if not missing(value)
    )
    counts.pop("-1", None)
    broken = next((name for name in counts if not writable(name)), None)
    if broken is not None:
        raise HeadwiseError(f"{raw.origin}: the label {shown(broken)} {HALF}; fix or remove its rows")
    warn_of_names(counts, f"{raw.origin}: column {label!r}")
    if all(map(_is_number, counts)):
        return tuple(sorted(counts, key=lambda name: (int(name), name)))
    return tuple(sorted(counts))


def warn_of_names(counts: Mapping[str, int], where: str) -> None:
    """Warns of classes that are likely one class in two spellings, or no class at all.

    Args:
        counts: how many labels each class has.
        where: what holds them, for the message.
    """
    alike: dict[str, list[str]] = {}
    for name in counts:
        alike.setdefault(_alike(name), []).append(name)
    groups = []
    for names in alike.values():
        if len(names) > 1:
            spellings = [f"{written(name)} ({counts[name]})" for name in names]
            groups.append(f"the classes {' and '.join(spellings)}")
    if groups:
        further = f" and {len(groups) - 5} more such groups" if len(groups) > 5 else ""
        warnings.warn(
            f"{where} has {'; '.join(groups[:5])}{further}, which differ only in {FORM}: "
            "make them one if they mean one",
            stacklevel=5,
        )
    nothing = [name for name in counts if name.strip().casefold() in NOTHING]
    if nothing and len(counts) > len(nothing):
        warnings.warn(
            f"{where} has {written(nothing[0])} as a class ({counts[nothing[0]]} labels): "
            "where it stands for a missing label, leave the cell empty",
            stacklevel=5,
        )


def _alike(name: str) -> str:
    """What names have in common that a reader takes for one: 1, 01 and True, "pos" and "Pos "."""
    spelled = spelling(name)
    number = BOOLEANS.get(spelled, name)
    if NUMBER.fullmatch(number):
        return str(Decimal(number).normalize())
    return spelled


def written(name: str) -> str:
    """A class in quotes, also with the codes of its characters where some are not plain letters."""
    if name.isascii() and name.isprintable():
        return cut(repr(name))
    return cut(f"{name!r} {name!a}")


def _is_number(name: str) -> bool:
    return whole_number(name.removeprefix("-")) is not None


def class_numbers(
    raw: Raw, label: str, classes: Sequence[str], *, by: By, may_miss: bool
) -> NDArray[np.int64]:
    """Labels as class numbers, (n,); -1 where the label is missing or -1, which `may_miss` allows (unlabelled
    test sets).

    Args:
        raw: the table.
        label: the column.
        classes: names by number.
        by: who numbers the classes: nobody, so that their sorted names do, the training split's source, or
            the user. Of the last two a label may be a class number, where no class name is a number itself.
        may_miss: whether labels may be missing.
    """
    numbers = _class_numbers_by_label(raw, label, classes, by)
    out = np.full(len(raw), -1, dtype=np.int64)
    for row, value in enumerate(column_values(raw, label)):
        name, remedy = "-1", ""
        if not missing(value):
            name = class_name(value, raw.where(row))
            remedy = "; if -1 is a class of its own, name the classes with classes="
        if name in numbers:
            out[row] = numbers[name]
        elif name != "-1":
            raise HeadwiseError(
                f"{raw.where(row)}: label {shown(value)} is not among the classes of the training split: "
                f"{listed(classes)}{_near(name, classes)}"
            )
        elif not may_miss:
            raise HeadwiseError(
                f"{raw.where(row)}: {label} is {value!r}, that is, unlabelled; remove the row "
                f"or give skip_unlabelled=True{remedy}"
            )
    return out


def _class_numbers_by_label(raw: Raw, label: str, classes: Sequence[str], by: By) -> dict[str, int]:
    """The number of the class that each label means."""
    source_names = named(raw, label)
    if source_names is not None:  # labels are the numbers of these
        numbers = _numbers_of_names(raw, label, source_names, classes, by)
        return {str(i): number for i, number in enumerate(numbers)}
    by_label = {name: i for i, name in enumerate(classes)}
    if by != "names" and not any(map(_is_number, classes)):
        by_label = {str(i): i for i in range(len(classes))} | by_label
        if not {"true", "false"} & {name.casefold() for name in classes}:
            by_label = dict(zip(("False", "True"), range(len(classes)), strict=False)) | by_label
    return by_label


def _numbers_of_names(
    raw: Raw, label: str, source_names: Sequence[str], classes: Sequence[str], by: str
) -> list[int]:
    """The class of each name that a source gives: by name, else by number where the user renames as many
    classes.

    Raises:
        HeadwiseError: neither fits.
    """
    for spelled in (str, spelling):
        numbers = {spelled(name): i for i, name in enumerate(classes)}
        if len(numbers) == len(classes) and all(spelled(name) in numbers for name in source_names):
            return [numbers[spelled(name)] for name in source_names]
    # a user's new names for the same numbers, where none is the name of another number
    if by == "user" and len(source_names) == len(classes):
        ours, theirs = list(map(spelling, classes)), list(map(spelling, source_names))
        if all(mine == name or name not in ours for mine, name in zip(ours, theirs, strict=True)):
            return list(range(len(source_names)))
    raise HeadwiseError(
        f"{raw.origin}: the column {label!r} names its classes {listed(source_names)}, "
        f"but the task has {listed(classes)}; name these with classes="
    )


def _near(name: str, classes: Sequence[str]) -> str:
    """A hint at the class that a label may mean."""
    for class_ in classes:
        if _alike(class_) == _alike(name):
            return f" ({written(name)} differs from {written(class_)} only in {FORM})"
    return did_you_mean(name, classes)


def numbers(raw: Raw, label: str, *, may_miss: bool) -> NDArray[np.float64]:
    """Labels as floats, (n,); NaN where missing, which `may_miss` allows; so is a test split that is -1
    throughout (GLUE).
    """
    out = np.empty(len(raw))
    for row, value in enumerate(column_values(raw, label)):
        try:
            if isinstance(value, str) and "_" in value:  # Python's 1_000
                raise ValueError
            out[row] = math.nan if missing(value) else float(value)
        except (TypeError, ValueError, OverflowError):
            remedy = ""
            if isinstance(value, str) and COMMAS.fullmatch(value.strip()):
                remedy = f"; write {value.strip().replace(',', '.')}"
            raise HeadwiseError(
                f"{raw.where(row)}: {label} is {shown(value)}, not a number{remedy}"
            ) from None
        if math.isinf(out[row]) or (math.isnan(out[row]) and not may_miss):
            raise HeadwiseError(
                f"{raw.where(row)}: {label} is {value!r}, not a finite number; fix or remove the row"
            )
    if may_miss and (out == -1).all():
        out[:] = math.nan
    return out
