"""Values that a request may hold: each is looked at before the model sees it, and the answer says what was wrong with it."""

import re
from typing import Any

from headwise._base.names import HALF, shown, writable
from headwise.errors import HeadwiseError

MAX_TEXT = 2000  # characters of each text


def check_text(value: Any, empty: bool = False) -> str:
    """A text from the page.

    Raises:
        HeadwiseError: it is not text, is empty where it must not be, is too long, or holds half a character.
    """
    if not isinstance(value, str) or (not empty and not value.strip()):
        raise HeadwiseError("type a sentence first")
    if len(value) > MAX_TEXT:
        raise HeadwiseError(f"the text has {len(value)} characters; at most {MAX_TEXT} are allowed")
    if not writable(value):
        raise HeadwiseError(f"the text {HALF}")
    return re.sub(r"\s+", " ", value).strip()


def check_whole(name: str, value: Any, low: int, high: int) -> int:
    """A whole number from `low` to `high`."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise HeadwiseError(f"{name} is {shown(value)}; it must be a whole number from {low} to {high}")
    return value


def check_share(name: str, value: Any) -> float:
    """A number from 0 to 1."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise HeadwiseError(f"{name} is {shown(value)}; it must lie between 0 and 1")
    return float(value)
