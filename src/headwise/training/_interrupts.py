"""Ctrl-C during a training: the step is finished and saved before anything stops."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stops_noted(wanted: bool = True) -> Iterator[Callable[[], bool]]:
    """Within the block a first Ctrl-C is only noted, and the function given says so; a second one interrupts at once, as ever.

    SIGTERM is treated alike where it means the same as Ctrl-C. Signals that somebody else handles, or ignores, are left alone; so are
    all where this is not the program's main thread.
    """
    noted: list[int] = []
    own = signal.default_int_handler
    taken = []
    if wanted and threading.current_thread() is threading.main_thread():
        taken = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) is own]

    def note(number: int, frame: FrameType | None) -> None:
        if noted:
            own(number, frame)
        noted.append(number)

    for number in taken:
        signal.signal(number, note)
    try:
        yield lambda: bool(noted)
    finally:
        for number in taken:
            signal.signal(number, own)
