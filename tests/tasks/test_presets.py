"""Presets from a folder and from the hub, AG-Pair, TOML, names, and submission files."""

import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings, strategies as st

from headwise.errors import HeadwiseError
from headwise.tasks import PRESETS, Examples, Task, ag_pair, preset, presets, read_toml, write_glue
from headwise.tasks._submission import GLUE_FILES

SPLITS = ("train", "validation", "test")


def write_set(folder: Path, columns: dict[str, object], splits: tuple[str, ...] = SPLITS) -> None:
    folder.mkdir(parents=True)
    for split in splits:
        pd.DataFrame({name: make(split) for name, make in columns.items()}).to_parquet(
            folder / f"{split}.parquet"
        )  # type: ignore[operator]


def text(word: str, size: int = 24) -> object:
    return lambda split: [f"{split} {word} {i}" for i in range(size)]


def number(modulus: int, size: int = 24) -> object:
    return lambda split: [i % modulus for i in range(size)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The papers' sets in miniature, laid out as a user would have them."""
    root = tmp_path_factory.mktemp("data")
    for name, chosen in PRESETS.items():
        if name in ("mnli_mm", "sick_relatedness", "blimp", "wnut17", "ag_news"):
            continue
        columns = (chosen.text,) if isinstance(chosen.text, str) else chosen.text
        made = {column.split("|")[0]: text(column) for column in columns}
        labels = (
            (lambda split: [i / 7 for i in range(24)])
            if chosen.kind == "number"
            else number(len(chosen.classes or ()))
        )
        made[chosen.label.split("|")[0]] = labels
        if name == "sick":
            made["relatedness"] = lambda split: [1 + i / 6 for i in range(24)]
        write_set(root / name, made, (*SPLITS, "validation_mismatched") if name == "mnli" else SPLITS)
    write_set(root / "ag_news", {"text": text("news", 400), "label": number(4, 400)}, ("train", "test"))
    write_set(
        root / "blimp",
        {"phenomenon": lambda s: ["a", "b"] * 50, "good": text("good", 100), "bad": text("bad", 100)},
        ("all",),
    )
    (root / "wnut17").mkdir()
    for split in SPLITS:
        (root / "wnut17" / f"{split}.conll").write_text("Anna\tB-person\nran\tO\n\n")
    return root


@pytest.mark.parametrize("name", [*PRESETS, "ag_pair"])
@pytest.mark.filterwarnings("ignore:task")
def test_every_preset_loads_from_a_folder(data: Path, name: str) -> None:
    task = preset(name, data)
    assert task.name == name
    assert {"train", "validation"} <= set(task.splits)
    assert len(task.split("train")) > 0
    metrics = {
        "cola": "matthews",
        "mrpc": "f1",
        "qqp": "f1",
        "stsb": "spearman",
        "sick_relatedness": "pearson",
        "wnut17": "count-f1",
    }
    assert task.metric == metrics.get(name, "accuracy")
    if task.kind == "classes":
        assert len(task.classes) == len(set(task.classes)) >= 2
        assert preset(name, data, metric="accuracy").metric == "accuracy"
        assert 0 <= task.chance < 1


def test_mnli_matched_and_mismatched_are_two_tasks(data: Path) -> None:
    assert preset("MNLI-m", data).split("validation").texts[0][0] == "validation premise 0"
    assert preset("mnli-mm", data).split("validation").texts[0][0] == "validation_mismatched premise 0"
    other = data / "other" / "mnli"
    other.mkdir(parents=True)
    for split in ("train", "validation"):
        shutil.copy(data / "mnli" / f"{split}.parquet", other)
    with pytest.raises(HeadwiseError, match="has no validation_mismatched file, only: train, validation"):
        preset("mnli_mm", data / "other")


def test_a_folder_with_train_alone_gives_a_part_of_it_for_validation(tmp_path: Path) -> None:
    columns = {
        "premise": text("premise", 400),
        "hypothesis": text("hypothesis", 400),
        "label": number(3, 400),
    }
    write_set(tmp_path / "mnli", columns, ("train",))
    task = preset("mnli", tmp_path)
    assert set(task.splits) == {"train", "validation"}
    pairs = task.split("train").texts + task.split("validation").texts
    assert sorted(pairs) == sorted(
        zip(columns["premise"]("train"), columns["hypothesis"]("train"), strict=True)
    )
    assert 10 < len(task.split("validation")) < 90
    with pytest.raises(HeadwiseError, match="has no validation_mismatched file, only: train"):
        preset("mnli_mm", tmp_path)


def test_folders_names_and_errors(data: Path, tmp_path: Path) -> None:
    assert preset("SST-2", data / "sst2").split("train").texts == preset("sst2", data).split("train").texts
    assert [task.name for task in presets(data, ["cola", "STS-B"])] == ["cola", "stsb"]
    with pytest.raises(
        HeadwiseError, match=r"no preset 'colla' \(did you mean 'cola'\?\); there are: cola, sst2"
    ):
        preset("colla")
    with pytest.raises(HeadwiseError, match=r"no folder .*cola, and no data files in"):
        preset("cola", tmp_path)


def test_presets_ask_the_hub_for_the_right_set(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    asked = []

    def load(name: str, subset: str | None, revision: str | None) -> dict[str, object]:
        asked.append((name, subset))
        rows = {"premise": ["a b", "c d"], "hypothesis": ["e", "f"], "label": [0, 2]}
        made = datasets.Dataset.from_dict(rows)
        hidden = datasets.Dataset.from_dict({**rows, "premise": ["x", "y"], "label": [-1, -1]})
        return {
            "train": made,
            "validation_matched": hidden.map(lambda row: {"label": 1}),
            "test_matched": hidden,
        }

    monkeypatch.setattr(datasets, "load_dataset", load)
    task = preset("mnli")
    assert task.split("train").labels.tolist() == [0, 2]
    assert not task.split("test").labelled
    assert asked == [("nyu-mll/glue", "mnli")]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(6, 30), min_size=3, max_size=5), st.integers(0, 100))
