"""Values that a request may hold: each is looked at before the model sees it, and the answer says noun was
wrong with it."""

import re
from typing import Any

from headwise._base.names import HALF, shown, writable
from headwise.errors import HeadwiseError

MAX_TEXT = 2000  # characters of each text


def check_text(
    value: Any, empty: bool = False, longest: int = MAX_TEXT, exact: bool = False, noun: str = "text"
) -> str:
    """A text from the page.

    Args:
        value: noun was sent.
        empty: whether it may be empty.
        longest: characters that it may have.
        exact: keep blanks and new lines inside as they are.
        noun: noun the page calls it.

    Raises:
        HeadwiseError: it is not text, is empty where it must not be, is too long, or holds half a character.
    """
    if not isinstance(value, str) or (not empty and not value.strip()):
        raise HeadwiseError("type a sentence first" if noun == "text" else f"type the {noun} first")
    if len(value) > longest:
        raise HeadwiseError(f"the {noun} has {len(value)} characters; at most {longest} are allowed")
    if not writable(value):
        raise HeadwiseError(f"the {noun} {HALF}")
    if not exact:
        value = re.sub(r"\s+", " ", value)
    return value.strip()


def check_whole(name: str, value: Any, low: int, high: int) -> int:
    """A whole number from `low` to `high`."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise HeadwiseError(f"{name} is {shown(value)}; it must be a whole number from {low} to {high}")
    return value


def check_number(name: str, value: Any, low: float, high: float) -> float:
    """A number from `low` to `high`."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise HeadwiseError(f"{name} is {shown(value)}; it must lie between {low:g} and {high:g}")
    return float(value)


def check_share(name: str, value: Any) -> float:
    """A number from 0 to 1."""
    return check_number(name, value, 0, 1)
