"""Tasks of generated text: balanced classes, splits of any size."""

from collections.abc import Callable, Sequence
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
from headwise.grammar._lexicon import SPLITS, load
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
        name: topic (8 classes), tense, subject_number, object_number, sentiment, paraphrase (pairs), entailment (pairs, 3 classes);
            or a structured one: pos, ner, dep, con, srl.
        size: training examples.
        seed: another seed, another text; the same seed, the same.
        held_out: examples of validation and of test; default a quarter of `size`.
        shared_words: let the splits share words (not templates): for models that have no knowledge of words to begin with.
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
    known = (*NAMES, *LAYERS)
    unknown = [name for name in names if name not in known]
    if unknown:
        hint = did_you_mean(unknown[0], known)
        raise HeadwiseError(f"the grammar has no task {unknown[0]!r}{hint}; there are: {', '.join(known)}")
    sizes = dict(zip(SPLITS, (size, *(held_out if held_out is not None else size // 4,) * 2), strict=True))
    if min(sizes.values()) < 16:
        raise HeadwiseError(
            f"sizes {sizes} are too small: at least 16 examples per split, so that every class has some; by size alone, 64 or more"
        )
    layers = [name for name in names if name in LAYERS]
    treebanks = (
        {split: treebank(count, seed, split, shared_words=shared_words) for split, count in sizes.items()}
        if layers
        else {}
    )
    found = {made.name: made for made in structured(treebanks, layers, synthetic=True)} if layers else {}
    if metric is not None:
        found = {
            name: Task.of(name, {s: made.split(s) for s in SPLITS}, metric=metric, synthetic=True)
            for name, made in found.items()
        }
    for name in names:
        if name in NAMES:
            made = {split: _split(name, count, seed, split, shared_words) for split, count in sizes.items()}
            found[name] = Task.of(name, made, metric=metric, synthetic=True)
    return [found[name] for name in names]


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
    classes, make = classes_of(name), _made if size <= KEPT else _made.__wrapped__
    made = make(name, size, seed, split, shared_words)
    labels = np.array([classes.index(label) for _, label in made], dtype=np.int64)
    return Examples([text for text, _ in made], labels, "classes", classes)


@lru_cache(64)
def _made(name: str, size: int, seed: int, split: str, shared_words: bool) -> list[tuple[Text, str]]:
    """Texts with their classes; kept, since the cells of a study ask for the same ones again and again."""
    source = Source(f"{name}/{seed}", split, shared_words)
    if name == "entailment":
        return [((pair.first.text, pair.second.text), pair.label) for pair in entailment.pairs(source, size)]
    return _balanced(lambda label: one(name, source, label), classes_of(name), size, source)


def _balanced(
    make: Callable[[str], Text], classes: Sequence[str], size: int, source: Source
) -> list[tuple[Text, str]]:
    """`size` different texts, each class as often as the next, in random order."""
    found: dict[Text, str] = {}
    for i in range(size):
        label = classes[i % len(classes)]
        for _ in range(TRIES):
            if (text := make(label)) not in found:
                found[text] = label
                break
        else:
            raise HeadwiseError(f"the grammar ran out of new texts after {len(found)}: choose a smaller size")
    return source.shuffled(list(found.items()))


def one(name: str, source: Source, label: str) -> Text:
    """One text of a class."""
    if name == "paraphrase":
        pair = paraphrase.pair(source, label)
        return (pair.first.text, pair.second.text)
    return (text_of(draw(name, source, label)[0]),)


def draw(name: str, source: Source, label: str) -> Drawn:
    """One sentence of a class; `phrases.to_sentence` gives its annotation."""
    if name == "sentiment":
        return sentiment.draw(source, label)
    voices = (
        sentences.VOICES if name != "object_number" else ("active", "negative")
    )  # a passive has no object
    return sentences.draw(source, sentences.choose(source, voices), sentences.Wish(**{name: label}))
