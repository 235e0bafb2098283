"""Tasks that were not learnt claim heads by chance: the stem-cell study leaves them out of its judgement, and says so."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from transformers import BertConfig, BertModel

import planted
from headwise.studies._sections.stemcells import findings
from headwise.studies._stemcells import claim, learnt_in, not_learnt, stem_cell_test
from headwise.studies._stemcells_effects import stem_cell_effect
from headwise.studies._stemcells_study import analyse

TASKS = ["pos", "ner", "dep", "con", "srl"]
RUNS, LAYERS, HEADS, FRACTION = 3, 4, 8, 0.25
RNG = np.random.default_rng(0)
SHARED = RNG.normal(size=(LAYERS, HEADS))


def training(weak: dict[str, bool]) -> pd.DataFrame:
    rows = [
        {"task": task, "metric": m, "score": 0.5, "at_chance": flag}
        for task, flag in weak.items()
        for m in ("f1", "accuracy")
    ]
    return pd.DataFrame(rows)


def test_a_task_is_learnt_if_more_than_half_of_its_trainings_are_above_chance() -> None:
    tables = [training({"pos": False, "ner": run < 2, "dep": run < 1}) for run in range(3)]
    assert not_learnt(tables) == ["ner"]
    assert sorted(not_learnt(tables[:2])) == ["dep", "ner"]  # one of two is not more than half


def test_what_one_group_of_trainings_has_not_learnt_is_left_out() -> None:
    claims = xr.DataArray(
        np.ones((1, 3, 1, 1), bool),
        dims=("run", "task", "layer", "head"),
        coords={"task": ["pos", "ner", "dep"]},
    )
    weak = {"single": ["ner"], "multi": ["dep"]}
    assert learnt_in(claims, weak, "single")[0].task.values.tolist() == ["pos", "dep"]
    assert learnt_in(claims, weak, "single", "multi")[1] == "ner, dep"
    assert learnt_in(claims, weak)[1] == ""


class Result:
    """What `analyse` reads of a finished cell."""

    def __init__(self, **held: Any) -> None:
        self.held = held

    def table(self, name: str) -> Any:
        return self.held[name]

    array = table


class Out:
    def __init__(self) -> None:
        self.tables: dict[str, pd.DataFrame] = {}

    def table(self, name: str, value: pd.DataFrame) -> None:
        self.tables[name] = value

    def array(self, name: str, value: Any) -> None: ...


def grid(values: np.ndarray, tasks: list[str]) -> xr.DataArray:
    return xr.DataArray(
        values,
        dims=("task", "layer", "head"),
        coords={"task": tasks, "layer": range(LAYERS), "head": range(HEADS)},
    )


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model that the trainings began with: layers of their own, so that none are tied."""
    folder = tmp_path_factory.mktemp("encoder")
    sizes = {
        "hidden_size": 4 * HEADS,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": 8,
    }
    BertModel(BertConfig(vocab_size=len(planted.WORDS), **sizes)).save_pretrained(folder)
    planted.tokenizer().save_pretrained(folder)
    return folder


def analysed(encoder: Path, weak: dict[str, set[str]]) -> tuple[Out, xr.DataArray, dict[str, xr.DataArray]]:
    """The analysis of a study whose tasks all like the same heads, but for `srl`, which was not learnt and likes any."""
    rng = np.random.default_rng(1)
    places = [{"task": task, "run": run} for run in range(RUNS) for task in TASKS]
    gates = np.stack(
        [(0 if p["task"] == "srl" else 2) * SHARED + rng.normal(size=(LAYERS, HEADS)) for p in places]
    )
    probes = {stage: rng.random((RUNS, len(TASKS), LAYERS, HEADS)) for stage in ("single", "multi")}
    alone = [Result(scores=training({p["task"]: p["task"] in weak.get("single", ())})) for p in places]
    together = [Result(scores=training({t: t in weak.get("multi", ()) for t in TASKS})) for _ in range(RUNS)]
    stages = [(stage, run) for stage in probes for run in range(RUNS)]
    out = Out()
    analyse(
        out,
        model=SimpleNamespace(folder=lambda: encoder),
        tasks=TASKS,
        fraction=FRACTION,
        trained=[*alone, *together],
        groups=["single"] * len(alone) + ["multi"] * len(together),
        claimed=[Result(gates=grid(one[None], ["x"])) for one in gates],
        claimed_places=[{"gates": "subset", **place} for place in places],
        probed=[Result(probe=grid(probes[stage][run], TASKS)) for stage, run in stages],
        probed_places=[{"stage": stage, "run": run} for stage, run in stages],
        untrained=Result(probe=grid(rng.random((len(TASKS), LAYERS, HEADS)), TASKS)),
    )
    coords = {"run": range(RUNS), "task": TASKS}
    scores = xr.DataArray(
        gates.reshape(RUNS, len(TASKS), LAYERS, HEADS), dims=("run", "task", "layer", "head"), coords=coords
    )
    return (
        out,
        claim(scores, int(FRACTION * LAYERS * HEADS)),
        {s: scores.copy(data=values) for s, values in probes.items()},
    )


def test_the_tests_are_those_of_the_tasks_that_were_learnt(encoder: Path) -> None:
    out, claims, probes = analysed(encoder, {"single": {"srl"}, "multi": {"con"}})
    (row,) = out.tables["stem-cells"].to_dict("records")
    assert row["at chance"] == "srl"
    expected = stem_cell_test(claims.sel(task=TASKS[:4]))
    assert {name: row[name] for name in expected} == expected
    assert expected["expected"] != stem_cell_test(claims)["expected"]
    effects = out.tables["effects"].set_index("effect")
    assert set(effects["at chance"]) == {"con, srl"}  # in the order of the tasks
    effect = stem_cell_effect(claims.sel(task=TASKS[:3]), probes["single"], probes["multi"])
    assert effects.loc["single to multi, stem − alone", "mean"] == pytest.approx(effect.mean, nan_ok=True)
    said = " ".join(findings(out.tables["stem-cells"], out.tables["effects"]))
    assert "Left out, since it was not learnt (at chance on test): srl." in said
    assert "Left out, since they were not learnt (at chance on test): con, srl." in said


def test_with_fewer_than_two_tasks_nothing_is_judged(encoder: Path) -> None:
    out, _, _ = analysed(encoder, {"single": {"pos", "ner", "dep", "srl"}})
    (row,) = out.tables["stem-cells"].to_dict("records")
    assert np.isnan(row["p"])
    assert np.isnan(row["found"])
    assert out.tables["effects"]["mean"].isna().all()
    said = findings(out.tables["stem-cells"], out.tables["effects"])
    assert said[0].startswith(
        "By subset, nothing can be said of shared heads: fewer than two tasks were learnt."
    )
    assert all("nan" not in sentence for sentence in said)


def test_a_study_whose_tasks_were_all_learnt_is_as_ever(encoder: Path) -> None:
    out, claims, _ = analysed(encoder, {})
    (row,) = out.tables["stem-cells"].to_dict("records")
    assert row["at chance"] == ""
    assert {name: row[name] for name in stem_cell_test(claims)} == stem_cell_test(claims)
    assert not any(
        "Left out" in sentence for sentence in findings(out.tables["stem-cells"], out.tables["effects"])
    )
