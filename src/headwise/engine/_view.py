"""What one sees of a running study: a live view on a terminal, plain lines elsewhere."""

import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import TaskID

from headwise._base.progress import bars, duration
from headwise.engine._schedule import Board
from headwise.store import locks

LINE_EVERY_S = 10.0
SHOWN = 12  # running cells that get a bar of their own


def summary(board: Board, slots: int) -> str:
    """One line: 7 of 24 cells done, 1 failed, 3 min 05 s left."""
    done = board.found + board.computed
    phrases = [f"{done} of {board.total} cells done"]
    phrases += [
        f"{count} {word}"
        for count, word in ((board.failed, "failed"), (board.blocked, "waiting for a failed one"))
        if count
    ]
    seconds_left = board.seconds_left(slots)
    if seconds_left is not None and done + board.failed + board.blocked < board.total:
        phrases.append(f"{duration(seconds_left)} left")
    return ", ".join(phrases)


class Quiet:
    """Shows nothing."""

    def update(self, board: Board, slots: int) -> None: ...
    def say(self, line: str) -> None: ...
    def close(self) -> None: ...


class Lines:
    """A line when something went wrong, and otherwise at most every 10 s when something has changed, on
    standard error."""

    def __init__(self) -> None:
        self._next = time.monotonic() + LINE_EVERY_S
        self._said = ""

    def update(self, board: Board, slots: int) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + LINE_EVERY_S
            line = summary(board, slots)
            if line != self._said:
                self.say(line)
            self._said = line

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def close(self) -> None: ...


class Terminal:
    """One bar for the study with the time left, and one for each running cell, as far as they report."""

    def __init__(self, run: Path) -> None:
        self._folder = run / "running"
        self._console = Console(stderr=True)
        self._study, self._cells = bars(self._console, remaining=False), bars(self._console)
        self._whole = self._study.add_task("study", total=None)
        self._shown: dict[str, TaskID] = {}
        self._next = 0.0
        self._live = Live(Group(self._study, self._cells), console=self._console, refresh_per_second=4)
        self._live.start()

    def update(self, board: Board, slots: int) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + 0.5
        self._study.update(
            self._whole,
            total=board.total,
            completed=board.found + board.computed,
            description=summary(board, slots),
        )
        now = dict(list(locks.running(self._folder).items())[:SHOWN])
        for gone in self._shown.keys() - now.keys():
            self._cells.remove_task(self._shown.pop(gone))
        for name, status in now.items():
            self._bar(name, status)

    def _bar(self, name: str, status: dict[str, Any]) -> None:
        text, done, total = status.get("bar") or ("", 0, None)
        if name not in self._shown:
            self._shown[name] = self._cells.add_task(name, total=total)
        self._cells.update(
            self._shown[name], description=f"  {status.get('cell', name)} {text}", completed=done, total=total
        )

    def say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False)

    def close(self) -> None:
        self._live.stop()


def view(run: Path, quiet: bool) -> Quiet | Lines | Terminal:
    """The view that fits where standard error goes."""
    if quiet:
        return Quiet()
    if sys.stderr.isatty():
        return Terminal(run)
    return Lines()
