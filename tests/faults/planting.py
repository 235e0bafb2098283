"""Faults planted in a copy of the source, one at a time, each with the test that must then fail.

The faults are tables in the TOML files beside this one. `make faults` runs this file: it plants each fault, runs its test against the
faulty copy, and fails if a test stays green, is not green without the fault, or if a fault no longer fits the source.
"""

import argparse
import ast
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

ROOT = Path(__file__).parents[2]
SOURCE, TESTS = ROOT / "src", ROOT / "tests"
CATEGORIES = sorted(path.stem for path in Path(__file__).parent.glob("*.toml"))
SLOW = TESTS / "statistics"  # simulations of the level of every p-value and interval
LIBRARIES = [
    "torch",
    "transformers",
    "pandas",
    "xarray",
    "scipy.stats",
    "sklearn.linear_model",
    "pytest",
    "hypothesis",
    "accelerate",
]
PYTEST = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
# At its end pytest collects garbage several times, to see what was never awaited or closed: with torch and transformers in memory that
# takes longer than most tests.
PYTEST += ["-p", "no:unraisableexception"]
NOT_THE_COPY = 99  # exit status: headwise was imported from somewhere else
FORKS = multiprocessing.get_context("forkserver")
LIMIT = 600  # seconds one test may take; the slow simulations together may take six times as long


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        category: the TOML file it stands in.
        name: what is wrong, in a few words.
        file: the source file, below src/headwise.
        old: text that occurs exactly once in it; new: what the fault puts in its place.
        test: node id, below tests, of the test that must fail.
    """

    category: str
    name: str
    file: str
    old: str
    new: str
    test: str

    def planted(self, source: Path = SOURCE) -> str:
        """The faulty text of the file.

        Raises:
            ValueError: the old text does not occur exactly once, or what results is not Python.
        """
        text = (source / "headwise" / self.file).read_text(encoding="utf-8")
        count = text.count(self.old)
        if count != 1:
            raise ValueError(f"{self.file} holds the text to replace {count} times, not once: {self.old!r}")
        faulty = text.replace(self.old, self.new)
        ast.parse(faulty)
        return faulty

    def find_test(self) -> None:
        """Raises ValueError if the test does not exist."""
        path, _, function = self.test.partition("::")
        tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
        if function.partition("[")[0] not in {
            node.name for node in tree.body if isinstance(node, ast.FunctionDef)
        }:
            raise ValueError(f"tests/{path} has no test {function!r}")


@dataclass(frozen=True)
class Verdict:
    """What became of one fault: "caught", or why not; and what the test said."""

    fault: Fault
    outcome: str
    said: str
    seconds: float


def read_faults() -> list[Fault]:
    """All faults, category by category."""
    folder = Path(__file__).parent
    return [
        Fault(category, **{key: value.strip("\n") for key, value in row.items()})
        for category in CATEGORIES
        for row in tomllib.loads((folder / f"{category}.toml").read_text(encoding="utf-8"))["fault"]
    ]


def run_tests(
    nodes: Sequence[str], source: Path, scratch: Path, *options: str, limit: int = LIMIT
) -> tuple[int, dict[str, str], str]:
    """Runs tests in a process of their own with the package of `source`.

    Returns:
        pytest's exit status; for every test that failed, by its name, what it said; and the end of the output.
    """
    report, output = scratch / "report.xml", scratch / "output.txt"
    command = [*PYTEST, f"--junitxml={report}", *options, *nodes]
    process = FORKS.Process(target=_child, args=(command, str(source), str(output)))
    process.start()
    process.join(limit)
    if process.is_alive():
        process.kill()
        process.join()
        return -1, {}, f"no end after {limit} s"
    failed = {}
    for case in ElementTree.parse(report).iter("testcase") if report.is_file() else ():
        for failure in case.findall("failure"):
            failed[case.get("name", "")] = " ".join((failure.get("message") or "failed").split())[:200]
    return (
        process.exitcode or 0,
        failed,
        output.read_text(encoding="utf-8", errors="replace")[-2000:] if output.is_file() else "",
    )


def _child(command: list[str], source: str, output: str) -> None:
    """In a process forked from one that has imported all libraries, but not headwise: quick to start, and each with its own copy."""
    with open(output, "w", encoding="utf-8") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    os.chdir(ROOT)
    sys.path.insert(0, source)
    sys.dont_write_bytecode = True
    os.environ |= {"PYTHONPATH": source, "PYTHONDONTWRITEBYTECODE": "1"}
    import pytest

    status = int(pytest.main(command))
    place = sys.modules["headwise"].__file__ if "headwise" in sys.modules else source
    os._exit(status if (place or "").startswith(source) else NOT_THE_COPY)


def copy_source(scratch: Path) -> Path:
    """A copy of the source."""
    return Path(
        shutil.copytree(SOURCE, scratch / "src")
    )  # compiled files stay valid: times of change are copied too


def try_fault(fault: Fault) -> Verdict:
    """Plants one fault in a copy of the source and runs its test there."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headwise-fault-") as folder:
        copy = copy_source(Path(folder))
        place = copy / "headwise" / fault.file
        try:
            faulty = fault.planted()
        except (ValueError, SyntaxError, OSError) as error:
            return Verdict(fault, "does not fit", str(error), 0.0)
        place.write_text(faulty, encoding="utf-8")
        for compiled in (place.parent / "__pycache__").glob(f"{place.stem}.*"):
            compiled.unlink()
        status, failed, tail = run_tests([f"tests/{fault.test}"], copy, Path(folder))
    seconds = time.monotonic() - began
    if status == 0:
        return Verdict(fault, "NOT CAUGHT", "the test stays green", seconds)
    if status != 1 or not failed:  # an error while collecting or setting up says nothing about the fault
        return Verdict(
            fault, f"no verdict ({status})", tail.strip().splitlines()[-1] if tail.strip() else "", seconds
        )
    return Verdict(fault, "caught", next(iter(failed.values())), seconds)


