"""Sections of changed language models: steering, patching and the harness; numbers as saved, sentences by their intervals."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from test_sections import block, on_the_page

from headwise._base.sentences import NO_INTERVAL, NOT_SHOWN
from headwise.harness import HarnessResult
from headwise.report import read, write_figures
from headwise.scoring._files import keep_scores
from headwise.sections import Section
from headwise.steering import Steering
from pictures import assert_drawn

FACTS = {
    "task": "truth <b>",
    "pairs": "agree",
    "target": "true",
    "model": "gpt2",
    "heads_total": 144,
    "directions": "mean",
}
FACTS |= {"max_kl": 1.0, "bootstrap": 200, "level": 0.9, "seed": 0, "max_length": 256}


def steered(low: float, high: float, strength: float = 5.0, pairs: bool = True) -> Steering:
    """Effects 1 and 3 at strengths 0 and 5, on both splits."""
    rows: list[dict[str, Any]] = []
    for split in ("validation", "test"):
        for number, one in enumerate((0.0, 5.0)):
            change = {"change": 2.0 * number, "change_low": low * number, "change_high": high * number}
            row = {
                "split": split,
                "strength": one,
                "effect": 1.0 + 2.0 * number,
                "effect_low": low,
                "effect_high": high + 1,
            }
            row |= change | {"kl": 0.25 * number, "kl_low": 0.1 * number, "kl_high": 0.4 * number}
            rows.append(
                row | ({"accuracy": 0.5 + 0.25 * number} if pairs else {}) | {"examples": 80, "note": ""}
            )
    heads = pd.DataFrame(
        {
            "layer": [7, 3],
            "head": [11, 2],
            "validation": [0.9, 0.8],
            "test": [0.875, 0.8],
            "sigma": [1.0, 2.0],
        }
    )
    vectors = {(7, 11): torch.ones(4), (3, 2): torch.ones(4)}
    return Steering(
        pd.DataFrame(rows),
        heads,
        vectors,
        strength,
        {**FACTS, "pairs": "agree" if pairs else None},
        ["a note"],
    )


def test_a_saved_steering_is_shown(tmp_path: Path) -> None:
    steered(0.5, 3.5).save(tmp_path / "run")
    (section,) = read([tmp_path / "run"])
    assert section.findings[0] == (
        "Steering 2 of 144 heads towards true with strength 5 raises the mean of log p(good) − log p(bad) by +2.00 (90 % interval 0.50 to "
        "3.50) on the test split, at 0.25 nats per token from the intact model."
    )
    assert (
        "in 50.0 % of the pairs with the intact model, and in 75.0 % with the steered one"
        in section.findings[1]
    )
    assert (
        "head 7.11, best on validation, classifies 87.5 % of the test statements correctly"
        in section.findings[2]
    )
    assert section.notes == ["a note"]
    page = on_the_page(section)
    assert "truth <b>" not in page
    assert "headwise.steer(model, tasks" in page
    left, right = section.blocks[0].draw().axes
    lines = {line.get_label(): line for line in left.get_lines()}
    np.testing.assert_allclose(lines["chosen"].get_xdata(), 5)
    assert [
        list(line.get_ydata())
        for line in right.get_lines()
        if len(line.get_xdata()) == 2 and line.get_marker() == "o"
    ] == [[0, 0.25]] * 2
    for file in write_figures([tmp_path / "run"], tmp_path / "figures"):
        if file.suffix in (".pdf", ".png"):
            assert_drawn(file)


@pytest.mark.parametrize(
    ("low", "high", "said", "unsaid"),
    [
        (-0.5, 4.5, NOT_SHOWN, "raises"),
        (np.nan, np.nan, NO_INTERVAL, "raises"),
        (-4.0, -1.0, "lowers", NOT_SHOWN),
    ],
)
def test_steering_is_worded_by_its_interval(low: float, high: float, said: str, unsaid: str) -> None:
    first = steered(low, high).section().findings[0]
    assert said in first
    assert unsaid not in first
    on_the_page(steered(low, high).section())  # a figure without intervals can be drawn


def test_a_steering_that_found_no_strength_says_so() -> None:
    found = steered(0.5, 3.5, strength=0.0, pairs=False)
    first, second = found.section().findings[:2]
    assert first == (
        "No strength raised the lead of true statements over the others in log p within the limit of 1 nats per token on the validation split."
    )
    assert "7.11" in second


def contrasts(method: str = "patching", **facts: Any) -> xr.DataArray:
    values = np.array([[0.05, -0.2, 0.6], [0.1, np.nan, 0.0]])
    coords = {"layer": [0, 1], "head": [0, 1, 2]}
    attrs = {"method": method, "direction": "denoise", "tokens": "all", "task": "ioi", **facts}
    return xr.DataArray(values, dims=("layer", "head"), coords=coords, attrs=attrs, name="score")


@pytest.mark.parametrize(
    ("method", "said"), [("patching", "Activation patching"), ("attribution-patching", "to first order")]
)
def test_patching_scores_are_shares_of_the_difference(method: str, said: str, tmp_path: Path) -> None:
    keep_scores(
        contrasts(method, direction="noise", tokens="last").expand_dims(task=["ioi"]), tmp_path / "run"
    )
    (section,) = read([tmp_path / "run"])
    assert section.findings[0] == (
        "ioi: head 0.2 carries 60.0 % of the logit difference by itself, the most of 5 heads; 2 carry at least 10 %; head 0.1 works against "
        "it the most, -20.0 %."
    )
    assert NO_INTERVAL in section.findings[1]
    assert said in section.methods
    assert (
        "the corrupted prompts' outputs are patched into the clean prompts, at the last token"
        in section.methods
    )
    table = block(section, "patching-heads").frame
    assert table["head"].tolist() == ["0.2", "1.0", "0.0", "1.2", "0.1"]
    assert table["share (%)"].tolist() == pytest.approx([60, 10, 5, 0, -20])
    page = on_the_page(section)
    assert "headwise.score(model, tasks" in page


def evaluated(rows: list[tuple[str, float, float, float, float]]) -> HarnessResult:
    table = pd.DataFrame(
        [
            {
                "task": task,
                "filter": "none",
                "metric": "acc",
                "intact": intact,
                "changed": changed,
                "difference": changed - intact,
            }
            | {"low": low, "high": high, "examples": 100, "note": ""}
            for task, intact, changed, low, high in rows
        ]
    )
    facts = {
        "change": "silenced: {(0, 1)}",
        "tasks": [row[0] for row in rows],
        "model": "gpt2",
        "level": 0.95,
    }
    return HarnessResult(table, pd.DataFrame({"task": []}), facts, ["ppl has no value per example"])


def test_an_evaluation_is_worded_by_its_intervals(tmp_path: Path) -> None:
    rows = [
        ("blimp", 0.8, 0.6, -0.3, -0.1),
        ("lama", 0.5, 0.52, -0.05, 0.09),
        ("few", 0.5, 0.9, np.nan, np.nan),
        ("up", 0.1, 0.3, 0.1, 0.3),
    ]
    evaluated(rows).save(tmp_path / "run")
    (section,) = read([tmp_path / "run"])
    head, blimp, lama, few, up = section.findings
    assert (
        head
        == f"The change (silenced: {{(0, 1)}}) raises 1 and lowers 1 of 4 metrics; there is no interval for 1; for the rest {NOT_SHOWN}."
    )
    assert blimp.startswith(
        "blimp, acc: 0.800 intact, 0.600 changed, a difference of -0.200 (95 % interval -0.300 to -0.100): it is lower"
    )
    assert lama.endswith(f"{NOT_SHOWN}.")
    assert few.endswith(f"a difference of +0.400: {NO_INTERVAL}.")
    assert up.endswith("it is higher.")
    assert section.notes == ["ppl has no value per example"]
    page = on_the_page(section)
    assert "headwise.harness.run_harness(model, tasks" in page
    (axes,) = section.blocks[0].draw().axes  # type: ignore[union-attr]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "blimp, acc",
        "lama, acc",
        "few, acc",
        "up, acc",
    ]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first at the top


def test_an_evaluation_without_metrics_says_so() -> None:
    empty = evaluated([])
    empty.table = pd.DataFrame(
        columns=["task", "filter", "metric", "intact", "changed", "difference", "low", "high", "examples"]
    )
    section: Section = empty.section()
    assert section.findings[0].startswith("No metric of these tasks has a value per example")
    on_the_page(section)
