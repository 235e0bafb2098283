"""Parameter-free probes find planted heads, and their controls stay at chance although they choose the best head too."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import xarray as xr

import planted_words as planted
from headwise.errors import HeadwiseError
from headwise.heads import Heads
from headwise.probing._items import find_items
from headwise.probing._parameter_free import COUNTS, FreeProbe, _partners, fixed_offset, free_probe
from headwise.tasks import Task

KINDS = {"pos": "centroid", "ner": "centroid", "con": "centroid", "dep": "attends", "srl": "attends"}


@pytest.fixture(scope="module")
def tasks() -> dict[str, Task]:
    return planted.tasks()


@pytest.fixture(scope="module")
def heads() -> Heads:
    return Heads(planted.model())


@pytest.fixture(scope="module")
def probes(tasks: dict[str, Task], heads: Heads) -> dict[str, FreeProbe]:
    return {
        name: free_probe(heads.model, task, planted.tokenizer(), heads=heads, quiet=True)
        for name, task in tasks.items()
    }


@pytest.mark.parametrize("name", KINDS)
def test_planted_head_is_found(probes: dict[str, FreeProbe], name: str) -> None:
    best = probes[name].best()
    wanted = planted.IDENTITY if KINDS[name] == "centroid" else planted.PREVIOUS
    assert (best["recall"] == 1).all(), best
    assert set(zip(best["layer"], best["head"], strict=True)) == {wanted}
    assert set(best["way"]) == {KINDS[name]}
    scores = probes[name].head_scores()
    assert scores.dims == ("layer", "head")
    assert tuple(int(v) for v in np.unravel_index(int(np.argmax(scores.to_numpy())), scores.shape)) == wanted
    assert float(scores.max()) == 1
    if KINDS[name] == "centroid":
        assert (best["precision"] == 1).all()


def test_precision_of_arcs_is_a_labels_part_in_all_arcs(
    probes: dict[str, FreeProbe], tasks: dict[str, Task]
) -> None:
    best = probes["dep"].best().set_index("label")
    labels = np.concatenate(
        [array[1:, 1] for array in tasks["dep"].split("test").labels]
    )  # the first word is the root
    share = {name: float(np.mean(labels == i)) for i, name in enumerate(tasks["dep"].classes)}
    assert best.loc["r0", "precision"] == pytest.approx(share["r0"])
    assert best.loc["r1", "precision"] == pytest.approx(share["r1"])
    # of the arcs that reach a predicate in the planted head, all come from its argument, but for those of first words: they attend to
    # [CLS] and so find some word or other
    assert 0.75 < probes["srl"].best()["precision"].item() <= 1


@pytest.mark.parametrize("name", KINDS)
def test_permuted_labels_stay_near_chance(tasks: dict[str, Task], heads: Heads, name: str) -> None:
    shuffled = free_probe(
        heads.model, tasks[name], planted.tokenizer(), heads=heads, permuted=True, quiet=True
    )
    chance = 1 / 3 if KINDS[name] == "centroid" else 0.4  # three classes; an arc may lead to a few near words
    assert shuffled.macro()["recall"] < chance + 0.2
    assert shuffled.head_scores().max() < chance + 0.2


def test_fixed_offset_finds_a_rule_and_no_more(tasks: dict[str, Task]) -> None:
    rule = fixed_offset(tasks["dep"])
    assert rule.macro()["recall"] == 1  # in these sentences the head always stands one word before
    assert set(rule.best()["head"]) == {9}  # offsets -10 ... -1, so number 9 is -1
    assert fixed_offset(tasks["srl"]).macro()["recall"] == 1


@pytest.mark.parametrize("name", ["pos", "dep"])
def test_batch_size_and_windows_change_little(
    tasks: dict[str, Task], heads: Heads, probes: dict[str, FreeProbe], name: str
) -> None:
    again = free_probe(heads.model, tasks[name], planted.tokenizer(), heads=heads, batch_size=7, quiet=True)
    np.testing.assert_array_equal(again.counts, probes[name].counts)
    windowed = free_probe(
        heads.model, tasks[name], planted.tokenizer(), heads=heads, max_length=8, quiet=True
    )
    layer, head = planted.IDENTITY if name == "pos" else planted.PREVIOUS
    expected = 1.0 if name == "pos" else 0.95  # the first word of a later window has no word before it there
    assert float(windowed.head_scores()[layer, head]) >= expected


def test_counts_equal_slow_loops(tasks: dict[str, Task]) -> None:
    generator = torch.Generator().manual_seed(0)
    for name in ("dep", "srl"):
        examples = tasks[name].split("test")
        items = find_items(examples, None)
        numbers = np.arange(12)
        words = max(len(s) for s in examples.sentences[:12])  # type: ignore[index]
        partner = torch.randint(0, words, (12, 3, 2, words), generator=generator)
        found = items.count_arcs(numbers, partner)
        slow = np.zeros(tuple(found.shape))
        for i in numbers:
            n = len(examples.sentences[i])  # type: ignore[index]
            for h in range(3):
                for way in range(2):
                    goes = partner[i, h, way].tolist()
                    sources = [r[0] for r in items.rows[i]] if name == "dep" else range(n)
                    drawn = sum(
                        goes[w] < n and (name == "dep" or bool(items.targets[i][goes[w]])) for w in sources
                    )
                    slow[way, :, h, 3] += drawn
                    for start, end, label, goal in items.rows[i].tolist():
                        hits = sum(goes[w] == goal and w != goal for w in range(start, end))
                        slow[way, label, h, :3] += [hits > 0, 1, hits]
        np.testing.assert_array_equal(found.numpy(), slow)


def test_a_word_finds_another_word_of_its_sentence() -> None:
    """Most attention stays on the word itself, or goes beyond the sentence: neither is a head."""
    attention = torch.rand(2, 3, 6, 6, generator=torch.Generator().manual_seed(1)) + 2 * torch.eye(6)
    attention[1, :, :, 4:] += 1
    attention[1, :, 4:] += 1
    found = _partners(attention, SimpleNamespace(n_words=torch.tensor([6, 4])))  # (2, heads, 2, words)
    for i, words in enumerate((6, 4)):
        for head in range(3):
            here = attention[i, head, :words, :words].tolist()
            for word in range(words):
                rest = [other for other in range(words) if other != word]
                assert found[i, head, 0, word] == max(rest, key=lambda other: here[word][other])
                assert found[i, head, 1, word] == max(rest, key=lambda other: here[other][word])


def test_lowest_phrases_only(tasks: dict[str, Task]) -> None:
    examples = tasks["con"].split("test")
    items = find_items(examples, None)
    assert items.labels == ("AP", "BP", "CP", "S")
    assert all((rows[:, 1] - rows[:, 0] == 1).all() for rows in items.rows)  # S holds other phrases


def test_other_kinds_are_refused() -> None:
    task = Task("x", data={"train": [("a b", "1"), ("c", "0")]}, kind="classes")
    with pytest.raises(HeadwiseError, match="these probes are for"):
        free_probe(planted.model(), task, planted.tokenizer())


def test_centroids_come_from_train(tasks: dict[str, Task], heads: Heads) -> None:
    """Where training names the classes the other way round, the head that knows them gets every one wrong."""
    examples = tasks["pos"].split("train")
    turned = replace(examples, labels=[(np.asarray(labels) + 1) % 3 for labels in examples.labels])
    found = free_probe(
        heads.model, tasks["pos"].with_splits(train=turned), planted.tokenizer(), heads=heads, quiet=True
    )
    layer, head = planted.IDENTITY
    assert (found.recall("test").sel(way="centroid")[:, layer, head] == 0).all()
    assert (found.recall("validation").sel(way="centroid")[:, layer, head] == 0).all()


def made_up(kind: str, shares: dict[tuple[str, str, int], int]) -> FreeProbe:
    """One label, one layer, two heads; of ten things so many are found, by (split, way, head)."""
    ways = list(dict.fromkeys(way for _, way, _ in shares))
    coords = {
        "split": ["validation", "test"],
        "way": ways,
        "label": ["x"],
        "layer": [0],
        "head": [0, 1],
        "count": list(COUNTS),
    }
    counts = xr.DataArray(np.zeros([len(v) for v in coords.values()]), dims=list(coords), coords=coords)
    for (split, way, head), hit in shares.items():
        counts.loc[{"split": split, "way": way, "head": head, "label": "x", "layer": 0}] = [hit, 10, hit, 10]
    return FreeProbe("t", kind, counts)


def test_heads_and_ways_are_chosen_on_validation() -> None:
    free = made_up(
        "tags",
        {
            ("validation", "centroid", 0): 9,
            ("validation", "centroid", 1): 2,
            ("test", "centroid", 0): 3,
            ("test", "centroid", 1): 8,
        },
    )
    (row,) = free.best().to_dict("records")
    assert (row["head"], row["validation"], row["recall"]) == (0, 0.9, 0.3)
    arcs = made_up("dependencies", {
        ("validation", "attends", 0): 7, ("validation", "attended", 0): 1, ("test", "attends", 0): 2, ("test", "attended", 0): 6,
        ("validation", "attends", 1): 3, ("validation", "attended", 1): 4, ("test", "attends", 1): 9, ("test", "attended", 1): 5,
    })  # fmt: skip
    assert arcs.head_scores("test").to_numpy().tolist() == [[0.2, 0.5]]
    (row,) = arcs.best().to_dict("records")
    assert (row["way"], row["head"], row["recall"]) == ("attends", 0, 0.2)
