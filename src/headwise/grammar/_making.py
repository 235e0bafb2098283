"""Tasks of generated text: balanced classes, splits of any size."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from headwise.errors import HeadwiseError, did_you_mean
from headwise.grammar import (
    _entailment as entailment,
    _paraphrase as paraphrase,
    _sentences as sentences,
    _sentiment as sentiment,
)
from headwise.grammar._clauses import PAST, PLURAL, PRESENT, SINGULAR
from headwise.grammar._lexicon import load
from headwise.grammar._phrases import Drawn, text_of
from headwise.grammar._source import Source
from headwise.grammar._treebank import treebank
from headwise.tasks import Examples, Task, structured

NAMES = ("topic", "tense", "subject_number", "object_number", "sentiment", "paraphrase", "entailment")
LAYERS = ("pos", "ner", "dep", "con", "srl")
TRIES = 10_000
KEPT = 10_000  # examples of a split, at most, that are made once in a process
Text = tuple[str, ...]


def task(
    name: str,
    size: int = 2000,
    seed: int = 0,
    *,
    held_out: int | None = None,
    shared_words: bool = False,
    metric: str | None = None,
) -> Task:
    """A task of generated text.

    Args:
        name: topic (8 classes), tense, subject_number, object_number, sentiment, paraphrase (pairs),
            entailment (pairs, 3 classes); or a structured one: pos, ner, dep, con, srl.
        size: training examples.
        seed: another seed, another text; the same seed, the same.
        held_out: examples of validation and of test; default a quarter of `size`.
        shared_words: let the splits share words (not templates): for models that have no knowledge of words
            to begin with.
        metric: another metric than the kind's own.

    Raises:
        HeadwiseError: no such task, or a size too small for its classes.
    """
    return tasks([name], size, seed, held_out=held_out, shared_words=shared_words, metric=metric)[0]


def tasks(
    names: Sequence[str],
    size: int = 2000,
    seed: int = 0,
    *,
    held_out: int | None = None,
    shared_words: bool = False,
    metric: str | None = None,
) -> list[Task]:
    """Several tasks; the structured ones among them share their sentences. Arguments as for `task`."""
    choices = (*NAMES, *LAYERS)
    unknown = [name for name in names if name not in choices]
    if unknown:
        hint = did_you_mean(unknown[0], choices)
        raise HeadwiseError(f"the grammar has no task {unknown[0]!r}{hint}; there are: {', '.join(choices)}")
    held_out = size // 4 if held_out is None else held_out
    sizes = {"train": size, "validation": held_out, "test": held_out}
    if min(sizes.values()) < 16:
        raise HeadwiseError(
            f"sizes {sizes} are too small: at least 16 examples per split, so that every class has some; "
            "by size alone, 64 or more"
        )
    tasks_by_name: dict[str, Task] = {}
    layers = [name for name in names if name in LAYERS]
    if layers:
        treebanks = {
            split: treebank(count, seed, split, shared_words=shared_words) for split, count in sizes.items()
        }
        for layer in structured(treebanks, layers, synthetic=True):
            tasks_by_name[layer.name] = layer if metric is None else layer.with_metric(metric)
    for name in names:
        if name in NAMES:
            splits = {split: _split(name, count, seed, split, shared_words) for split, count in sizes.items()}
            tasks_by_name[name] = Task.from_examples(name, splits, metric=metric, synthetic=True)
    return [tasks_by_name[name] for name in names]


def classes_of(name: str) -> tuple[str, ...]:
    """The classes of a task of NAMES."""
    return {
        "topic": load().topics,
        "tense": (PAST, PRESENT),
        "subject_number": (SINGULAR, PLURAL),
        "object_number": (SINGULAR, PLURAL),
        "sentiment": (sentiment.NEGATIVE, sentiment.POSITIVE),
        "paraphrase": (paraphrase.DIFFERENT, paraphrase.SAME),
        "entailment": entailment.LABELS,
    }[name]


def _split(name: str, size: int, seed: int, split: str, shared_words: bool) -> Examples:
    classes = classes_of(name)
    draw = _drawn_texts if size <= KEPT else _drawn_texts.__wrapped__
    texts, labels = zip(*draw(name, size, seed, split, shared_words), strict=True)
    numbers = np.array([classes.index(label) for label in labels], dtype=np.int64)
    return Examples(list(texts), numbers, "classes", classes)


@lru_cache(64)
def _drawn_texts(name: str, size: int, seed: int, split: str, shared_words: bool) -> list[tuple[Text, str]]:
    """Texts with their classes; kept, since the cells of a study ask for the same ones again and again."""
    source = Source(f"{name}/{seed}", split, shared_words)
    if name == "entailment":
        return [((pair.first.text, pair.second.text), pair.label) for pair in entailment.pairs(source, size)]
    classes = classes_of(name)
    labels: dict[Text, str] = {}
    for i in range(size):
        label = classes[i % len(classes)]
        labels[_new_text(name, source, label, labels)] = label
    return source.shuffled(list(labels.items()))


def _new_text(name: str, source: Source, label: str, texts: Mapping[Text, str]) -> Text:
    """A text of a class that is not one of `texts`."""
    for _ in range(TRIES):
        text = _text(name, source, label)
        if text not in texts:
            return text
    raise HeadwiseError(f"the grammar ran out of new texts after {len(texts)}: choose a smaller size")


def _text(name: str, source: Source, label: str) -> Text:
    """One text of a class."""
    if name == "paraphrase":
        pair = paraphrase.pair(source, label)
        return (pair.first.text, pair.second.text)
    return (text_of(draw(name, source, label)[0]),)


def draw(name: str, source: Source, label: str) -> Drawn:
    """One sentence of a class; `phrases.to_sentence` gives its annotation."""
    if name == "sentiment":
        return sentiment.draw(source, label)
    voices: tuple[str, ...] = sentences.VOICES
    if name == "object_number":
        voices = ("active", "negative")  # a passive has no object
    return sentences.draw(source, sentences.choose(source, voices), sentences.Wish(**{name: label}))
