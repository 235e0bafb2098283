"""A resumed training is bit for bit the undisturbed one, and a damaged checkpoint is noticed."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from headwise.errors import HeadwiseError
from headwise.store import Checkpoint
from headwise.store._trees import Flat, flatten, unflatten


class Shuffler:
    """A sampler with its own generator."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(3)

    def draw(self) -> np.ndarray:
        return self.generator.integers(0, 50, size=8)

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.generator.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.generator.bit_generator.state = state["generator"]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 12)
        self.norm = nn.BatchNorm1d(12)
        self.drop = nn.Dropout(0.3)
        self.out = nn.Linear(12, 50, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.drop(self.norm(self.embed(x))))


OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, amsgrad=True),
    "adamw-foreach": lambda p: torch.optim.AdamW(p, lr=1e-2, foreach=True),
    "adamw-tensor-lr": lambda p: torch.optim.AdamW(p, lr=torch.tensor(1e-2)),
    "adamw-fused": lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, nesterov=True),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=1e-2),
    "asgd": lambda p: torch.optim.ASGD(p, lr=1e-2),
}


def build(name: str, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    model = Tied().to(dtype)
    optimizer = OPTIMIZERS[name](
        [{"params": [model.embed.weight]}, {"params": list(model.norm.parameters()), "weight_decay": 0.0}]
    )
    scheduler = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3),
            torch.optim.lr_scheduler.MultiStepLR(optimizer, [4, 6]),
        ],
        milestones=[3],
    )
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler, "sampler": Shuffler()}


def train(parts: dict[str, Any], first: int, last: int, losses: list[float]) -> None:
    for _ in range(first, last):
        x = torch.from_numpy(parts["sampler"].draw())
        drawn = int(np.random.randint(50)) + int(torch.randint(50, ()))  # noqa: NPY002  (every generator decides the loss)
        y = (torch.tensor([random.randrange(50) for _ in x]) + drawn) % 50
        loss = nn.functional.cross_entropy(parts["model"](x).float(), y)
        parts["optimizer"].zero_grad()
        loss.backward()
        parts["optimizer"].step()
        parts["scheduler"].step()
        losses.append(loss.item())


def same(a: Any, b: Any) -> bool:
    left, right = Flat(), Flat()
    return flatten(a, left) == flatten(b, right) and all(
        left[k].dtype == right[k].dtype and torch.equal(left[k], right[k]) for k in left
    )


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_resumed_training_is_bit_identical(name: str, tmp_path: Path) -> None:
    whole = build(name)
    losses: list[float] = []
    train(whole, 0, 10, losses)

    parts = build(name)
    before: list[float] = []
    train(parts, 0, 5, before)
    Checkpoint(tmp_path).save(parts, {"step": 5, "losses": before})
    saved_optimizer = parts["optimizer"].state_dict()

    resumed = build(name)
    torch.rand(3), random.random(), np.random.rand()  # noqa: NPY002  (the random state is elsewhere now)
    state = Checkpoint(tmp_path).restore(resumed)
    assert state is not None
    assert state["step"] == 5
    assert same(resumed["optimizer"].state_dict(), saved_optimizer)
    train(resumed, state["step"], 10, state["losses"])
    assert state["losses"] == losses
    assert all(same(whole[part].state_dict(), resumed[part].state_dict()) for part in whole)
    assert resumed["model"].out.weight is resumed["model"].embed.weight


def test_optimizer_state_keeps_dtypes_that_differ_from_the_weights(tmp_path: Path) -> None:
    weight = nn.Parameter(torch.ones(4, 6, dtype=torch.bfloat16).t())
    optimizer = torch.optim.SGD([weight])
    exact = torch.full((6, 4), 1 / 3, dtype=torch.float64)
    optimizer.state[weight] = {"step": 7, "exp_avg": exact, "count": torch.tensor(3, dtype=torch.int64)}
    Checkpoint(tmp_path).save({"optimizer": optimizer})
    other = nn.Parameter(torch.ones(4, 6, dtype=torch.bfloat16).t())
    loaded = torch.optim.SGD([other])
    Checkpoint(tmp_path).restore({"optimizer": loaded})
    state = loaded.state[other]
    assert state["step"] == 7
    assert isinstance(state["step"], int)
    assert state["exp_avg"].dtype == torch.float64
    assert torch.equal(state["exp_avg"], exact)
    assert state["count"].dtype == torch.int64
    assert loaded.param_groups[0]["lr"] == 1e-3


def test_trees_come_back_exactly() -> None:
    value = {
        "a": (1, 2.5, None, True, "x"),
        3: [float("inf"), np.float32(0.1), np.arange(3, dtype=np.uint32)],
        "t": torch.arange(6).reshape(2, 3).t(),
        "half": torch.tensor(1.5, dtype=torch.bfloat16),
    }
    tensors = Flat()
    back = unflatten(flatten(value, tensors), tensors)
    assert back["a"] == value["a"]
    assert back[3][0] == float("inf")
    assert type(back[3][1]) is np.float32
    assert back[3][2].dtype == np.uint32
    assert back["t"].stride() == (1, 3)
    assert torch.equal(back["t"], value["t"])
    assert back["half"].dtype == torch.bfloat16
    with pytest.raises(HeadwiseError, match=r"parts\.model\.f: it is a function"):
        flatten({"parts": {"model": {"f": lambda: 0}}}, Flat())


@pytest.mark.parametrize("damage", ["truncate", "flip", "edit", "missing"])
def test_damaged_newest_falls_back_to_the_one_before(damage: str, tmp_path: Path) -> None:
    part = {"model": nn.Linear(3, 3)}
    checkpoint = Checkpoint(tmp_path)
    for step in range(4):
        nn.init.constant_(part["model"].weight, float(step))
        newest = checkpoint.save(part, {"step": step})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["00000002", "00000003"]
    file = newest / ("state.json" if damage == "edit" else "tensors.safetensors")
    raw = bytearray(file.read_bytes())
    if damage == "truncate":
        file.write_bytes(raw[: len(raw) // 2])
    elif damage == "flip":
        raw[-1] ^= 1
        file.write_bytes(raw)
    elif damage == "edit":
        file.write_text(file.read_text().replace('"step",\n', '"step", \n').replace("3\n", "9\n"))
    else:
        file.unlink()
    with pytest.warns(UserWarning, match="is damaged"):
        assert Checkpoint(tmp_path).restore(part) == {"step": 2}
    assert part["model"].weight.unique().tolist() == [2.0]


def test_due_by_the_clock_and_other_parts_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("headwise.store._checkpoint.time.monotonic", lambda: now[0])
    checkpoint = Checkpoint(tmp_path / "c", every_minutes=2)
    assert checkpoint.restore({}) is None
    now[0] += 119
    assert not checkpoint.due()
    now[0] += 1
    assert checkpoint.due()
    checkpoint.save({"model": nn.Linear(1, 1)})
    assert not checkpoint.due()
    with pytest.raises(HeadwiseError, match=r"holds the parts \['model'\], asked for \['encoder'\]"):
        checkpoint.restore({"encoder": nn.Linear(1, 1)})
    checkpoint.clear()
    assert not (tmp_path / "c").exists()
