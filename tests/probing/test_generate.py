"""Generated tasks: balanced, leakage-free, and in agreement with another reading of the treebank."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from headwise import grammar
from headwise.errors import HeadwiseError
from headwise.probing import Generate
from headwise.probing._balance import Item, balanced, forms_apart
from headwise.probing._generation import generate, grammar_tasks, treebank_tasks
from headwise.probing._senteval import SENTEVAL
from headwise.tasks import Sentence, Task
from headwise.tasks.readers import brackets, conllu

SIZE = 700


@pytest.fixture(scope="module")
def sentences() -> dict[str, list[Sentence]]:
    return {
        split: grammar.treebank(SIZE if split == "train" else SIZE // 2, 0, split)
        for split in ("train", "validation", "test")
    }


@pytest.fixture(scope="module")
def tasks(sentences: dict[str, list[Sentence]]) -> dict[str, Task]:
    return {task.name: task for task in generate(sentences, least=5)}


def test_all_ten_are_made(tasks: dict[str, Task]) -> None:
    assert list(tasks) == list(SENTEVAL)


def test_classes_are_equally_frequent_in_every_split(tasks: dict[str, Task]) -> None:
    for task in tasks.values():
        for split in task.splits:
            counts = np.bincount(task.split(split).labels, minlength=len(task.classes))
            assert counts.min() == counts.max() > 0, (task.name, split)


def test_no_sentence_is_in_two_splits_changed_or_not(tasks: dict[str, Task]) -> None:
    for task in tasks.values():
        bags = [
            {frozenset(Counter(text[0].lower().split()).items()) for text in task.split(split).texts}
            for split in task.splits
        ]
        if task.name != "OddManOut":  # a replaced word changes the bag
            assert not bags[0] & bags[1]
            assert not bags[0] & bags[2]
            assert not bags[1] & bags[2]


def test_labels_agree_with_what_the_grammar_says_it_made(
    tasks: dict[str, Task], sentences: dict[str, list[Sentence]]
) -> None:
    truth = {" ".join(s.words): s.labels for members in sentences.values() for s in members}
    names = {"Tense": ("tense", {"past": "Past", "present": "Pres", "Past": "Past", "Pres": "Pres"})}
    numbers = {"Sing": "Sing", "Plur": "Plur", "singular": "Sing", "plural": "Plur"}
    names |= {"SubjNumber": ("subject_number", numbers), "ObjNumber": ("object_number", numbers)}
    for name, (layer, values) in names.items():
        task = tasks[name]
        checked = 0
        for text, label in task.split("train"):
            said = truth[text[0]].get(layer)
            if said in values:
                assert task.classes[label] == values[said], text
                checked += 1
        assert checked > 20


def nesting(tree: str) -> list[tuple[int, str]]:
    """How deep every node of a tree in brackets lies, and its label, left to right; the outermost is at 1."""
    depth, found = 0, []
    for part in tree.replace("(", " ( ").replace(")", " ) ").split():
        if part == "(":
            depth += 1
            found.append((depth, ""))
        elif part == ")":
            depth -= 1
        elif not found[-1][1]:
            found[-1] = (found[-1][0], part)
    return found


def inversions(words: list[str]) -> Iterator[str]:
    """What a sentence may have been before its clauses around a conjunction were exchanged, in small letters."""
    for place in range(2, len(words) - 2):
        for first in {place, place - (words[place - 1] == ",")}:
            yield " ".join(
                [*words[place + 1 : -1], *words[first : place + 1], *words[:first], words[-1]]
            ).lower()


def test_every_label_is_what_the_words_and_the_tree_say(
    tasks: dict[str, Task], sentences: dict[str, list[Sentence]]
) -> None:
    """Read from brackets, and by looking for the sentence that a changed one was made of."""
    trees = {" ".join(s.words): nesting(str(s.tree)) for members in sentences.values() for s in members}
    small = {text.lower() for text in trees}
    by_length: dict[int, list[list[str]]] = {}
    for text in trees:
        by_length.setdefault(len(text.split()), []).append(text.split())

    def changed(name: str, text: str) -> bool:
        words = text.split()
        if name == "BigramShift":
            swapped = (
                [*words[:i], words[i + 1], words[i], *words[i + 2 :]] for i in range(1, len(words) - 1)
            )
            return any(" ".join(before) in trees for before in swapped)
        if name == "OddManOut":
            return any(
                sum(a != b for a, b in zip(words, before, strict=True)) == 1
                for before in by_length[len(words)]
            )
        return any(before in small for before in inversions(words))

    for name in ("BigramShift", "OddManOut", "CoordinationInversion"):
        for split in tasks[name].splits:
            for (text,), label in tasks[name].split(split):
                assert (text in trees) == (tasks[name].classes[label] == "O"), text
                assert text in trees or changed(name, text), (name, text)
    for split in ("train", "validation", "test"):
        for (text,), label in tasks["Length"].split(split):
            low, high = Generate().lengths[int(tasks["Length"].classes[label])]
            assert low <= len(text.split()) <= high
        for (text,), label in tasks["Depth"].split(split):
            assert max(depth for depth, _ in trees[text]) - 2 == int(
                tasks["Depth"].classes[label]
            )  # but for root and part of speech
        for (text,), label in tasks["TopConstituents"].split(split):
            top = " ".join(name for depth, name in trees[text] if depth == 3)
            assert tasks["TopConstituents"].classes[label] == (
                top if top in tasks["TopConstituents"].classes else "OTHER"
            ), text


def test_forms_that_carry_a_label_stay_in_one_split(sentences: dict[str, list[Sentence]]) -> None:
    items = {
        split: [Item(f"{split} {i} {w}", "a", w) for i, w in enumerate("abcde")]
        for split in ("train", "validation", "test")
    }
    for fixed in (True, False):
        found = forms_apart(items, Generate(), fixed)
        seen = [{item.form for item in members} for members in found.values()]
        assert not seen[0] & seen[1]
        assert not seen[0] & seen[2]
        assert not seen[1] & seen[2]
        assert sum(map(len, seen)) == 5
    assert all(
        item.text.startswith(split)
        for split, members in forms_apart(items, Generate(), True).items()
        for item in members
    )


def test_no_form_dominates_its_class() -> None:
    items = {
        "train": [Item(str(i), "a", "was") for i in range(900)]
        + [Item(f"x{i}", "a", f"w{i}") for i in range(100)]
    }
    found = forms_apart({**items, "validation": [], "test": []}, Generate(), True)["train"]
    assert Counter(item.form for item in found)["was"] == 50


def test_depth_is_matched_in_length() -> None:
    rng = np.random.default_rng(0)
    items = {
        split: [
            Item(str(i), str(d), "", int(d * 3 + rng.integers(12)))
            for i, d in enumerate(rng.integers(2, 6, 2000))
        ]
        for split in ("train", "validation", "test")
    }
    for members in balanced("Depth", items, Generate()).values():
        lengths = {
            label: sorted(item.length // 3 for item in members if item.label == label)
            for label in {i.label for i in members}
        }
        assert len(lengths) >= 3
        assert len({tuple(values) for values in lengths.values()}) == 1


def test_the_same_seed_gives_the_same_tasks(
    tasks: dict[str, Task], sentences: dict[str, list[Sentence]]
) -> None:
    for name in ("BigramShift", "OddManOut", "Tense"):
        (again,) = generate(sentences, [name], least=5)
        assert again.split("train").texts == tasks[name].split("train").texts
        (other,) = generate(sentences, [name], least=5, seed=1)
        assert other.split("train").texts != tasks[name].split("train").texts


def test_word_content_and_synthetic_flag() -> None:
    (task,) = grammar_tasks(1600, ["word_content"], least=8)
    assert task.synthetic
    assert len(task.classes) >= 5
    for text, label in task.split("train"):
        held = [name for name in task.classes if name in text[0].lower().split()]
        assert held == [task.classes[label]]


def test_from_files_in_both_formats(tmp_path, sentences: dict[str, list[Sentence]]) -> None:
    for folder, writer, suffix in (("ud", conllu.write, "conllu"), ("trees", brackets.write, "ptb")):
        (tmp_path / folder).mkdir()
        for split, members in sentences.items():
            writer(members, tmp_path / folder / f"{split}.{suffix}")
    from_ud = treebank_tasks(tmp_path / "ud", ["Tense", "SubjNumber"], least=5)
    from_trees = treebank_tasks(tmp_path / "trees", ["Tense", "SubjNumber"], least=5)
    for one, other in zip(from_ud, from_trees, strict=True):
        ours = {text[0]: one.classes[label] for text, label in one.split("train")}
        theirs = {text[0]: other.classes[label] for text, label in other.split("train")}
        common = ours.keys() & theirs.keys()
        assert len(common) > 20
        assert all(ours[text] == theirs[text] for text in common)


def test_one_list_is_divided_and_per_class_limits_it(sentences: dict[str, list[Sentence]]) -> None:
    (task,) = generate(sentences["train"], ["BigramShift"], per_class=40)
    assert len(task.split("train")) == 80
    assert len(task.split("test")) == 10


def test_what_cannot_be_made_is_said() -> None:
    bare = {split: [Sentence((split, "b", "c"))] for split in ("train", "validation", "test")}
    with pytest.raises(HeadwiseError, match="Depth cannot be made"):
        generate(bare, ["Depth"])
    with pytest.raises(HeadwiseError, match="there is no probing task"):
        generate(bare, ["nonsense"])
    with (
        pytest.warns(UserWarning, match="cannot be made"),
        pytest.raises(HeadwiseError, match="no probing task could be made"),
    ):
        generate(bare)
    with pytest.raises(HeadwiseError, match="no sentences for the split 'test'"):
        generate({"train": bare["train"], "validation": bare["validation"]}, ["Depth"])
