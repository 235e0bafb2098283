"""Progress of long loops: a bar with the time left on a terminal, sparse plain lines elsewhere, a report
inside a study's step."""

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from threading import get_ident
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

T = TypeVar("T")
Report = Callable[[str, int, int | None], None]

FIRST_LINE_S = 5.0  # loops shorter than this print nothing when there is no terminal
LINE_EVERY_S = 30.0

_report: ContextVar[Report | None] = ContextVar("headwise_progress_report", default=None)
_ours = False  # whether transformers' own bars should be hidden
_bars: Progress | None = None  # rich allows one live display at a time, so nested loops share it


def own_bars() -> None:
    """Keeps transformers' bars for reading and writing weights out of our output; downloads keep theirs."""
    global _ours
    _ours = True
    if "transformers" in sys.modules:  # else once a model is opened: importing it takes a second
        hide_others()


def hide_others() -> None:
    """What `own_bars` asked for, where transformers is about to read weights."""
    if not _ours:
        return
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, enable_progress_bars
    from transformers.utils.logging import disable_progress_bar

    downloads = not are_progress_bars_disabled()
    disable_progress_bar()
    if downloads:
        enable_progress_bars()


@contextmanager
def reading_weights() -> Iterator[None]:
    """Around transformers reading weights and our check of them: its table of missing and unexpected weights
    (LOAD REPORT) is not shown, since what matters of it is an error of ours, which comes alone; its other
    warnings follow where there was no error."""
    hide_others()
    logger, here = logging.getLogger("transformers.modeling_utils"), get_ident()
    held: list[logging.LogRecord] = []

    def hold(record: logging.LogRecord) -> bool:
        if record.thread == here:
            held.append(record)
        return record.thread != here

    logger.addFilter(hold)
    try:
        yield
    except Exception as error:
        if "above report" not in str(error.__cause__):  # an error of transformers that refers to it
            held = []
        raise
    else:
        held = [record for record in held if "LOAD REPORT" not in str(record.msg)]
    finally:
        logger.removeFilter(hold)
        for record in held:
            logger.handle(record)


def track(
    iterable: Iterable[T],
    description: str,
    total: int | None = None,
    *,
    quiet: bool = False,
    note: Callable[[], str] | None = None,
) -> Iterator[T]:
    """Yields the items of `iterable` and shows how far the loop is.

    On a terminal: a bar with the time left (nested loops stack). Otherwise: a plain line on standard error
    after 5 s and then every 30 s, so that logs stay short. Inside a study's step: nothing is printed, the
    study's own view shows the bar.

    Args:
        iterable: what to loop over.
        description: a few words in front of the bar.
        total: number of items; None asks `len(iterable)` if it has one, and shows a count without an end
            otherwise.
        quiet: show nothing at all.
        note: gives what stands behind the description, computed after each item: a throughput, a loss.
    """
    if total is None and isinstance(iterable, Sized):
        total = len(iterable)
    if quiet:
        yield from iterable
    elif (report := _report.get()) is not None:
        yield from _reported(iterable, description, total, report)
    elif sys.stderr.isatty():
        yield from _barred(iterable, description, total, note)
    else:
        yield from _reported(iterable, description, total, _Lines(note))


@contextmanager
def reporting(report: Report) -> Iterator[None]:
    """Within the block, `track` calls `report(description, done, total)` after every item instead of
    printing."""
    token = _report.set(report)
    try:
        yield
    finally:
        _report.reset(token)


def duration(seconds: float) -> str:
    """Seconds as people say them: 0.4 s, 42 s, 3 min 05 s, 2 h 07 min, 3 d 04 h."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    if seconds < 86400:
        return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"
    return f"{seconds // 86400} d {seconds % 86400 // 3600:02d} h"


def _reported(iterable: Iterable[T], description: str, total: int | None, report: Report) -> Iterator[T]:
    report(description, 0, total)
    for done, item in enumerate(iterable, start=1):
        yield item
        report(description, done, total)


class _Lines:
    """Prints 'description: done/total, time left' when there is news worth a line."""

    def __init__(self, note: Callable[[], str] | None = None) -> None:
        self.note = note
        self.start = time.monotonic()
        self.next = self.start + FIRST_LINE_S

    def __call__(self, description: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if now < self.next and not (done == total and self.next > self.start + FIRST_LINE_S):
            return
        self.next = now + LINE_EVERY_S
        took = now - self.start
        line = f"{description}: {done}"
        if total is not None:
            line += f"/{total}"
        line += f" in {duration(took)}"
        if self.note and done:
            line += f", {self.note()}"
        if total is not None and 0 < done < total:
            line += f", {duration(took / done * (total - done))} left"
        print(line, file=sys.stderr, flush=True)


def _barred(
    iterable: Iterable[T], description: str, total: int | None, note: Callable[[], str] | None
) -> Iterator[T]:
    global _bars
    outermost = _bars is None
    if _bars is None:
        _bars = bars()
        _bars.start()
    task = _bars.add_task(description, total=total)
    try:
        for item in iterable:
            yield item
            _bars.update(task, advance=1, description=f"{description}, {note()}" if note else description)
    finally:
        if outermost:
            _bars.stop()
            _bars = None
        else:
            _bars.remove_task(task)


def bars(console: Console | None = None, remaining: bool = True) -> Progress:
    """The columns every bar of headwise has; `remaining=False` leaves out the time left."""
    columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    columns.append(TimeElapsedColumn())
    if remaining:
        columns += [TextColumn("left"), TimeRemainingColumn()]
    return Progress(*columns, console=console or Console(stderr=True))
