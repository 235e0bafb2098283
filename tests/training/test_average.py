"""Averages over tasks: MNLI's matched and mismatched sets count as two, and methods are averaged over the same tasks."""

from types import SimpleNamespace

import pandas as pd
import pytest
import toy

from headwise.studies._specialization_tables import averages, grid
from headwise.studies._training_tables import differences_of, table_of
from headwise.tasks._source import TaskSource
from headwise.training import _section as sections, train
from headwise.training._grid import Comparison


def test_a_task_that_shares_a_decoder_is_evaluated_and_counts_in_the_average() -> None:
    trained = [toy.task("mood", 24), toy.task("warmth", 24)]
    mismatched = toy.task("mood", 24, seed=3)
    mismatched.name = "mood_mm"
    found = train(
        toy.encoder(),
        trained,
        "multi-task",
        tokenizer=toy.tokenizer(),
        also={"mood": mismatched},
        epochs=1,
        quiet=True,
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
    values = {
        ("mnli", 0): 0.8,
        ("mnli_mm", 0): 0.6,
        ("cola", 0): 0.1,
        ("mnli", 1): 0.9,
        ("mnli_mm", 1): 0.5,
        ("cola", 1): 0.4,
    }
    place = {"model": "m", "sampling": "annealed", "method": "iat", "split": "validation"}
    rows = [{**place, "task": task, "seed": seed, "score": score} for (task, seed), score in values.items()]
    table = table_of(pd.DataFrame(rows)).set_index("task")
    assert table.loc["average", "mean"] == pytest.approx(55.0)  # of 50 and 60
    assert table.loc["average", "sd"] == pytest.approx(50**0.5)
    assert table.loc["average", "seeds"] == 2
    assert table.loc["mnli_mm", "mean"] == pytest.approx(55.0)


def lacking(base: str = "multi-task") -> pd.DataFrame:
    """Three methods whose scores differ by 0.02 points; single-task training lacks the hard task, the third method an easy one."""
    rows = []
    for seed in range(4):
        for number, method in enumerate((base, "single-task", "iat")):
            for task, score in (("hard", 0.5), ("easy", 0.8), ("middling", 0.7)):
                if (method, task) not in (("single-task", "hard"), ("iat", "easy")):
                    rows.append(
                        {
                            "method": method,
                            "seed": seed,
                            "task": task,
                            "score": score + 0.0002 * number + 1e-5 * seed * number,
                        }
                    )
    place = {"model": "m", "sampling": "annealed", "split": "validation", "metric": "accuracy", "chance": 0.5}
    return pd.DataFrame(rows).assign(**place, at_chance=False, alpha=1.0, delta=0.0, group="g")


def test_a_method_that_lacks_a_task_is_averaged_over_common_tasks() -> None:
    scores = lacking()
    found = differences_of(scores).set_index(["method", "task"])
    for method, number, tasks in (("single-task", 1, ["easy", "middling"]), ("iat", 2, ["hard", "middling"])):
        gain = (
            0.02 * number + 1e-3 * 1.5 * number
        )  # never the 15 points that leaving out the hard task would give
        assert found.loc[(method, "average"), "difference"] == pytest.approx(gain)
        assert found.loc[(method, "average"), "tasks"] == 2
        assert [task for task in found.loc[method].index if task != "average"] == tasks
    shown = table_of(scores).set_index(["method", "task"])
    for number, method in enumerate(("multi-task", "single-task", "iat")):  # one task is of all three
        assert shown.loc[(method, "average"), "mean"] == pytest.approx(70 + 0.02 * number, abs=0.01)
        assert shown.loc[(method, "average"), "tasks"] == 1
    fewer = differences_of(scores[scores["task"] != "middling"]).set_index(["method", "task"])
    assert fewer.loc[("iat", "average"), "difference"] == pytest.approx(0.043)
    assert "average" not in differences_of(scores[scores["task"] == "hard"])["method"].to_list()
    apart = scores[(scores["method"] == "multi-task") == (scores["task"] == "hard")]
    assert differences_of(apart).empty  # no task in common
    assert "average" not in table_of(apart)["task"].to_list()


def test_every_table_and_sentence_of_methods_averages_over_common_tasks() -> None:
    scores = lacking()
    name = "average of the 1 task that all methods have"
    shown = sections.wide(scores).set_index("task")
    assert [shown.loc[name, method][:4] for method in ("multi-task", "single-task", "iat")] == ["70.0"] * 3
    assert shown.loc["hard", "single-task"] == ""
    said = sections.training_findings(scores)
    assert said[:3] == [
        f"{method}: 70.0 on average over 1 task that all methods have (4 seeds)."
        for method in ("multi-task", "single-task", "iat")
    ]
    assert sections.training_findings(scores[scores["method"] == "iat"])[0].startswith(
        "iat: 60.0 on average over 2 tasks (4 seeds)"
    )
    parts = {
        (method, seed): SimpleNamespace(scores=some.drop(columns=["method", "seed"]))
        for (method, seed), some in scores.groupby(["method", "seed"], sort=False)
    }
    printed = Comparison(parts).table()  # type: ignore[arg-type]
    assert printed.loc[name].to_list() == ["70.0 ± 0.0"] * 3
    assert printed.loc["hard", "single-task"] == ""
    means = averages(scores).set_index("method")
    assert means["average"].to_list() == pytest.approx([70, 70, 70], abs=0.1)
    assert means.loc["iat", "tasks_improved"] == 2
    assert means.loc["single-task", "tasks_improved"] == 2


def test_models_are_averaged_over_the_pairs_that_all_have() -> None:
    rows = [("bert", "a", "b", 10.0), ("bert", "a", "c", 50.0), ("gpt2", "a", "b", 12.0)]
    pairs = pd.DataFrame(
        [{"model": model, "method": "multi-task", "A": a, "B": b, "D": d} for model, a, b, d in rows]
    )
    assert grid(pairs)["average"].to_list() == [10.0, 12.0]


def test_a_seed_without_a_common_task_does_not_count() -> None:
    scores = lacking()
    scores = scores[~((scores["seed"] == 0) & (scores["method"] == "iat") & (scores["task"] == "hard"))]
    average = differences_of(scores).set_index(["method", "task"]).loc[("iat", "average")]
    assert average["seeds"] == 3
    assert average["difference"] == pytest.approx(0.04 + 2e-3 * 2)
    assert (
        table_of(scores[scores["method"] != "single-task"])
        .set_index(["method", "task"])
        .loc[("iat", "average"), "seeds"]
        == 3
    )
