"""The loop that takes a plan through an engine: finds what is missing, hands it out, survives what goes
wrong."""

import json
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from headwise._base.names import legible
from headwise._base.parsing import parse_json
from headwise.engine._engines import Engine
from headwise.engine._plan import Plan
from headwise.engine._steps import Task, label
from headwise.engine._worker import keep_failure
from headwise.errors import HeadwiseError
from headwise.store import (
    DamagedResult,
    damaged_files,
    digest_of,
    folder_stamp,
    inputs_of,
    read_cell,
    stale_input,
)

WAITING, RUNNING, DONE, FAILED, BLOCKED = range(5)
BATCH_S = 0.2  # short cells travel together until they make up this much work
BATCH_CELLS = 32
DEATHS = 3  # a cell on which this many workers died is given up
# before a cell that found the GPU full is tried again: what shares the GPU may leave room by then
PAUSE_S = 30.0
INDEX = "done.jsonl"
INDEX_LINES = 500  # of finished cells that are found, written together


def read_index(run: Path) -> dict[str, dict[str, Any]]:
    """What the last run noted of each finished result, by folder; lines that a kill cut off are left out."""
    records: dict[str, dict[str, Any]] = {}
    with suppress(OSError):
        for line in (run / INDEX).read_bytes().splitlines():
            with suppress(HeadwiseError, LookupError, ValueError, TypeError):
                record = parse_json(line, INDEX)
                records[record["folder"]] = {**record, "seconds": float(record["seconds"])}
    return records


class View(Protocol):
    def update(self, board: "Board", slots: int) -> None: ...
    def say(self, line: str) -> None: ...


@dataclass
class Board:
    """How a study stands.

    Attributes:
        found: cells that were done before.
        computed: cells done now.
        failed, blocked: cells that failed, and cells that wait for one that did.
        damaged: results that were found damaged and are computed again.
        left: step to cells neither done nor failed.
        seconds: step to (cells, seconds, longest) of those done.
    """

    total: int
    found: int = 0
    computed: int = 0
    failed: int = 0
    blocked: int = 0
    damaged: int = 0
    left: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, tuple[int, float, float]] = field(default_factory=dict)

    def took(self, step: str, seconds: float) -> None:
        cells, spent, longest = self.seconds.get(step, (0, 0.0, 0.0))
        self.seconds[step] = (cells + 1, spent + seconds, max(longest, seconds))

    def seconds_left(self, slots: int) -> float | None:
        """Time left by the mean of each step's cells so far; None before the first."""
        if not self.seconds:
            return None
        cells = sum(count for count, _, _ in self.seconds.values())
        spent = sum(seconds for _, seconds, _ in self.seconds.values())
        means = {step: seconds / count for step, (count, seconds, _) in self.seconds.items()}
        expected = sum(count * means.get(step, spent / cells) for step, count in self.left.items())
        return expected / max(1, slots)


def carry_out(
    run: Path, plan: Plan, start: Callable[[], Engine], view: View, numbers: Sequence[int] | None = None
) -> Board:
    """Computes every cell of `plan` that has no sound result in `run` yet.

    Args:
        numbers: of the cells, with all that they need; default: all of them.
        start: gives the engine; not called where nothing is left to compute, since looking for GPUs and
            starting a cluster take seconds.
    """
    loop = _Loop(run, plan, view, range(len(plan)) if numbers is None else numbers)
    batch = loop.next_batch()
    if loop.finished():
        view.update(loop.board, 1)
        return loop.board
    engine = start()
    try:
        if batch:
            engine.submit(batch)
        while True:
            while engine.free() > 0 and (batch := loop.next_batch()):
                engine.submit(batch)
            if loop.finished():
                view.update(loop.board, engine.slots)
                return loop.board
            for batch, outcomes in engine.wait(0.5):
                loop.settle(batch, outcomes)
            view.update(loop.board, engine.slots)
    finally:
        engine.close()


