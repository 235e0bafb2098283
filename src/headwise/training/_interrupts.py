"""Ctrl-C during a training: the step is finished and saved before anything stops."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stops_noted(enabled: bool = True) -> Iterator[Callable[[], bool]]:
    """Within the block a first Ctrl-C is only noted, and the function given says so; a second one interrupts
    at once, as ever.

    SIGTERM is treated alike where it means the same as Ctrl-C. Signals that somebody else handles, or
    ignores, are left alone; so are all where this is not the program's main thread.
    """
    signals: list[int] = []
    interrupt = signal.default_int_handler
    numbers = []
    if enabled and threading.current_thread() is threading.main_thread():
        numbers = [
            number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) is interrupt
        ]

    def note(number: int, frame: FrameType | None) -> None:
        if signals:
            interrupt(number, frame)
        signals.append(number)

    for number in numbers:
        signal.signal(number, note)
    try:
        yield lambda: bool(signals)
    finally:
        for number in numbers:
            signal.signal(number, interrupt)
