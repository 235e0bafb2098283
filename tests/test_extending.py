"""Whoever extends headwise writes one file: the page on extending is run, and what it adds is used like what headwise has itself."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, f1_score

import headwise as hw
from headwise import engine, report
from headwise.errors import HeadwiseError
from headwise.tasks import METRICS, batches, encode
from registries import TABLES, restored

PAGE = Path(__file__).parent.parent / "docs" / "extending.md"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The names of the page's script, run once in an empty folder."""
    folder, patch = tmp_path_factory.mktemp("extending"), pytest.MonkeyPatch()
    names: dict[str, Any] = {"__name__": "__main__", "folder": folder}
    with restored(), patch.context() as context:
        context.chdir(folder)
        context.syspath_prepend(str(folder))
        for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL):
            exec(compile(block, str(PAGE), "exec"), names)
        yield names


def test_an_estimator_is_scored_by_name_with_its_own_option(page: dict[str, Any]) -> None:
    model, task = page["run"].model, page["parity"]
    options: Any = {"method": "signed-gradient", "examples": 16, "quiet": True}
    plain, squared = hw.score(model, task, **options), hw.score(model, task, power=2, **options)
    assert plain.attrs["sense"] == "signed"
    assert not np.allclose(plain, squared)
    with pytest.raises(HeadwiseError, match="did you mean 'power'"):
        hw.score(model, task, powr=2, **options)


def test_a_method_adds_modules_branches_and_is_saved(page: dict[str, Any], tmp_path: Path) -> None:
    model = page["run"].model
    weights = {task: model.adapters[task].weight for task in ("parity", "animals")}
    assert all(not torch.equal(weight, torch.ones_like(weight)) for weight in weights.values())
    model.save(tmp_path / "model")
    again = hw.load(tmp_path / "model")
    batch = next(iter(batches(encode(page["animals"].split("validation"), model.tokenizer, 64), 8)))
    torch.testing.assert_close(again("animals", batch).logits, model("animals", batch).logits)


def test_a_kind_counts_its_labels(page: dict[str, Any]) -> None:
    model, task = page["run"].model, page["animals"]
    examples = task.split("validation")
    predicted = []
    for batch in batches(encode(examples, model.tokenizer, 64), 8, seed=None):
        predicted.append((model("animals", batch).logits > 0).int())
    plan = np.concatenate(batches(encode(examples, model.tokenizer, 64), 8, seed=None).plan)
    expected = f1_score(examples.labels[plan], torch.cat(predicted).numpy(), average="micro")
    assert hw.evaluate(model, task, quiet=True).score == pytest.approx(expected)


def test_a_metric_is_that_of_scikit_learn(page: dict[str, Any]) -> None:
    gold, answers = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 1, 0, 1, 1, 0])
    expected = balanced_accuracy_score(gold, answers)
    assert METRICS["balanced-accuracy"].function(answers, gold) == pytest.approx(expected)


def test_a_format_is_read_by_its_ending(page: dict[str, Any]) -> None:
    assert page["tagged"].classes == ("DET", "NOUN", "VERB")
    assert len(page["tagged"].split("validation")) == 4


def test_a_study_runs_and_its_report_has_the_figure(page: dict[str, Any], tmp_path: Path) -> None:
    run = tmp_path / "run"
    from lengths import LengthsRecipe, study

    engine.run_study(study, LengthsRecipe(kind="lengths:study", words=(1, 2, 4)), run, jobs=0, quiet=True)
    assert engine.open(run).table("lengths")["characters"].tolist() == [6, 12, 24]
    (section,) = report.read([run])
    assert section.findings == ["4 words have 24 characters."]
    assert [block.title for block in section.blocks] == ["Characters by words"]


def test_names_that_are_taken_are_refused(page: dict[str, Any]) -> None:
    for table in TABLES:
        with pytest.raises(HeadwiseError, match="already"):
            table[next(iter(table))] = object  # type: ignore[index]