def try_clean(path: str, nodes: Sequence[str]) -> dict[str, str]:
    """Runs the tests of one file without any fault; those that fail, with what they said."""
    with tempfile.TemporaryDirectory(prefix="headwise-fault-") as folder:
        status, failed, tail = run_tests(nodes, copy_source(Path(folder)), Path(folder), "--maxfail=1000")
    return failed or ({path: tail} if status else {})


def main() -> int:
    """Plants the chosen faults and prints the table; 0 if all are caught."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "words", nargs="*", help="only faults whose category, name or file holds one of these"
    )
    parser.add_argument("--workers", type=int, default=2, help="faults tried at the same time")
    parser.add_argument(
        "--no-slow", action="store_true", help="leave out the slow simulations of tests/statistics"
    )
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 200)
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.environ["PYTHONWARNINGS"] = (
        "ignore::UserWarning:multiprocessing.resource_tracker"  # children leave without tidying up
    )
    FORKS.set_forkserver_preload(LIBRARIES)
    faults = read_faults()
    if arguments.words:
        faults = [
            f for f in faults if any(word in f"{f.category} {f.name} {f.file}" for word in arguments.words)
        ]
    tests: dict[str, set[str]] = {}
    for fault in faults:
        tests.setdefault(fault.test.partition("::")[0], set()).add(f"tests/{fault.test}")
    red: dict[str, str] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    verdicts: list[Verdict] = []
    with Progress(*columns, console=console) as progress, ThreadPoolExecutor(arguments.workers) as pool:
        bar = progress.add_task("tests without a fault", total=len(tests))
        for path, failed in pool.map(
            lambda item: (item[0], try_clean(item[0], sorted(item[1]))), tests.items()
        ):
            red |= failed
            progress.console.print(f"{'RED' if failed else 'green'} without a fault: {path}", markup=False)
            progress.advance(bar)
        bar = progress.add_task("faults", total=len(faults))
        for future in as_completed([pool.submit(try_fault, fault) for fault in faults]):
            verdict = future.result()
            verdicts.append(verdict)
            progress.console.print(
                f"{verdict.outcome}: {verdict.fault.name} ({verdict.seconds:.0f} s)", markup=False
            )
            progress.advance(bar)
    caught = sum(verdict.outcome == "caught" for verdict in verdicts)
    table = Table(title=f"{caught} of {len(faults)} faults caught")
    for name in ("where", "fault", "outcome", "test", "what it said"):
        table.add_column(
            name, max_width={"test": 60, "what it said": 50}.get(name), no_wrap=name == "what it said"
        )
    for verdict in sorted(verdicts, key=lambda v: faults.index(v.fault)):
        fault = verdict.fault
        table.add_row(
            fault.category,
            fault.name,
            verdict.outcome,
            fault.test.replace("::", " :: "),
            verdict.said.replace("[", "\\["),
        )
    console.print(table)
    for name, said in red.items():
        console.print(f"not green without a fault: {name}: {said}", markup=False)
    good = not red
    if SLOW.is_dir() and not arguments.no_slow and not arguments.words:
        console.print("the slow simulations of tests/statistics")
        with tempfile.TemporaryDirectory(prefix="headwise-fault-") as folder:
            workers = ("-n", str(arguments.workers), "-m", "slow", "--maxfail=1000")
            status, failed, tail = run_tests([str(SLOW)], SOURCE, Path(folder), *workers, limit=6 * LIMIT)
        good = good and status in (0, 5)  # 5: there are none
        console.print({0: "all green", 5: "there are none"}.get(status, f"{failed or tail}"), markup=False)
    return 0 if good and caught == len(faults) else 1


if __name__ == "__main__":
    sys.exit(main())
