"""Which tests reach which lines of the source: measured once with coverage.py, kept between runs, renewed for test files that changed.

A test reaches what it runs itself, and what the fixtures it uses have run, whoever asked for them first.
"""

import difflib
import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
STORE = ROOT / ".mutants"  # not in git
FORMAT = "2"  # of what is kept; another one is measured again


@dataclass
class FileReach:
    """What the tests of one test file reach.

    Attributes:
        seconds: by test, the processor time it took, that of its processes too; tests that failed or were skipped are not in it.
        shared_seconds: the same by shared fixture.
        fixtures: by test, the contexts of the shared fixtures it uses.
        lines: by context (a test or a shared fixture), by source file, the lines that ran.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    shared_seconds: dict[str, float] = field(default_factory=dict)
    fixtures: dict[str, list[str]] = field(default_factory=dict)
    lines: dict[str, dict[str, list[int]]] = field(default_factory=dict)


class Recorder:
    """A plugin of pytest: tells coverage which test or shared fixture is running."""

    def __init__(self, coverage: Any) -> None:
        self.coverage = coverage
        self.reach = FileReach()
        self.context = ""
        self.call_seconds = 0.0

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Everything between here and the end of the test belongs to it."""
        self._switch(item.nodeid)
        definitions = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009
        shared = [d for found in definitions.values() for d in found if d.scope != "function"]
        self.reach.fixtures[item.nodeid] = [_context(definition) for definition in shared]
        yield
        self._switch("")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        """What a shared fixture runs belongs to all tests that use it."""
        if fixturedef.scope == "function":
            yield
            return
        before, began = self.context, _processor_seconds()
        self._switch(_context(fixturedef))
        yield
        self.reach.shared_seconds[self.context] = _processor_seconds() - began
        self._switch(before)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """The clock would also count what else the machine does."""
        began = _processor_seconds()
        yield
        self.call_seconds = _processor_seconds() - began

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Only tests that passed can tell a mutant from the source."""
        if report.when == "call" and report.passed:
            self.reach.seconds[report.nodeid] = round(self.call_seconds, 3)
        elif report.failed:
            self.reach.seconds.pop(report.nodeid, None)

    def _switch(self, context: str) -> None:
        self.context = context
        self.coverage.switch_context(context)


def _processor_seconds() -> float:
    """Of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def _context(definition: pytest.FixtureDef[Any]) -> str:
    return f"fixture {definition.baseid} {definition.argname}"


def record(test_file: str, source: Path, label: dict[str, str]) -> int:
    """Runs one test file under coverage, in this process, and writes what its tests reach with the label; pytest's exit status."""
    import coverage

    # in 3.12 and later coverage's default core knows no contexts
    measurement = coverage.Coverage(data_file=None, source=[str(source / "headwise")], config_file=False)
    measurement.set_option("run:core", "ctrace")
    recorder = Recorder(measurement)
    measurement.start()
    status = pytest.main(
        ["-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow and not browser", test_file],
        plugins=[recorder],
    )
    measurement.stop()
    data = measurement.get_data()
    for path in data.measured_files():
        file = Path(path).relative_to(source / "headwise").as_posix()
        for line, contexts in data.contexts_by_lineno(path).items():
            for context in contexts:
                recorder.reach.lines.setdefault(context, {}).setdefault(file, []).append(line)
    target = reach_file(ROOT / test_file)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(zlib.compress(json.dumps(vars(recorder.reach) | label).encode(), 1))
    return int(status)


def label(test_file: Path, source_name: str) -> dict[str, str]:
    """What a measurement was made of: the text of the test file and of the helpers beside it, and the source of then."""
    helpers = sorted(p for p in test_file.parent.glob("*.py") if not p.name.startswith("test_"))
    texts = [FORMAT.encode(), test_file.read_bytes(), *(p.read_bytes() for p in helpers)]
    return {"digest": hashlib.sha256(b"\0".join(texts)).hexdigest()[:16], "source": source_name}


