"""The mutation score: mutants drawn at random in every room, each run against the tests that reach its line.

    make mutants                                   20 mutants a room
    make mutants MUTANTS="lesions --number 40 --seed 7"

A mutant is killed if a test fails, or does not end. What survives is listed with its lines; a mutant that cannot change any result stands
in equivalent.toml with the reason. The score of a room is killed / (killed + survived), with a lower 90 % bound (Wilson).
"""

import argparse
import hashlib
import json
import math
import os
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "faults"))

import planting
import reach
from drawing import Mutant, draw, room

ROOT = Path(__file__).parents[2]
SECONDS_OF_LINE, SECONDS_OF_FILE = 40.0, 15.0  # of tests that reach the line; then of tests that reach the file
Z_90 = 1.2816  # one-sided
LIBRARIES = [
    *planting.LIBRARIES,
    *(
        "coverage",
        "typer.testing",
        "rich.progress",
        "pyarrow.parquet",
        "safetensors.torch",
        "matplotlib.pyplot",
        "peft",
        "jinja2",
    ),
    *("scipy.optimize", "sklearn.metrics", "transformers.generation.utils", "transformers.trainer", "loky"),
    *("sentence_transformers", "pydantic", "scipy.io", "xdist", "anyio"),
    *(
        f"transformers.models.{name}.modeling_{name}"
        for name in ("bert", "gpt2", "llama", "t5", "mpnet", "distilbert", "roberta")
    ),
]


@dataclass(frozen=True)
class Verdict:
    """What became of one mutant.

    Attributes:
        room, file, line, function, operator: as drawn.
        before, after: the text that changes.
        outcome: "killed", "survived", "equivalent" or "no verdict".
        reason: the test that failed; how many tests stayed green; why it is equivalent; or what went wrong.
        reached: how many tests reach the line (the file, for what runs on import).
        seconds: of the tests.
    """

    room: str
    file: str
    line: int
    function: str
    operator: str
    before: str
    after: str
    outcome: str
    reason: str
    reached: int
    seconds: float


@dataclass(frozen=True)
class Tests:
    """The tests a mutant is run against: their node ids, and how many reach it."""

    nodes: list[str]
    reached: int
    seconds: float


def equivalents() -> dict[tuple[str, str, str, str], str]:
    """The mutants that change no result: (file, function, before, after) → why."""
    rows = tomllib.loads((Path(__file__).parent / "equivalent.toml").read_text(encoding="utf-8")).get("mutant", [])
    return {(row["file"], row["function"], row["before"], row["after"]): row["reason"] for row in rows}


def choose_tests(mutant: Mutant, map_: reach.Reach) -> Tests:
    """The tests that reach the line, then some that reach the file: those of the room first, quick ones first, from many files."""
    of_file = map_.by_file.get(mutant.file, set())
    of_line = of_file if mutant.runs_on_import else map_.by_line.get((mutant.file, mutant.line), set())
    nodes, seconds = _within(SECONDS_OF_LINE, of_line, mutant, map_)
    more, more_seconds = _within(SECONDS_OF_FILE, of_file - set(nodes), mutant, map_)
    return Tests(nodes + more, len(of_line), seconds + more_seconds)


def _within(seconds: float, tests: set[str], mutant: Mutant, map_: reach.Reach) -> tuple[list[str], float]:
    turns: dict[str, int] = {}
    order = []
    for test in sorted(tests, key=lambda t: (map_.seconds[t], t)):
        file = test.partition("::")[0]
        turns[file] = turns.get(file, 0) + 1
        stranger = f"/{mutant.room}/" not in test
        order.append((stranger, turns[file] + 10 * map_.seconds[test], test))
    nodes, used = [], 0.0
    for _, _, test in sorted(order):
        if used + map_.seconds[test] > seconds and nodes:
            continue
        nodes.append(test)
        used += map_.seconds[test] + 0.01
        if used > seconds:
            break
    return nodes, used


def try_mutant(mutant: Mutant, map_: reach.Reach, known: dict[tuple[str, str, str, str], str]) -> Verdict:
    """Runs a mutant's tests in a copy of the source that holds it."""
    text = (planting.SOURCE / "headwise" / mutant.file).read_text(encoding="utf-8")
    before, after = mutant.shown(text)
    tests = choose_tests(mutant, map_)
    began = time.monotonic()
    key = (mutant.file, mutant.function, before, after)
    if key in known:
        outcome, reason = "equivalent", known[key]
    elif not tests.nodes:
        outcome, reason = "survived", "no test reaches the file"
    else:
        outcome, reason = _run(mutant, text, tests)
    return Verdict(
        mutant.room,
        mutant.file,
        mutant.line,
        mutant.function,
        mutant.operator,
        before,
        after,
        outcome,
        reason,
        tests.reached,
        round(time.monotonic() - began, 1),
    )


