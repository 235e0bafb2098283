"""Studies: the same results however they are run, damage found and mended, failures kept and retried."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import sample_study
import xarray as xr
from sample_study import GridRecipe, TrainSettings, TrivialRecipe, grid, many

from headwise import engine, load, store
from headwise.engine._schedule import Board
from headwise.engine._steps import tasks
from headwise.errors import HeadwiseError
from headwise.store._results import damaged_files


def go(study: engine.Study, recipe: Any, out: Path, jobs: int | None = 0, **more: Any) -> Board:
    return engine.run_study(study, recipe, out, jobs=jobs, threads=1, quiet=True, **more)


def small(**more: Any) -> GridRecipe:
    return GridRecipe(kind="grid", widths=(8,), seeds=(0, 1), training=TrainSettings(steps=7), **more)


def digests(run: Path) -> dict[str, str]:
    """SHA-256 of every result file except the manifests, which holds times."""
    files = sorted(
        path for path in (run / "results").rglob("*") if path.is_file() and path.name != "headwise.json"
    )
    return {path.relative_to(run).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "grid"
    board = go(grid, small(), run)
    assert (board.total, board.computed, board.failed) == (7, 7, 0)
    return run


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def test_running_again_computes_nothing(copy: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (copy / "results").rglob("*")}
    board = go(grid, small(), copy)
    assert (board.found, board.computed, board.damaged) == (7, 0, 0)
    assert {path: path.stat().st_mtime_ns for path in (copy / "results").rglob("*")} == before


def test_a_finished_study_starts_no_engine_and_loads_no_torch(tmp_path: Path) -> None:
    go(many, TrivialRecipe(kind="sample_study:many", cells=5), tmp_path / "run")
    code = f"""
