"""Files have one mode, whoever writes them; a full disk is reported with its folder; --json is nothing but JSON."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import headwise
from headwise._base.writing import NoSpace, readable, saving
from headwise.probing import Encoder
from headwise.probing._recording import record
from headwise.store import Checkpoint
from headwise.store._atomic import atomic_folder, write_text
from headwise.tasks import Examples

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "training"), str(HERE / "engine")]

import sample_study  # noqa: E402
import toy  # noqa: E402
from test_study import go  # noqa: E402


@pytest.fixture(params=[0o022, 0o002, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_every_file_has_the_mode_that_the_umask_says(tmp_path: Path, umask: int) -> None:
    model = toy.model([toy.task()])
    model.save(tmp_path / "model")
    smaller = headwise.Heads(model.encoder).remove(headwise.HeadSet([(0, 0)]))
    headwise.heads.save_removed(smaller, tmp_path / "smaller")
    Checkpoint(tmp_path / "checkpoint", 0).save({"model": model})
    with atomic_folder(tmp_path / "whole") as aside:
        toy.encoder().save_pretrained(aside)
    write_text(tmp_path / "note.txt", "text")
    go(sample_study.many, sample_study.TrivialRecipe(kind="many", cells=2, megabytes=0.1), tmp_path / "run")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sum(path.suffix == ".safetensors" for path in files) >= 6
    assert {path.name for path in files if path.stat().st_mode & 0o777 != 0o666 & ~umask} == set()


def test_a_full_disk_is_told_with_the_folder(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "headwise.engine._study._check_size", lambda run, cells, needed: 100.0
    )  # else it is refused beforehand
    large = torch.nn.Linear(1000, 1000)  # 4 MB
    with pytest.raises(NoSpace, match=rf"no space left in {small_disk}/c: 1\.0 MB are free"):
        Checkpoint(small_disk / "c", 0).save({"model": large})
    assert not list((small_disk / "c").iterdir())
    big = toy.model([toy.task()])
    big.encoder.embeddings.word_embeddings = torch.nn.Embedding(20_000, 32)  # 2.6 MB
    with pytest.raises(NoSpace, match=rf"no space left in {small_disk}/m: "):
        big.save(small_disk / "m")
    with pytest.raises(NoSpace, match=rf"no space left in {small_disk}: "):
        write_text(small_disk / "long.txt", "x" * 3_000_000)
    with (
        pytest.raises(NoSpace, match=rf"no space left in {small_disk}/whole: "),
        atomic_folder(small_disk / "whole") as aside,
    ):
        (aside / "long.txt").write_text("x" * 3_000_000)
    board = go(
        sample_study.many, sample_study.TrivialRecipe(kind="many", cells=1, megabytes=3), small_disk / "run"
    )
    assert board.failed == 1
    cell = next(iter(headwise.engine.open(small_disk / "run").cells()))
    assert "no space left in" in cell["error"]
    assert issubclass(NoSpace, headwise.HeadwiseError)


def test_a_recording_that_does_not_fit_is_refused_before_it_begins(small_disk: Path) -> None:
    """A disk that fills up under a memory map would end the process."""
    texts = Examples(
        [("good cat",)] * 9000, np.zeros(9000, np.int64), "classes"
    )  # 9000 × 2 × 4 × 8 × 2 bytes
    encoder = Encoder.of(toy.encoder(), toy.tokenizer())
    with pytest.raises(NoSpace, match=rf"no space left in {small_disk}/r.*: "):
        record(encoder, texts, small_disk / "r", hidden=False, quiet=True)
    assert [path.name for path in (small_disk / "r").iterdir()] == ["recording.json"]


def test_other_errors_pass_through(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), saving(tmp_path):
        (tmp_path / "missing" / "x").write_text("")
    assert [readable(size) for size in (12, 1234, 99_950_000, 250e9)] == [
        "12 bytes",
        "1.2 kB",
        "100.0 MB",
        "250 GB",
    ]


PRINTING = """
from headwise import engine
class R(engine.Recipe): pass
@engine.step()
def loud(out: engine.Out) -> None:
    import os; print("a library that talks", flush=True); os.system("echo and its children"); out.json("x", float("nan"))
study = engine.Study(R, lambda recipe: iter([engine.Cell(loud)]))
"""


@pytest.mark.parametrize(
    "engine", [["--jobs", "0"], pytest.param(["--engine", "ray", "--jobs", "1"], marks=pytest.mark.slow)]
)
def test_json_is_all_there_is_on_standard_output(tmp_path: Path, engine: list[str]) -> None:
    (tmp_path / "loud.py").write_text(PRINTING)
    (tmp_path / "r.toml").write_text('kind = "loud:study"\n')
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(headwise.__file__).parent.parent)]),
    }
    command = [sys.executable, "-m", "headwise", "study", "run", "r.toml", "--out", "run", "--json", *engine]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["computed"] == 1
    if "0" in engine:
        assert "a library that talks\nand its children\n" in done.stderr


def test_json_has_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    from headwise.cli.common import emit

    emit(
        {"chance": float("nan"), "rows": [float("inf"), 1.5], "path": tmp} if (tmp := Path("x")) else None,
        True,
    )
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {
        "chance": None,
        "rows": [None, 1.5],
        "path": "x",
    }
