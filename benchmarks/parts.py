"""Parts of a report, said as soon as they are there: a run that is cut short still says something."""

import json
import sys
from typing import TypeVar

T = TypeVar("T")


def said(name: str, value: T) -> T:
    """Prints a part as a line of JSON to standard error, where it does not mix with the whole report at the end, and gives it back."""
    print(json.dumps({name: value}, ensure_ascii=False), file=sys.stderr, flush=True)
    return value
