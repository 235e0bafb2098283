"""Tasks of the grammar: balanced, reproducible, honest, and not to be solved by counting words."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from headwise import grammar
from headwise.errors import HeadwiseError
from headwise.grammar import _making as making
from headwise.grammar._treebank import _drawn_sentences as made_sentences
from headwise.tasks import Task


@pytest.mark.parametrize("name", grammar.NAMES)
def test_classes_are_balanced_texts_new_and_seeds_reproduce(name: str) -> None:
    task = grammar.task(name, 96, seed=5, held_out=32)
    making._drawn_texts.cache_clear()  # else the same texts are given again
    again = grammar.task(name, 96, seed=5, held_out=32)
    other = grammar.task(name, 96, seed=6, held_out=32)
    assert task.synthetic
    assert [len(task.split(split)) for split in task.splits] == [96, 32, 32]
    seen: set[tuple[str, ...]] = set()
    for split in task.splits:
        examples = task.split(split)
        counts = np.bincount(examples.labels, minlength=len(task.classes))
        assert counts.max() - counts.min() <= 1
        assert len(set(examples.texts)) == len(examples)
        assert not seen & set(examples.texts)
        seen |= set(examples.texts)
        assert examples.texts == again.split(split).texts
        assert examples.labels.tolist() == again.split(split).labels.tolist()
    assert task.split("train").texts != other.split("train").texts
    assert len(set(np.diff(task.split("train").labels))) > 1  # in random order
    assert "synthetic" in repr(task)


@pytest.mark.parametrize("name", ["tense", "pos"])
def test_texts_are_made_once_in_a_process_and_each_task_has_labels_of_its_own(name: str) -> None:
    first, second = grammar.task(name, 64, seed=9), grammar.task(name, 64, seed=9)
    assert (making._drawn_texts if name == "tense" else made_sentences).cache_info().hits >= 3
    before = second.split("train").fingerprint
    first.split("train").labels[0] += 1  # whoever changes a task in place changes no other
    first.split("train").texts[0] = ("another",)  # type: ignore[index]
    assert grammar.task(name, 64, seed=9).split("train").fingerprint == before


def bag_of_words(task: Task, **options: object) -> float:
    """Test accuracy of logistic regression on word counts, first and second text told apart."""

    def words(split: str) -> list[str]:
        return [
            " ".join(f"{i}{word}" for i, text in enumerate(texts) for word in text.split())
            for texts in task.split(split).texts
        ]

    model = make_pipeline(
        CountVectorizer(token_pattern=r"\S+", binary=True, **options), LogisticRegression(C=0.3, max_iter=300)
    )
    model.fit(words("train"), task.split("train").labels)
    return float(model.score(words("test"), task.split("test").labels))


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("topic", 0.9, 1.0),
        ("tense", 0.65, 0.92),
        ("subject_number", 0.6, 0.92),
        ("object_number", 0.55, 0.85),
        ("sentiment", 0.52, 0.8),
        ("paraphrase", 0.4, 0.7),
        ("entailment", 0.25, 0.55),
    ],
)
def test_bag_of_words_with_shared_words(name: str, low: float, high: float) -> None:
    """Above chance where words carry the label, well below perfect where they should not suffice."""
    assert low <= bag_of_words(grammar.task(name, 1200, shared_words=True)) <= high


def test_held_out_words_leave_a_bag_of_words_nothing_but_function_words() -> None:
    assert bag_of_words(grammar.task("topic", 800)) < 0.3  # chance is 0.125
    assert bag_of_words(grammar.task("sentiment", 800)) < 0.65
    assert bag_of_words(grammar.task("tense", 800)) > 0.6


def test_structured_tasks_share_their_sentences_and_have_all_layers() -> None:
    made = grammar.tasks(["pos", "topic", "srl", "con", "dep", "ner"], 48, held_out=16)
    assert [task.name for task in made] == ["pos", "topic", "srl", "con", "dep", "ner"]
    assert made[0].split("test").texts == made[2].split("test").texts
    assert all(task.synthetic for task in made)
    assert grammar.task("dep", 32, held_out=16, metric="uas").metric == "uas"
    assert len(grammar.treebank(30, seed=1)) == 30
    assert [s.text for s in grammar.treebank(30, seed=1)] == [s.text for s in grammar.treebank(40, seed=1)][
        :30
    ]


def test_errors_name_the_tasks_there_are() -> None:
    with pytest.raises(HeadwiseError, match="the grammar has no task 'colour'; there are: topic, tense"):
        grammar.task("colour")
    with pytest.raises(HeadwiseError, match="too small: at least 16"):
        grammar.task("tense", 20)