import sys
from sample_study import TrivialRecipe, many
from headwise.engine import run_study
for engine in ("local", "ray"):
    board = run_study(many, TrivialRecipe(kind="sample_study:many", cells=5), {str(tmp_path / "run")!r}, engine=engine, quiet=True)
    print(board.found, [name for name in ("torch", "pandas", "ray", "joblib") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parent, check=True
    )
    assert done.stdout == "5 []\n" * 2


def test_local_processes_give_the_same_bytes_and_one_that_dies_costs_one_batch(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwise.engine._schedule.DEATHS", 2)
    assert go(grid, small(), tmp_path / "grid", jobs=1).computed == 7
    assert digests(tmp_path / "grid") == digests(finished)
    flag = tmp_path / "flag"
    flag.touch()
    recipe = TrivialRecipe(kind="many", cells=12, fail=(3,), die=(11,), flag=flag, sleep=0.001)
    monkeypatch.setattr("headwise.engine._engines.visible_gpus", lambda: ["6"])
    board = go(many, recipe, tmp_path / "many", jobs=None)
    assert (board.computed, board.failed) == (10, 2)
    assert [found["value"] for found in engine.open(tmp_path / "many").json("gpu")] == [
        "6"
    ] * 10  # one worker per GPU sees that one
    errors = {
        row["folder"]: row["error"]
        for row in engine.open(tmp_path / "many").cells()
        if row["state"] == "failed"
    }
    assert len(errors) == 2
    assert {error.split(":")[0] for error in errors.values()} == {
        "ValueError",
        "the worker process died 2 times on this cell (out of memory?); last",
    }


def test_failed_cells_are_kept_retried_and_block_only_those_that_need_them(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    recipe = TrivialRecipe(kind="many", cells=6, fail=(3,), flag=flag, chained=True)
    board = go(many, recipe, tmp_path / "run")
    assert (board.computed, board.failed, board.blocked) == (3, 1, 2)
    rows = list(engine.open(tmp_path / "run").cells())
    assert [row["state"] for row in rows] == ["done"] * 3 + ["failed", "blocked", "blocked"]
    assert rows[3]["error"] == "ValueError: cell 3 fails on purpose"
    assert (
        "fails on purpose" in json.loads(next((tmp_path / "run" / "failures").iterdir()).read_text())["log"]
    )
    flag.unlink()
    board = go(many, recipe, tmp_path / "run")
    assert (board.found, board.computed, board.failed, board.blocked) == (3, 3, 0, 0)
    assert not list((tmp_path / "run" / "failures").iterdir())
    assert [entry["value"]["before"] for entry in engine.open(tmp_path / "run").json("value")] == [
        0,
        0,
        1,
        4,
        9,
        16,
    ]


def test_a_cell_for_which_the_gpu_was_full_is_tried_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwise.engine._schedule.PAUSE_S", 0.1)
    flag = tmp_path / "flag"
    flag.touch()
    board = go(
        many, TrivialRecipe(kind="many", cells=4, full=(2,), flag=flag, chained=True), tmp_path / "run"
    )
    assert (board.computed, board.failed, board.blocked) == (4, 0, 0)
    assert not list((tmp_path / "run" / "failures").iterdir())
    board = go(
        many, TrivialRecipe(kind="many", cells=4, full=(2,), chained=True), tmp_path / "never"
    )  # it never has room
    assert (board.computed, board.failed, board.blocked) == (2, 1, 1)
    row = list(engine.open(tmp_path / "never").cells())[2]
    assert row["error"] == "OutOfMemoryError: CUDA out of memory"


@pytest.mark.parametrize(
    ("error", "full"),
    [
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", True),
        ("AcceleratorError: CUDA error: out of memory", True),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", True),
        ("the worker process died 3 times on this cell (out of memory?); last: OutOfMemoryError: Ray", False),
        ("RuntimeError: [enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory", False),
        ("ValueError: CUDA is not there", False),
    ],
)
def test_errors_of_a_full_gpu(error: str, full: bool) -> None:
    from headwise.engine._worker import FULL

    assert bool(FULL.search(error)) == full


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-7])


def flip(file: Path) -> None:
    stat = file.stat()
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 4
    file.write_bytes(raw)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def edit(file: Path) -> None:
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 4
    file.write_bytes(raw)
    os.utime(file, (2e9, 2e9))


def grow(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\n")


@pytest.mark.parametrize(
    ("harm", "file", "named"),
    [
        (truncate, "weights.safetensors", r"weights\.safetensors is truncated: \d+ of \d+ bytes"),
        (flip, "weights.safetensors", r"weights\.safetensors has flipped bits"),
        (edit, "losses.parquet", r"losses\.parquet was edited: same size"),
        (grow, "losses.parquet", r"losses\.parquet was edited: it has \d+ bytes instead of \d+"),
        (Path.unlink, "losses.parquet", r"losses\.parquet is missing"),
        (truncate, "headwise.json", r"headwise\.json is not valid JSON"),
        (Path.unlink, "headwise.json", r"there is no headwise\.json in it"),
        (
            lambda file: file.write_text(file.read_text().replace('"seed": 0', '"seed": 8')),
            "headwise.json",
            "does not match its own seal",
        ),
        (lambda file: file.with_name("extra.txt").touch(), "losses.parquet", r"extra\.txt was added later"),
    ],
)
def test_damage_is_named_and_computed_again(
    harm: Any, file: str, named: str, copy: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    truth = digests(copy)
    victim = next(result.folder for task, result in engine.open(copy).results("train", seed=0))
    harm(victim / file)
    (said,) = damaged_files(victim)
    assert re.search(named, said)
    if file != "losses.parquet" and harm is not Path.unlink:
        with pytest.raises(engine.DamagedResult):
            engine.Result(victim).tensors("weights")
    board = engine.run_study(grid, small(), copy, jobs=0, threads=1)
    assert (board.damaged, board.computed, board.found) == (1, 1, 6)
    assert f"damaged: train width=8 seed=0: results/{victim.name}: {said}" in capfd.readouterr().err
    assert digests(copy) == truth
    assert not damaged_files(victim)
    assert len(list((copy / "damaged").iterdir())) == 1


def test_results_of_an_input_that_came_out_differently_are_computed_again(copy: Path) -> None:
    (victim,) = [result for _, result in engine.open(copy).results("score", seed=0, method="plain")]
    record = json.loads((victim.folder / "headwise.json").read_text())
    del record["seal"]
    record["cell"]["inputs"]["trained"] = ["0" * 20]
    store._atomic.write_sealed(victim.folder / "headwise.json", record)
    board = go(grid, small(), copy)
    assert (board.damaged, board.computed) == (1, 1)


def test_changing_settings_data_version_or_seed_changes_the_key_and_nothing_else_does(tmp_path: Path) -> None:
    data, twin = tmp_path / "a.csv", tmp_path / "b.csv"
    data.write_text("x")
    twin.write_text("x")

    def keys(**more: Any) -> list[str]:
        return [task["key"] for task, _ in tasks(grid.cells(small(**more)))]

    plain = keys(data=data)
    assert plain == keys(data=twin, title="another name")
    twin.write_text("y")
    assert not set(plain) & set(keys(data=twin))
    assert len(set(plain)) == len(plain)
    longer = [
        task["key"]
        for task, _ in tasks(grid.cells(GridRecipe(kind="grid", widths=(8,), seeds=(0, 1, 2), data=data)))
    ]
    assert not set(plain) & set(longer)  # other number of steps
    newer = engine.Step(sample_study.train.function, "train", 2)
    assert (
        engine.Cell(newer, {"training": TrainSettings()}).key
        != engine.Cell(sample_study.train, {"training": TrainSettings()}).key
        != engine.Cell(sample_study.train, {"training": TrainSettings()}, seed=1).key
    )


def test_a_larger_recipe_in_the_same_folder_reuses_what_is_there(copy: Path) -> None:
    wider = GridRecipe(kind="grid", widths=(8, 16), seeds=(0, 1), training=TrainSettings(steps=7))
    board = go(grid, wider, copy)
    assert (board.found, board.computed) == (6, 7)  # the overview has new inputs


def test_reading_back(finished: Path) -> None:
    run = engine.open(finished)
    table = run.table("losses")
    assert list(table.columns) == ["width", "seed", "step", "loss"]
    assert len(table) == 14
    assert run.table("losses", seed=1)["seed"].unique().tolist() == [1]
    array = run.array("scores")
    assert array.dims == ("seed", "method", "unit")
    one = run.array("scores", seed=1, method="noisy")
    assert one.attrs == {"method": "noisy"}
    assert bool((one == array.sel({"seed": 1, "method": "noisy"})).all())
    assert run.names() == {
        "train": ["losses.parquet", "weights.safetensors"],
        "score": ["best.json", "scores.nc"],
        "collect": ["overview.parquet"],
    }
    assert load(finished).folder == finished
    with pytest.raises(
        HeadwiseError, match=r"no finished cell .* has dissociation\.parquet; the run holds: best\.json"
    ):
        run.table("dissociation")
    with pytest.raises(HeadwiseError, match="there is no run"):
        engine.open(finished / "nowhere")


def test_export_has_every_number(finished: Path, tmp_path: Path) -> None:
    run = engine.open(finished)
    rows = engine.export(run, tmp_path / "numbers")
    parquet, csv = pd.read_parquet(tmp_path / "numbers.parquet"), pd.read_csv(tmp_path / "numbers.csv")
    assert len(parquet) == len(csv) == rows == 2 * 7 * 2 + 4 * 6 + 4 * 2 + 4 * 2
    assert list(parquet.columns) == [
        "step",
        "width",
        "seed",
        "method",
        "item",
        "row",
        "labels",
        "variable",
        "value",
    ]
    losses = parquet.query("item == 'losses' and variable == 'loss' and seed == 1")["value"].tolist()
    assert losses == run.table("losses", seed=1)["loss"].tolist()
    scores = parquet.query("item == 'scores' and seed == 0 and method == 'plain'")
    assert [json.loads(label)["unit"] for label in scores["labels"]] == [f"u{i}" for i in range(6)]
    assert (csv["value"] - parquet["value"]).abs().max() < 1e-12


def test_provenance_says_where_a_result_comes_from(finished: Path) -> None:
    _, result = next(engine.open(finished).results("score", seed=1, method="noisy"))
    record = result.provenance
    assert record["settings"]["method"] == "noisy"
    assert record["versions"].keys() >= {"python", "torch", "headwise"}
    assert record["device"]["kind"] in ("cpu", "cuda")
    assert record["seconds"] > 0
    assert record["peak_memory"]["cpu"] > 10e6
    assert record["commit"] is None or len(record["commit"].rstrip("+")) == 40
    assert set(record["files"]) == {"best.json", "scores.nc"}
    assert record["inputs"].keys() == {"trained"}


class TrivialSaver:
    def save(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "made").touch()


def test_what_a_step_may_not_save(tmp_path: Path) -> None:
    out = engine.Out(tmp_path, 0, {"seed": 3}, tmp_path)
    with pytest.raises(
        HeadwiseError, match="'seed', which is also a coordinate of its cell with the value 3"
    ):
        out.table("scores", pd.DataFrame({"seed": [3, 4]}))
    out.json("a", 1)
    with pytest.raises(HeadwiseError, match="saved twice"):
        out.json("a", 2)
    with pytest.raises(HeadwiseError, match=r"cannot save under the name '\.\./b'"):
        out.json("../b", 2)
    out.array("scores", xr.DataArray([1.0, 2.0], dims="head", attrs={"task": "sst2", "n": [1, 2]}))
    out.model("saved", TrivialSaver())
    assert (tmp_path / "saved" / "made").is_file()
    out.model("model", lambda folder: (folder / "pytorch_model.bin").touch())
    with pytest.raises(HeadwiseError, match=r"model/pytorch_model\.bin, a pickle"):
        store._manifest.write_cell(tmp_path, {}, {})