def test_ag_pair_properties(sizes: list[int], seed: int) -> None:
    """methods.md §10: both classes equally many; every article exactly twice, never with itself."""
    topics = np.repeat(np.arange(len(sizes)), sizes)
    topics = np.random.default_rng(seed).permutation(topics)
    news = Examples([(f"article {i}",) for i in range(len(topics))], topics, "classes", tuple("abcde"))
    odd = sum(sizes) % 2  # one of the largest topic is left out then
    if max(sizes) - odd > (sum(sizes) - odd) / 2:
        with pytest.raises(HeadwiseError, match="cannot be paired"):
            ag_pair(news, seed)
        return
    assume(max(sizes) < 0.45 * sum(sizes))  # between the two it depends on which sizes are odd
    pairs = ag_pair(news, seed)
    used = [side for pair in pairs.texts for side in pair]
    left_out = len(topics) % 2
    assert len(set(used)) == len(topics) - left_out
    assert all(used.count(article) == 2 for article in set(used))
    assert all(a != b for a, b in pairs.texts)
    assert len({frozenset(pair) for pair in pairs.texts}) == len(pairs) == len(topics) - left_out
    assert pairs.labels.sum() * 2 == len(pairs)
    topic = {f"article {i}": t for i, t in enumerate(topics)}
    assert [int(topic[a] == topic[b]) for a, b in pairs.texts] == pairs.labels.tolist()
    assert ag_pair(news, seed).texts == pairs.texts


