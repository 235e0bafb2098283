"""Settings that libraries keep once for the whole process, switched while any thread asks for it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Switch:
    """A setting that is switched while any block is open, in whatever thread: the last one to end switches it
    back.

    Args:
        turn: switches, and returns what switches back.
    """

    def __init__(self, turn: Callable[[], Callable[[], object]]) -> None:
        self._turn = turn
        self._lock, self._blocks = threading.Lock(), 0
        self._back: Callable[[], object] = lambda: None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Switched inside."""
        with self._lock:
            if not self._blocks:
                self._back = self._turn()
            self._blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self._blocks -= 1
                if not self._blocks:
                    self._back()
