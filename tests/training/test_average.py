"""Averages over tasks: MNLI's matched and mismatched sets count as two."""

import pandas as pd
import pytest
import toy

from headwise.studies._training_tables import table_of
from headwise.tasks._source import TaskSource
from headwise.training import train


def test_a_task_that_shares_a_decoder_is_evaluated_and_counts_in_the_average() -> None:
    trained = [toy.task("mood", 24), toy.task("warmth", 24)]
    mismatched = toy.task("mood", 24, seed=3)
    mismatched.name = "mood_mm"
    found = train(
        toy.encoder(), trained, "multi-task", tokenizer=toy.tokenizer(), also={"mood": mismatched}, epochs=1, quiet=True
    )
    table = found.table()
    assert list(table.index) == ["mood", "mood_mm", "warmth", "average"]
    assert table.loc["average", "score"] == pytest.approx(table["score"].iloc[:3].mean(), abs=0.01)
    assert set(found.history["task"]) == {"mood", "warmth"}  # evaluated, not trained


def test_mnli_mm_is_set_apart_to_be_evaluated_with_mnlis_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [toy.task("mood", 20), toy.task("animal", 20), toy.task("warmth", 20)]
    for task, name in zip(found, ("mnli", "mnli_mm", "cola"), strict=True):
        task.name = name
    monkeypatch.setattr(TaskSource, "find", lambda self: found)
    trained, also = TaskSource().find_trained()
    assert [task.name for task in trained] == ["mnli", "cola"]
    assert also == {"mnli": found[1]}
    monkeypatch.setattr(TaskSource, "find", lambda self: found[1:])
    assert TaskSource().find_trained() == (found[1:], {})  # without mnli it is a task like any other


def test_the_studys_average_counts_every_task_once_in_each_seed() -> None:
    values = {("mnli", 0): 0.8, ("mnli_mm", 0): 0.6, ("cola", 0): 0.1, ("mnli", 1): 0.9, ("mnli_mm", 1): 0.5, ("cola", 1): 0.4}
    place = {"model": "m", "sampling": "annealed", "method": "iat", "split": "validation"}
    rows = [{**place, "task": task, "seed": seed, "score": score} for (task, seed), score in values.items()]
    table = table_of(pd.DataFrame(rows)).set_index("task")
    assert table.loc["average", "mean"] == pytest.approx(55.0)  # of 50 and 60
    assert table.loc["average", "sd"] == pytest.approx(50**0.5)
    assert table.loc["average", "seeds"] == 2
    assert table.loc["mnli_mm", "mean"] == pytest.approx(55.0)