def _run(mutant: Mutant, text: str, tests: Tests) -> tuple[str, str]:
    with tempfile.TemporaryDirectory(prefix="headwise-mutant-") as folder:
        copy = planting.copy_source(Path(folder))
        changed = copy / "headwise" / mutant.file
        changed.write_text(mutant.planted(text), encoding="utf-8")
        for compiled in (changed.parent / "__pycache__").glob(f"{changed.stem}.*"):
            compiled.unlink()
        limit = int(3 * tests.seconds + 60)
        status, failed, tail = planting.run_tests(tests.nodes, copy, Path(folder), limit=limit)
        if status == 0:
            return "survived", f"{len(tests.nodes)} tests stay green"
        if failed:
            return "killed", next(iter(failed))
        if status == 4 and planting.run_tests(tests.nodes, planting.SOURCE, Path(folder), "--collect-only")[0]:
            return "no verdict", "the tests have changed: measure their reach again"
        if status == planting.NOT_THE_COPY:
            return "no verdict", "headwise came from somewhere else"
        return "killed", {-1: f"no end after {limit} s"}.get(status, (tail.strip().splitlines() or [f"exit status {status}"])[-1])


def measure_reach(test_files: list[Path], workers: int, progress: Progress) -> None:
    """Measures the test files whose reach is not known."""
    missing = [path for path in test_files if not reach.is_measured(path)]
    source_name = reach.keep_source(planting.SOURCE)
    bar = progress.add_task("which tests reach which lines", total=len(missing))
    with ThreadPoolExecutor(workers) as pool:
        for path in pool.map(lambda p: _measure(p, source_name), missing):
            progress.console.print(f"measured: {path.relative_to(ROOT)}", markup=False)
            progress.advance(bar)


def _measure(path: Path, source_name: str) -> Path:
    with tempfile.TemporaryDirectory(prefix="headwise-reach-") as folder:
        log = Path(folder) / "output.txt"
        process = planting.FORKS.Process(
            target=_record, args=(path.relative_to(ROOT).as_posix(), str(log), reach.label(path, source_name))
        )
        process.start()
        process.join(3600)
        if process.is_alive():
            process.kill()
    return path


def _record(test_file: str, log: str, label: dict[str, str]) -> None:
    """In a forked process, as a test runs."""
    with open(log, "w", encoding="utf-8") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    os.chdir(ROOT)
    sys.path.insert(0, str(planting.SOURCE))
    os.environ |= {"PYTHONPATH": str(planting.SOURCE)}
    os._exit(reach.record(test_file, planting.SOURCE, label))


def lower_bound(killed: int, survived: int) -> float:
    """The lower end of Wilson's one-sided 90 % interval of the share killed."""
    number = killed + survived
    if not number:
        return math.nan
    share, z2 = killed / number, Z_90**2
    centre = share + z2 / (2 * number)
    spread = Z_90 * math.sqrt(share * (1 - share) / number + z2 / (4 * number**2))
    return (centre - spread) / (1 + z2 / number)


def scores(verdicts: list[Verdict]) -> dict[str, dict[str, float]]:
    """By room, and of all: how many were killed, survived, …; the share killed and its lower bound."""
    rooms = [*sorted({verdict.room for verdict in verdicts}), "all"]
    rows = {}
    for name in rooms:
        outcomes = [v.outcome for v in verdicts if name in (v.room, "all")]
        row: dict[str, float] = {
            outcome: outcomes.count(outcome) for outcome in ("killed", "survived", "equivalent", "no verdict")
        }
        judged = row["killed"] + row["survived"]
        row["score"] = row["killed"] / judged if judged else math.nan
        row["lower bound"] = lower_bound(int(row["killed"]), int(row["survived"]))
        rows[name] = row
    return rows