def is_measured(test_file: Path) -> bool:
    """Whether the reach of a test file is known. The source may have changed since: its lines are found again."""
    path = reach_file(test_file)
    return (
        path.is_file()
        and json.loads(zlib.decompress(path.read_bytes()))["digest"] == label(test_file, "")["digest"]
    )


@dataclass(frozen=True)
class SourceText:
    """The source as it was when a test file was measured, to find its lines again in the source of today."""

    texts: dict[str, list[str]]

    def line_map(self, file: str, today: list[str]) -> dict[int, int]:
        """Lines of then → lines of today, where they are the same."""
        before = self.texts.get(file, [])
        if before == today:
            return {n: n for n in range(1, len(today) + 1)}
        blocks = difflib.SequenceMatcher(None, before, today, autojunk=False).get_matching_blocks()
        return {b.a + i + 1: b.b + i + 1 for b in blocks for i in range(b.size)}


class Reach:
    """Which tests reach which line of today's source.

    Attributes:
        seconds, shared_seconds, fixtures: of all test files, as in `FileReach`.
        size: how many lines of a file a test runs, by (file, test); and of all files, by ("", test).
        by_line: the tests that reach a line of a file; by_file: those that reach the file.
    """

    def __init__(self, source: Path, test_files: Iterable[Path]) -> None:
        self.seconds: dict[str, float] = {}
        self.shared_seconds: dict[str, float] = {}
        self.fixtures: dict[str, list[str]] = {}
        self.size: dict[tuple[str, str], int] = {}
        self.by_line: dict[tuple[str, int], set[str]] = {}
        self.by_file: dict[str, set[str]] = {}
        self._maps: dict[tuple[str, str], dict[int, int]] = {}
        self._source = source
        for test_file in test_files:
            self._add(test_file)

    def _add(self, test_file: Path) -> None:
        path = reach_file(test_file)
        record_ = json.loads(zlib.decompress(path.read_bytes()))
        texts = SourceText(json.loads(zlib.decompress((STORE / record_["source"]).read_bytes())))
        reach = FileReach(
            record_["seconds"], record_["shared_seconds"], record_["fixtures"], record_["lines"]
        )
        self.seconds |= reach.seconds
        self.shared_seconds |= reach.shared_seconds
        self.fixtures |= reach.fixtures
        users: dict[str, list[str]] = {}
        for test, contexts in reach.fixtures.items():
            for context in [test, *contexts]:
                if test in reach.seconds:
                    users.setdefault(context, []).append(test)
        for context, files in reach.lines.items():
            tests = users.get(context, ())
            for file, lines in files.items():
                mapped = self._map(record_["source"], texts, file)
                for line in lines:
                    self.by_line.setdefault((file, mapped.get(line, 0)), set()).update(tests)
                self.by_file.setdefault(file, set()).update(tests)
                for test in tests:
                    for name in ("", file):
                        self.size[name, test] = self.size.get((name, test), 0) + len(lines)

    def _map(self, name: str, texts: SourceText, file: str) -> dict[int, int]:
        if (name, file) not in self._maps:
            path = self._source / "headwise" / file
            today = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
            self._maps[name, file] = texts.line_map(file, today)
        return self._maps[name, file]


def reach_file(test_file: Path) -> Path:
    """Where the reach of a test file is kept."""
    return STORE / "reach" / f"{test_file.relative_to(ROOT).as_posix().replace('/', '--')}.z"


def keep_source(source: Path) -> str:
    """Keeps the text of the source; the name it is kept under."""
    files = {
        p.relative_to(source / "headwise").as_posix(): p.read_text("utf-8").splitlines()
        for p in (source / "headwise").rglob("*.py")
    }
    data = json.dumps(files, sort_keys=True).encode()
    name = f"source-{hashlib.sha256(data).hexdigest()[:16]}.z"
    STORE.mkdir(exist_ok=True)
    if not (STORE / name).is_file():
        (STORE / f"{name}.new").write_bytes(zlib.compress(data, 6))
        os.replace(STORE / f"{name}.new", STORE / name)
    return name
