"""How long work took that was stopped and begun again: each process that works on it adds its own seconds,
however it ends."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from headwise.store._atomic import write_text

NOTED_S = 1.0  # a process that is killed loses at most this much of its time


@contextmanager
def timed_attempts(file: Path | None) -> Iterator[Callable[[], list[float]]]:
    """Gives a function that says the seconds of every attempt so far, the last one's being those since the
    block began.

    Args:
        file: where the seconds are noted while the block lasts, for the next attempt to find; None: nowhere.
            It stays after the block: remove it when the work is done.
    """
    began = time.perf_counter()
    before: list[float] = []
    if file is not None:
        with suppress(OSError, ValueError, TypeError):
            before = [float(seconds) for seconds in json.loads(file.read_bytes())]

    def attempts() -> list[float]:
        return [*before, round(time.perf_counter() - began, 1)]

    if file is None:
        yield attempts
        return
    target, over = file, Event()

    def note() -> None:
        with suppress(OSError):  # a full disk: the work itself will say so
            write_text(target, json.dumps(attempts()), durable=False)

    def keep_noting() -> None:
        while not over.wait(NOTED_S):
            note()

    thread = Thread(target=keep_noting, daemon=True, name="headwise-seconds")
    thread.start()
    try:
        yield attempts
    finally:
        over.set()
        thread.join()
        note()
