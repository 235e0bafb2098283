"""Studies for the tests: a grid of tiny trainings with analyses on top, and trivial cells by the thousand."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from headwise import engine


class TrainSettings(engine.Settings):
    steps: int = Field(20, gt=0)
    width: int = Field(16, gt=0)
    learning_rate: float = Field(0.01, gt=0)
    optimizer: Literal["adamw", "sgd"] = "adamw"
    pause: float = 0.0  # seconds a step, so that there is time to be killed in


class GridRecipe(engine.Recipe):
    widths: tuple[int, ...] = Field((8, 16), min_length=1)
    seeds: tuple[int, ...] = (0, 1, 2, 3)
    training: TrainSettings = TrainSettings()
    data: engine.DataPath | None = None
    model: engine.ModelName | None = None
    trace: str = ""
    overview: bool = True


def append(file: str, line: str) -> None:
    """Appends a line in one write, so that several processes can."""
    if file:
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, (line + "\n").encode())
        os.close(descriptor)


@engine.step()
def train(
    out: engine.Out, *, training: TrainSettings, data: engine.DataPath | None = None, trace: str = ""
) -> None:
    """Fits a tiny transformer to noise, with dropout, and a checkpoint every five steps."""
    import pandas as pd
    import torch
    from torch import nn

    settings = training
    layer = nn.TransformerEncoderLayer(
        settings.width, nhead=2, dim_feedforward=16, dropout=0.2, batch_first=True
    )
    model = nn.Sequential(
        nn.Linear(6, settings.width), nn.TransformerEncoder(layer, 2), nn.Linear(settings.width, 2)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate)
    parts = {"model": model, "optimizer": optimizer}
    checkpoint = out.checkpoint(every_minutes=0)
    state = checkpoint.restore(parts) or {"step": 0, "losses": []}
    append(trace, f"{'resumed' if state['step'] else 'started'} {out.coords}")
    for step in out.progress(range(state["step"], settings.steps), "training"):
        x = torch.randn(8, 5, 6)  # (batch, tokens, features)
        loss = nn.functional.cross_entropy(model(x).mean(1), (x.sum((1, 2)) > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state["losses"].append(loss.item())
        time.sleep(settings.pause)
        if step % 5 == 4:
            checkpoint.save(parts, {"step": step + 1, "losses": state["losses"]})
    out.table("losses", pd.DataFrame({"step": range(settings.steps), "loss": state["losses"]}))
    out.tensors("weights", model.state_dict())


@engine.step(version=2)
def score(out: engine.Out, *, trained: engine.Result, method: str) -> None:
    """Labelled array from the trained weights."""
    import torch
    import xarray as xr

    weights = trained.tensors("weights")["0.weight"]
    noise = torch.rand(()) if method == "noisy" else torch.tensor(0.0)
    values = xr.DataArray(
        (weights.abs().mean(0) + noise).numpy(), dims="unit", coords={"unit": [f"u{i}" for i in range(6)]}
    )
    values.attrs["method"] = method
    out.array("scores", values)
    out.json("best", {"unit": int(values.values.argmax()), "value": float(values.max())})


@engine.step()
def collect(out: engine.Out, *, scores: list[engine.Result]) -> None:
    """One table over all scores."""
    import pandas as pd

    out.table("overview", pd.DataFrame([result.json("best") for result in scores]))


def grid_cells(recipe: GridRecipe) -> Iterator[engine.Cell]:
    scores = []
    for width in recipe.widths:
        for seed in recipe.seeds:
            settings = recipe.training.model_copy(update={"width": width})
            coords = {"width": width, "seed": seed}
            arguments = {"training": settings, "data": recipe.data, "trace": recipe.trace}
            trained = engine.Cell(train, arguments, coords, seed=seed)
            yield trained
            for method in ("plain", "noisy"):
                place = {**coords, "method": method}
                scores.append(engine.Cell(score, {"trained": trained, "method": method}, place, seed))
                yield scores[-1]
    if recipe.overview:
        yield engine.Cell(collect, {"scores": scores})


grid = engine.Study(GridRecipe, grid_cells)


class TrivialRecipe(engine.Recipe):
    cells: int = 100
    fail: tuple[int, ...] = ()
    die: tuple[int, ...] = ()
    full: tuple[int, ...] = ()
    sleep: float = 0.0
    trace: str = ""
    flag: Path | None = None  # while this file exists, `fail` and `die` cells do so
    chained: bool = False
    megabytes: float = 0.0


@engine.step()
def trivial(
    out: engine.Out,
    *,
    number: int,
    fail: bool = False,
    die: bool = False,
    full: bool = False,
    sleep: float = 0.0,
    trace: str = "",
    flag: str = "",
    megabytes: float = 0.0,
    before: engine.Result | None = None,
) -> None:
    """Saves a number; fails or dies if told to."""
    if sleep:
        time.sleep(sleep)
    on = not flag or Path(flag).exists()
    if fail and on:
        raise ValueError(f"cell {number} fails on purpose")
    if full and on:
        import torch

        if flag:
            Path(flag).unlink()  # there is room the next time
        raise torch.OutOfMemoryError("CUDA out of memory")
    if die and on:
        os.kill(os.getpid(), 9)
    if megabytes:
        import torch

        out.tensors("big", {"zeros": torch.zeros(int(megabytes * 250_000))})
    earlier = before.json("value")["square"] if before is not None else 0
    out.json("value", {"square": number**2, "before": earlier})
    if sleep:
        out.json("gpu", os.environ.get("CUDA_VISIBLE_DEVICES"))
    append(trace, str(number))


def trivial_cells(recipe: TrivialRecipe) -> Iterator[engine.Cell]:
    last: engine.Cell | None = None
    for number in range(recipe.cells):
        arguments = {
            "number": number,
            "fail": number in recipe.fail,
            "die": number in recipe.die,
            "full": number in recipe.full,
            "sleep": recipe.sleep,
            "trace": recipe.trace,
            "flag": str(recipe.flag or ""),
            "megabytes": recipe.megabytes,
        }
        if recipe.chained and last:
            arguments["before"] = last
        last = engine.Cell(trivial, arguments, {"number": number}, megabytes=recipe.megabytes)
        yield last


many = engine.Study(TrivialRecipe, trivial_cells)


def square(number: int) -> dict[str, int]:
    """What `trivial` computes, as a plain function for the benchmark."""
    return {"square": number**2, "before": 0}