class _Loop:
    def __init__(self, run: Path, plan: Plan, view: View, numbers: Sequence[int]) -> None:
        self.run, self.plan, self.view = run, plan, view
        self.results = str(run / "results")
        self.board = Board(len(numbers), left=Counter(plan.step(number) for number in numbers))
        self.state = bytearray(len(plan))  # WAITING
        self.fresh = iter(numbers)
        self.parked: list[int] = []  # looked at, but something they need is not finished
        self.again: deque[Task] = deque()  # ready, and put back
        self.busy: list[tuple[float, Task]] = []  # another process computes them; look again at that time
        self.deaths: Counter[int] = Counter()
        # cells for which a GPU had no room once, and how many had been settled by then
        self.full: dict[int, int] = {}
        self.settled = 0
        self.running = 0
        self.changed = False
        self.known = read_index(run)
        self.digests: dict[str, str] = {}  # of results that are sound, by folder
        self.lines: list[str] = []  # of the index, not written yet
        (run / INDEX).write_text("")  # only a shortcut for `study show`; rewritten as results are checked

    def finished(self) -> bool:
        return not (self.running or self.parked or self.again or self.busy)

    def next_batch(self) -> list[Task]:
        """Ready cells that make up about BATCH_S of work; a cell whose step is long, unknown, or killed a
        worker goes alone."""
        batch: list[Task] = []
        room = BATCH_S
        while len(batch) < BATCH_CELLS and (task := self._next_ready()):
            longest = self.board.seconds[task["step"]][2] if task["step"] in self.board.seconds else BATCH_S
            expected = BATCH_S if self.deaths[task["number"]] else longest
            if batch and expected > room:
                self.again.appendleft(task)
                break
            batch.append(task)
            room -= expected
            if room <= 0:
                break
        for task in batch:
            self.state[task["number"]] = RUNNING
        self.running += len(batch)
        return batch

    def settle(self, batch: list[Task], outcomes: list[dict[str, Any]] | BaseException) -> None:
        """Takes in what became of a batch."""
        self.running -= len(batch)
        died = isinstance(outcomes, BaseException)
        if isinstance(outcomes, BaseException):
            outcomes = [self._after_death(task, outcomes) for task in batch]
        for task, outcome in zip(batch, outcomes, strict=True):
            state = outcome["state"]
            if state == "done":
                self.settled += 1
                self.board.computed += 1
                self.lines.append(self._done(task, outcome))
            elif outcome.get("full") and task["number"] not in self.full:
                self.full[task["number"]] = self.settled
                self.view.say(
                    f"the GPU is full: {label(task)} is tried once more when another cell has ended"
                )
                self.state[task["number"]] = WAITING
                self.busy.append((time.monotonic() + PAUSE_S, task))
            elif state == "failed":
                self.view.say(f"failed: {label(task)}: {outcome['error']}")
                self._end(task, FAILED)
                self.settled += 1
                self.board.failed += 1
            else:
                self.state[task["number"]] = WAITING
                if died:
                    self.again.append(task)
                else:
                    self.busy.append((time.monotonic() + 1, task))
        self._index()

    def _after_death(self, task: Task, error: BaseException) -> dict[str, Any]:
        """The worker died: the cell is done if its result is there, else it is tried again alone, else given
        up."""
        self.deaths[task["number"]] += 1
        if (self.run / "results" / task["folder"]).is_dir():
            return {"state": "done", "seconds": 0.0}
        if self.deaths[task["number"]] < DEATHS:
            return {"state": "again"}
        message = legible(
            f"the worker process died {DEATHS} times on this cell (out of memory?); "
            f"last: {type(error).__name__}: {error}"
        )
        with suppress(OSError):  # a full disk: the error is at least shown
            keep_failure(self.run, task, message, 0.0, str(error))
        return {"state": "failed", "error": message}

    def _next_ready(self) -> Task | None:
        if self.again:
            return self.again.popleft()
        now = time.monotonic()
        for entry in [entry for entry in self.busy if entry[0] <= now and self._room(entry[1]["number"])]:
            self.busy.remove(entry)
            if task := self._consider(entry[1]["number"]):
                return task
        if self.changed:  # something ended: look through the parked ones once, as far as they are wanted
            self.changed = False
            parked, self.parked = self.parked, []
            for position, number in enumerate(parked):
                if task := self._consider(number):
                    self.parked += parked[position + 1 :]
                    self.changed = True
                    return task
        for number in self.fresh:
            if task := self._consider(number):
                return task
        self._index()
        return None

    def _room(self, number: int) -> bool:
        """Whether a cell that found the GPU full may find room now: another one has ended since, or none is
        running here."""
        return self.settled > self.full.get(number, -1) or not self.running

    def _consider(self, number: int) -> Task | None:
        """The cell if it is ready to be computed; parks it, or settles it, otherwise."""
        states = [self.state[needed] for needed in self.plan.after.get(number, ())]
        if any(state in (WAITING, RUNNING) for state in states):
            self.parked.append(number)
            return None
        task = self.plan.task(number)
        if (outcome := self._sound(task)) is not None:
            self.board.found += 1
            self.lines.append(self._done(task, outcome))
            if len(self.lines) >= INDEX_LINES:
                self._index()
        elif any(state in (FAILED, BLOCKED) for state in states):
            self.board.blocked += 1
            self._end(task, BLOCKED)
        else:
            return task
        return None

    def _sound(self, task: Task) -> dict[str, Any] | None:
        """What is known of a stored result, or None if there is none; a damaged or outdated one is reported
        and put away.

        A result that was found sound before, and to whose files nobody has written since, is not read again:
        whoever reads it compares it with its checksums, and `damage` compares all of them.
        """
        try:
            seen = folder_stamp(f"{self.results}/{task['folder']}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        indexed = self.known.get(task["folder"], {})
        if indexed.get("stamp") == seen and self._inputs(task) == indexed.get("inputs"):
            return indexed
        folder = self.run / "results" / task["folder"]
        self.view.update(self.board, 1)  # checking large results takes a while
        wrong = damaged_files(folder)
        if not wrong:
            try:
                record = read_cell(folder)
                if not (changed := stale_input(self.run, task, record)):
                    cell = record["cell"]
                    indexed = {"seconds": float(cell["seconds"]), "inputs": cell["inputs"]}
                    return {**indexed, "stamp": seen, "digest": digest_of(record)}
                wrong = [f"it was computed from another {changed!r} than there is now"]
            except DamagedResult as error:
                wrong = [str(error)]
        self.board.damaged += 1
        self.view.say(
            f"damaged: {label(task)}: results/{task['folder']}: {'; '.join(wrong)}; computing it again"
        )
        os.rename(folder, self.run / "damaged" / f"{task['folder']}.{time.time_ns():x}")
        return None

    def _inputs(self, task: Task) -> dict[str, list[str | None]]:
        """The digests of a cell's inputs, as far as they are known."""
        digests: dict[str, list[str | None]] = {}
        for name, folders in inputs_of(task).items():
            digests[name] = [self.digests.get(folder) for folder in folders]
        return digests

    def _done(self, task: Task, outcome: dict[str, Any]) -> str:
        self.board.took(task["step"], outcome["seconds"])
        self._end(task, DONE)
        if "digest" in outcome:
            self.digests[task["folder"]] = outcome["digest"]
        facts = {name: outcome[name] for name in ("stamp", "digest", "inputs") if name in outcome}
        return json.dumps({"folder": task["folder"], "seconds": round(outcome["seconds"], 3), **facts})

    def _end(self, task: Task, state: int) -> None:
        self.state[task["number"]] = state
        self.board.left[task["step"]] -= 1
        self.changed = True

    def _index(self) -> None:
        if self.lines:
            with suppress(OSError), open(self.run / INDEX, "a", encoding="utf-8") as file:
                file.write("\n".join(self.lines) + "\n")
            self.lines = []
