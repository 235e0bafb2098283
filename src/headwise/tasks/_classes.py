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
from headwise.tasks._columns import column, column_values, known, missing
from headwise.tasks._sources import Raw

By = Literal["names", "source", "user"]
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
COMMAS = re.compile(r"[+-]?\d+(,\d+)?")  # a number with a decimal comma, or without a fraction
LIST = re.compile(r"\[.*\]", re.DOTALL)
WHOLE = re.compile(r"-?\d+\.0+")
NOTHING = {"_", "nan", "<na>", "nat", "null", "n/a", "#n/a"}  # what programs write for a missing value
BOOLEANS = {"false": "0", "true": "1"}
FORM = "letter case, white space, underscores, zeros, types or the form of characters"
SEVERAL = (
    "several labels for one text are not supported, because accuracy, chance, lesions and probes compare one answer with one label: "
    "make one task of each label, or name a column with one label for each text"
)


def guess_kind(raw: Raw, label: str, text: str) -> str:
    """The kind of task a label column asks for: fractions -> number; lists beside lists of words -> tags; the rest -> classes.

    Raises:
        HeadwiseError: it holds nothing, several labels for one text, numbers and words, or nearly as many values as rows.
    """
    count, first, names = 0, None, set()
    fraction = word = comma = None  # the first value of each
    for row, value in enumerate(column_values(raw, label)):
        if missing(value):
            continue
        if isinstance(value, (list, tuple, np.ndarray)) and all(
            isinstance(one, (list, tuple, np.ndarray)) for one in column(raw, text).iloc[:1]
        ):
            return "tags"
        name = class_name(value, raw.where(row))
        first = value if not count else first
        count += 1
        if isinstance(value, str):
            number = NUMBER.fullmatch(value.strip()) is not None
            word = value if word is None and not number else word
            comma = value if comma is None and not number and COMMAS.fullmatch(value.strip()) else comma
        if fraction is None and _is_fraction(value):
            fraction = value
        if fraction is None:
            names.add(name)
    if not count:
        raise HeadwiseError(f"{raw.origin}: column {label!r} is empty; name the label column with label=")
    choose = 'give kind="number" or kind="classes" if that is intended, or choose another label='
    if fraction is not None and word is not None:
        raise HeadwiseError(
            f"{raw.origin}: column {label!r} holds numbers such as {shown(fraction)} and others such as {shown(word)}; fix those, or {choose}"
        )
    if fraction is not None:
        return "number"
    if comma is not None and all(COMMAS.fullmatch(name.strip()) for name in names):
        raise HeadwiseError(
            f"{raw.origin}: column {label!r} holds numbers with decimal commas, such as {shown(comma)}; write 2.5 for 2,5, or give "
            'kind="classes" if these are names'
        )
    if all(LIST.fullmatch(name.strip()) for name in names):
        raise HeadwiseError(
            f'{raw.origin}: column {label!r} holds lists written as text, such as {shown(first)}; give kind="classes" if these are names. As '
            f"lists, {SEVERAL}"
        )
    if count > 50 and len(names) > count / 2:
        raise HeadwiseError(
            f"{raw.origin}: column {label!r} holds {len(names)} different values in {count} rows, such as {shown(first)}; {choose}"
        )
    return "classes"


def _is_fraction(value: Any) -> bool:
    if isinstance(value, str):
        value = float(value) if NUMBER.fullmatch(value.strip()) else 0.0
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
    return (raw.names or {}).get(known(raw, label) or label) if raw.table is not None else None


def numbered_by(raw: Raw, label: str, chosen: bool) -> By:
    """Who numbers the classes of a training table; `chosen`: the user names them."""
    if chosen:
        return "user"
    return "names" if named(raw, label) is None else "source"


def find_classes(raw: Raw, label: str) -> tuple[str, ...]:
    """The classes of a training table: names the source knows, else the values found, sorted (numbers by size)."""
    own = named(raw, label)
    if own is not None:
        return own
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
    return tuple(
        sorted(counts, key=lambda name: (_number(name), name))
        if all(map(_is_number, counts))
        else sorted(counts)
    )


def warn_of_names(counts: Mapping[str, int], where: str) -> None:
    """Warns of classes that are likely one class in two spellings, or no class at all.

    Args:
        counts: how many labels each class has.
        where: what holds them, for the message.
    """
    alike: dict[str, list[str]] = {}
    for name in counts:
        alike.setdefault(_alike(name), []).append(name)
    pairs = [names for names in alike.values() if len(names) > 1]
    said = [
        f"the classes {' and '.join(f'{written(name)} ({counts[name]})' for name in names)}"
        for names in pairs[:5]
    ]
    more = f" and {len(pairs) - 5} more such groups" if len(pairs) > 5 else ""
    if said:
        warnings.warn(
            f"{where} has {'; '.join(said)}{more}, which differ only in {FORM}: make them one if they mean one",
            stacklevel=5,
        )
    nothing = [name for name in counts if name.strip().casefold() in NOTHING]
    if nothing and len(counts) > len(nothing):
        many = f"{written(nothing[0])} as a class ({counts[nothing[0]]} labels)"
        warnings.warn(
            f"{where} has {many}: where it stands for a missing label, leave the cell empty", stacklevel=5
        )


