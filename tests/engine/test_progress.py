"""Progress: a bar on a terminal, sparse lines elsewhere, a report inside a step, nothing when quiet."""

import io
from collections.abc import Iterator

import pytest
from rich.console import Console

from headwise._base import progress
from headwise._base.progress import duration, reporting
from headwise.engine import track
from headwise.engine._schedule import Board
from headwise.engine._view import summary


def test_every_item_comes_through_whatever_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, int, int | None]] = []
    with reporting(lambda *bar: said.append(bar)):
        assert list(track("abc", "letters")) == ["a", "b", "c"]
        assert list(track(iter("ab"), "stream")) == ["a", "b"]
        assert list(track("ab", "quiet", quiet=True)) == ["a", "b"]
    assert said == [("letters", n, 3) for n in range(4)] + [("stream", n, None) for n in range(3)]


def test_lines_are_sparse(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])

    def slow(seconds: float) -> Iterator[int]:
        for n in range(100):
            yield n
            now[0] += seconds

    assert list(track(slow(0.01), "quick", 100)) == list(range(100))
    assert capsys.readouterr().err == ""
    list(track(slow(1.0), "slow", 100))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "slow: 6/100 in 5.0 s, 1 min 18 s left"
    assert lines[-1].startswith("slow: 100/100 in 1 min 39 s")
    assert len(lines) == 5


def test_bars_nest_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(progress, "Console", lambda **_: Console(file=screen, force_terminal=True, width=100))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    for _ in track(range(2), "outer"):
        for _ in track(range(3), "inner"):
            pass
    assert "outer" in screen.getvalue()
    assert "2/2" in screen.getvalue()
    assert progress._bars is None


def test_durations() -> None:
    assert [duration(s) for s in (0.44, 9.96, 59, 61, 3599, 7260, 90000)] == [
        "0.4 s",
        "10.0 s",
        "59 s",
        "1 min 01 s",
        "59 min 59 s",
        "2 h 01 min",
        "1 d 01 h",
    ]


def test_time_left_goes_by_step() -> None:
    board = Board(10)
    board.left.update({"train": 2, "score": 4})
    assert board.seconds_left(1) is None
    board.took("train", 100.0)
    board.took("train", 120.0)
    board.took("score", 1.0)
    board.found = 3
    assert board.seconds_left(2) == pytest.approx((2 * 110 + 4 * 1) / 2)
    assert summary(board, 2) == "3 of 10 cells done, 1 min 52 s left"