def test_ag_pair_partners_are_drawn_with_equal_chance() -> None:
    topics = np.arange(4000) % 4
    news = Examples([(f"article {i}",) for i in range(4000)], topics, "classes", tuple("abcd"))
    pairs = ag_pair(news, 1)
    same: dict[str, int] = {}
    for pair, label in zip(pairs.texts, pairs.labels, strict=True):
        for side in pair:
            same[side] = same.get(side, 0) + int(label)
    share = np.bincount(list(same.values()), minlength=3) / 4000
    assert np.allclose(share, [0.25, 0.5, 0.25], atol=0.04)
    crossed = np.zeros((4, 4))
    for (a, b), label in zip(pairs.texts, pairs.labels, strict=True):
        crossed[int(a.split()[1]) % 4, int(b.split()[1]) % 4] += 1 - label
    assert (crossed[~np.eye(4, dtype=bool)] > 100).all()  # every two topics meet, in both orders
    assert ag_pair(news, 2).texts != pairs.texts
    with pytest.raises(HeadwiseError, match="needs single texts with classes"):
        ag_pair(pairs)


def test_toml_defines_tasks_without_code(tmp_path: Path, data: Path) -> None:
    pd.DataFrame([(f"t {i}", i % 2) for i in range(40)], columns=["review", "stars"]).to_csv(
        tmp_path / "r.csv", index=False
    )
    file = tmp_path / "tasks.toml"
    file.write_text(
        f"""
[reviews]
path = "r.csv"
text = "review"
label = "stars"
metric = "macro-f1"
fractions = {{ train = 0.5, validation = 0.25, test = 0.25 }}

[glue.first]
preset = "rte"
path = "{data}"

[more.verbs]
grammar = "tense"
size = 64
"""
    )
    reviews, first, verbs = read_toml(file)
    assert (reviews.name, reviews.metric, sum(len(reviews.split(s)) for s in reviews.splits)) == (
        "reviews",
        "macro-f1",
        40,
    )
    assert (first.name, first.split("train").task, verbs.name, verbs.synthetic) == (
        "first",
        "first",
        "verbs",
        True,
    )
    assert Task.from_toml(f"[a]\npreset = 'rte'\npath = '{data}'\n").classes == (
        "entailment",
        "not entailment",
    )
    for content, message in (
        ("[a]\npath = 'x.csv'\nlable = 'y'\n", "task 'a': unknown key 'lable' (did you mean 'label'?)"),
        ("[a]\nx = 1\n", "defines no task"),
        ("[a\n", "not valid TOML"),
    ):
        with pytest.raises(HeadwiseError, match=re.escape(message)):
            read_toml(content)
    with pytest.raises(HeadwiseError, match="expected one task, found 3"):
        Task.from_toml(file)
    with pytest.raises(HeadwiseError, match="could not be read"):
        read_toml(tmp_path / "none.toml")


def test_glue_files_are_as_the_server_wants_them(tmp_path: Path) -> None:
    written = write_glue(
        {"cola": [1, 0], "mnli": [0, 2, 1], "qnli": [1, 0], "stsb": [5.3, -1, 2.5]}, tmp_path / "out"
    )
    assert [file.name for file in written] == ["CoLA.tsv", "MNLI-m.tsv", "QNLI.tsv", "STS-B.tsv"]
    assert written[0].read_text() == "index\tprediction\n0\t1\n1\t0\n"
    assert written[1].read_text().splitlines()[1:] == ["0\tentailment", "1\tcontradiction", "2\tneutral"]
    assert written[2].read_text().splitlines()[1:] == ["0\tnot_entailment", "1\tentailment"]
    assert written[3].read_text().splitlines()[1:] == ["0\t5.000", "1\t0.000", "2\t2.500"]
    assert set(GLUE_FILES) <= set(PRESETS)
    for name, (_, classes) in GLUE_FILES.items():  # class numbers mean the same in presets
        if classes is not None:
            assert tuple(c.replace("_", " ") for c in classes) == PRESETS[name].classes
    for wrong, message in (
        ({"cola": [2]}, "is 2, not a class number below 2"),
        ({"imdb": [1]}, "not a GLUE task"),
        ({"rte": [0.5]}, "is 0.5"),
    ):
        with pytest.raises(HeadwiseError, match=message):
            write_glue(wrong, tmp_path)