def _alike(name: str) -> str:
    """What names have in common that a reader takes for one: 1, 01 and True, "pos" and "Pos "."""
    spelled = spelling(name)
    number = BOOLEANS.get(spelled, name)
    return str(Decimal(number).normalize()) if NUMBER.fullmatch(number) else spelled


def written(name: str) -> str:
    """A class in quotes, also with the codes of its characters where some are not plain letters."""
    plain = name.isascii() and name.isprintable()
    return cut(repr(name) if plain else f"{name!r} {name!a}")


def _is_number(name: str) -> bool:
    return whole_number(name.removeprefix("-")) is not None


def _number(name: str) -> int:
    size = whole_number(name.removeprefix("-")) or 0
    return -size if name.startswith("-") else size


def class_numbers(
    raw: Raw, label: str, classes: Sequence[str], *, by: By, may_miss: bool
) -> NDArray[np.int64]:
    """Labels as class numbers, (n,); -1 where the label is missing or -1, which `may_miss` allows (unlabelled test sets).

    Args:
        raw: the table.
        label: the column.
        classes: names by number.
        by: who numbers the classes: nobody, so that their sorted names do, the training split's source, or the user. Of the last two a
            label may be a class number, where no class name is a number itself.
        may_miss: whether labels may be missing.
    """
    places = {name: i for i, name in enumerate(classes)}
    own = named(raw, label)
    if own is not None:
        places = {
            str(i): place for i, place in enumerate(_own_places(raw, label, own, classes, by))
        }  # labels are these numbers
    elif by != "names" and not any(map(_is_number, classes)):
        places = {str(i): i for i in range(len(classes))} | places
        if not {"true", "false"} & {name.casefold() for name in classes}:
            places = dict(zip(("False", "True"), range(len(classes)), strict=False)) | places
    out = np.full(len(raw), -1, dtype=np.int64)
    for row, value in enumerate(column_values(raw, label)):
        name = "-1" if missing(value) else class_name(value, raw.where(row))
        if name in places:
            out[row] = places[name]
        elif name != "-1":
            raise HeadwiseError(
                f"{raw.where(row)}: label {shown(value)} is not among the classes of the training split: {listed(classes)}"
                f"{_near(name, classes)}"
            )
        elif not may_miss:
            remedy = "" if missing(value) else "; if -1 is a class of its own, name the classes with classes="
            raise HeadwiseError(
                f"{raw.where(row)}: {label} is {value!r}, that is, unlabelled; remove the row or give skip_unlabelled=True{remedy}"
            )
    return out


def _own_places(raw: Raw, label: str, own: Sequence[str], classes: Sequence[str], by: str) -> list[int]:
    """The class of each number that a source names itself: by name, else by number where the user renames as many classes.

    Raises:
        HeadwiseError: neither fits.
    """
    for spelled in (str, spelling):
        places = {spelled(name): i for i, name in enumerate(classes)}
        if len(places) == len(classes) and all(spelled(name) in places for name in own):
            return [places[spelled(name)] for name in own]
    if by == "user" and len(own) == len(
        classes
    ):  # a user's other names for the same numbers, where none is another number's name
        ours, theirs = [spelling(name) for name in classes], [spelling(name) for name in own]
        if all(mine == name or name not in ours for mine, name in zip(ours, theirs, strict=True)):
            return list(range(len(own)))
    raise HeadwiseError(
        f"{raw.origin}: the column {label!r} names its classes {listed(own)}, but the task has {listed(classes)}; name these with classes="
    )


def _near(name: str, classes: Sequence[str]) -> str:
    """A hint at the class that a label may mean."""
    same = next((other for other in classes if _alike(other) == _alike(name)), None)
    if same is not None:
        return f" ({written(name)} differs from {written(same)} only in {FORM})"
    return did_you_mean(name, classes)


def _float(value: Any) -> float:
    if isinstance(value, str) and "_" in value:  # Python's 1_000
        raise ValueError
    return float(value)


def numbers(raw: Raw, label: str, *, may_miss: bool) -> NDArray[np.float64]:
    """Labels as floats, (n,); NaN where missing, which `may_miss` allows; so is a test split that is -1 throughout (GLUE)."""
    out = np.empty(len(raw))
    for row, value in enumerate(column_values(raw, label)):
        try:
            out[row] = math.nan if missing(value) else _float(value)
        except (TypeError, ValueError, OverflowError):
            comma = isinstance(value, str) and COMMAS.fullmatch(value.strip()) is not None
            remedy = f"; write {value.strip().replace(',', '.')}" if comma else ""
            raise HeadwiseError(
                f"{raw.where(row)}: {label} is {shown(value)}, not a number{remedy}"
            ) from None
        if math.isinf(out[row]) or (math.isnan(out[row]) and not may_miss):
            raise HeadwiseError(
                f"{raw.where(row)}: {label} is {value!r}, not a finite number; fix or remove the row"
            )
    return np.full(len(out), math.nan) if may_miss and (out == -1).all() else out