def show(verdicts: list[Verdict], console: Console) -> None:
    """Prints the survivors, then the scores."""
    for verdict in verdicts:
        if verdict.outcome in ("survived", "no verdict"):
            where = f"{verdict.file}:{verdict.line} {verdict.function}"
            console.print(f"{verdict.outcome}: {where} ({verdict.operator}; {verdict.reason})", markup=False)
            console.print(f"    - {verdict.before[:300]}\n    + {verdict.after[:300]}", markup=False)
    table = Table(title="mutants")
    for column in ("room", "killed", "survived", "equivalent", "no verdict", "score", "lower 90 % bound"):
        table.add_column(column, justify="left" if column == "room" else "right")
    for name, row in scores(verdicts).items():
        counts = [str(row[key]) for key in ("killed", "survived", "equivalent", "no verdict")]
        table.add_row(name, *counts, f"{row['score']:.1%}", f"{row['lower bound']:.1%}")
    console.print(table)


def main() -> int:
    """Draws, runs and prints; the verdicts are kept in .mutants as they come, and a second run goes on where the first one stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="*", help="only these rooms")
    parser.add_argument("--number", type=int, default=20, help="mutants a room")
    parser.add_argument("--seed", type=int, default=0, help="draws other mutants")
    parser.add_argument("--workers", type=int, default=2, help="mutants tried at the same time")
    parser.add_argument("--reach-only", action="store_true", help="measure which tests reach which lines, and stop")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.environ["PYTHONWARNINGS"] = "ignore::UserWarning:multiprocessing.resource_tracker"  # children leave without tidying up
    planting.FORKS.set_forkserver_preload(LIBRARIES)
    test_files = sorted(path for path in (ROOT / "tests").rglob("test_*.py") if "browser" not in path.parts)
    rooms = sorted(
        {room(p.relative_to(planting.SOURCE / "headwise").as_posix()) for p in (planting.SOURCE / "headwise").rglob("*.py")}
    )
    for name in arguments.rooms:
        if name not in rooms:
            parser.error(f"no room is called {name}: there are {', '.join(rooms)}")
    results = reach.STORE / f"results-{arguments.seed}.jsonl"
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        measure_reach(test_files, arguments.workers, progress)
        if arguments.reach_only:
            return 0
        drawn = draw(planting.SOURCE, arguments.rooms or rooms, arguments.number, arguments.seed)
        map_ = reach.Reach(planting.SOURCE, [path for path in test_files if reach.reach_file(path).is_file()])
        verdicts = run_mutants(drawn, map_, results, arguments.workers, progress)
    show(verdicts, console)
    return 0


def run_mutants(drawn: list[Mutant], map_: reach.Reach, results: Path, workers: int, progress: Progress) -> list[Verdict]:
    """The verdict of every mutant: kept ones of the same source and tests, the others run."""
    state = state_of_code()
    known = equivalents()
    before: dict[str, Verdict] = {}
    for line in results.read_text(encoding="utf-8").splitlines() if results.is_file() else ():
        row = json.loads(line)
        if row.pop("state") == state:
            before[_name(Verdict(**row))] = Verdict(**row)
    bar = progress.add_task("mutants", total=len(drawn))
    verdicts = []
    with ThreadPoolExecutor(workers) as pool, results.open("a", encoding="utf-8") as file:
        waiting = {}
        for mutant in drawn:
            text = (planting.SOURCE / "headwise" / mutant.file).read_text(encoding="utf-8")
            name = f"{mutant.file} {mutant.line} {mutant.operator} {' → '.join(mutant.shown(text))}"
            if name in before:
                verdicts.append(before[name])
                progress.advance(bar)
            else:
                waiting[pool.submit(try_mutant, mutant, map_, known)] = mutant
        for future in as_completed(waiting):
            verdict = future.result()
            verdicts.append(verdict)
            file.write(json.dumps(asdict(verdict) | {"state": state}) + "\n")
            file.flush()
            progress.console.print(f"{verdict.outcome}: {verdict.file}:{verdict.line} ({verdict.seconds:.0f} s)", markup=False)
            progress.advance(bar)
    return sorted(verdicts, key=lambda v: (v.room, v.file, v.line))


def state_of_code() -> str:
    """Changes with every text of the source and the tests."""
    files = [*sorted(planting.SOURCE.rglob("*.py")), *sorted((ROOT / "tests").rglob("*.py"))]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:16]


def _name(verdict: Verdict) -> str:
    return f"{verdict.file} {verdict.line} {verdict.operator} {verdict.before} → {verdict.after}"


if __name__ == "__main__":
    sys.exit(main())
