"""The tables of names that anyone adds to."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headwise.scoring import ESTIMATORS
from headwise.tasks import KINDS, METRICS
from headwise.tasks.readers import READERS
from headwise.training import METHODS

TABLES: tuple[Any, ...] = (ESTIMATORS, KINDS, METHODS, METRICS, READERS)


@contextmanager
def restored() -> Iterator[None]:
    """What is added to the tables inside is gone afterwards."""
    entries = [dict(table._entries) for table in TABLES]
    try:
        yield
    finally:
        for table, before in zip(TABLES, entries, strict=True):
            table._entries = before
