"""The ten probing tasks from any treebank: balanced, and with splits that share neither sentences nor, where
one word carries the label, that word.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from headwise import grammar
from headwise.errors import HeadwiseError
from headwise.probing import _labels as labelling, _perturbations as perturbing
from headwise.probing._balance import (
    Item,
    Items,
    as_task,
    balanced,
    forms_apart,
    frequent_enough,
    label_counts,
)
from headwise.probing._senteval import SENTEVAL, senteval_name
from headwise.probing._settings import Generate
from headwise.settings import operation
from headwise.tasks import SPLIT_FRACTIONS, Sentence, Task, by_fraction, sources, text_key

CONTENT = ("NOUN", "VERB", "ADJ", "ADV")
ORIGINAL, INVERTED, REPLACED = "O", "I", "C"  # SentEval's labels

Splits = dict[str, list[Sentence]]
DEFAULT = Generate()


@operation(Generate)
def treebank_tasks(
    path: str | Path, names: Sequence[str] | None = None, settings: Generate = DEFAULT
) -> list[Task]:
    """Probing tasks from a treebank file, or a folder with train, validation and test files (CoNLL-U,
    bracketed trees, or both)."""
    columns = sources.from_path(path, True, skip_bad=settings.skip_bad)
    splits = {split: list(of_split.sentences or ()) for split, of_split in columns.items()}
    return _generate(splits.get(sources.ALL, splits), names, settings)


@operation(Generate)
def grammar_tasks(
    size: int = 6000, names: Sequence[str] | None = None, settings: Generate = DEFAULT
) -> list[Task]:
    """Probing tasks from headwise's embedded grammar: synthetic sentences, `size` for train and an eighth as
    many for each other split."""
    sizes = {"train": size, "validation": max(1, size // 8), "test": max(1, size // 8)}
    settings = settings.with_changes(synthetic=True)
    names = [senteval_name(name) for name in names or SENTEVAL]
    tasks: dict[str, Task] = {}
    # Splits that share no content word, but for the tasks that ask about words themselves.
    for shared in (False, True):
        group = [name for name in names if (name in WORD_TASKS) == shared]
        if group:
            splits = {
                split: grammar.treebank(n, settings.seed, split, shared_words=shared)
                for split, n in sizes.items()
            }
            tasks |= {task.name: task for task in _generate(splits, group, settings)}
    return [tasks[name] for name in names]


@operation(Generate)
def generate(
    sentences: Iterable[Sentence] | Mapping[str, Iterable[Sentence]],
    names: Sequence[str] | None = None,
    settings: Generate = DEFAULT,
) -> list[Task]:
    """Probing tasks from annotated sentences in any language.

    Classes are equally frequent within every split. No sentence is in two splits, changed or not. Where one
    word carries the label (Tense, SubjNumber, ObjNumber), its form belongs to one split alone, and is no more
    than 5 % of its class.

    Args:
        sentences: annotated sentences, or those of each split; without splits they are divided by a hash of
            their words.
        names: which tasks; default: all that the annotation allows, with a warning for each that it does not.

    Raises:
        HeadwiseError: a task that was named cannot be made, or none can.
    """
    return _generate(sentences, names, settings)


def _generate(
    sentences: Iterable[Sentence] | Mapping[str, Iterable[Sentence]],
    names: Sequence[str] | None,
    options: Generate,
) -> list[Task]:
    splits = _splits(sentences, options)
    tasks = []
    for name in map(senteval_name, names or SENTEVAL):
        try:
            items = MAKERS[name](splits, options)
            if name in FORM_TASKS:
                items = forms_apart(items, options, fixed=isinstance(sentences, Mapping))
            tasks.append(as_task(name, balanced(name, items, options), options.synthetic))
        except HeadwiseError as error:
            if names:
                raise
            warnings.warn(str(error), stacklevel=2)
    if not tasks:
        raise HeadwiseError("no probing task could be made from these sentences; the warnings say why")
    return tasks


def _splits(sentences: Iterable[Sentence] | Mapping[str, Iterable[Sentence]], options: Generate) -> Splits:
    """Sentences by split, each text once over all splits."""
    if isinstance(sentences, Mapping):
        by_split = {split: list(members) for split, members in sentences.items()}
    else:
        undivided = list(sentences)
        fractions = options.fractions or SPLIT_FRACTIONS
        rows = by_fraction([_key(sentence) for sentence in undivided], fractions, options.seed)
        by_split = {split: [undivided[row] for row in numbers] for split, numbers in rows.items()}
    missing = [split for split in SPLIT_FRACTIONS if not by_split.get(split)]
    if missing:
        raise HeadwiseError(
            f"there are no sentences for the split {missing[0]!r}; found: {', '.join(by_split)}"
        )
    keys: set[str] = set()
    distinct: Splits = {split: [] for split in SPLIT_FRACTIONS}
    for split, members in distinct.items():
        for sentence in by_split[split]:
            key = _key(sentence)
            if key not in keys:
                keys.add(key)
                members.append(sentence)
    return distinct


def _key(sentence: Sentence) -> str:
    return text_key([" ".join(sentence.words)])


def _read(
    label: Callable[[Sentence], labelling.Reading | str | int | None],
) -> Callable[[Splits, Generate], Items]:
    """A task that only reads annotation."""

    def make(splits: Splits, options: Generate) -> Items:
        items: Items = {split: [] for split in splits}
        for split, members in splits.items():
            for sentence in members:
                reading = label(sentence)
                if isinstance(reading, labelling.Reading):
                    items[split].append(_item(sentence, reading.label, reading.form))
                elif reading is not None:
                    items[split].append(_item(sentence, str(reading)))
        return items

    return make


def _item(sentence: Sentence, label: str, form: str = "") -> Item:
    return Item(" ".join(sentence.words), label, form, len(sentence))


def _lengths(splits: Splits, options: Generate) -> Items:
    return _read(lambda sentence: labelling.length(sentence, options.lengths))(splits, options)


def _top_constituents(splits: Splits, options: Generate) -> Items:
    """The commonest sequences of train are classes, all others "OTHER"."""
    items = _read(labelling.top_constituents)(splits, options)
    counts = Counter(item.label for item in items["train"]).most_common(options.constituents - 1)
    classes = {label for label, count in counts if count >= options.least}
    for members in items.values():
        for number, item in enumerate(members):
            if item.label not in classes:
                members[number] = item._replace(label="OTHER")
    return items


def _word_content(splits: Splits, options: Generate) -> Items:
    """Which of the chosen words a sentence holds; sentences with two of them are left out.

    The words are content words of four letters or more, rare ones first. How many: as many classes as then
    have enough examples.
    """
    content_words = {
        split: [(sentence, _content_words(sentence)) for sentence in members]
        for split, members in splits.items()
    }
    counts = {
        split: Counter(chain.from_iterable(words for _, words in members))
        for split, members in content_words.items()
    }
    train = counts["train"]
    common = sorted(frequent_enough(counts, options), key=lambda word: (train[word], word))
    # the rarest of these first, which have room for what will be left out
    roomy = [word for word in common if train[word] >= 1.5 * options.least]
    most, best = 0, dict[str, list[Item]]((split, []) for split in splits)
    for size in (4, 8, 16, 32, 64, 125, 250, 500, 1000, 2000):
        candidates = common if size >= len(common) else roomy
        classes = set(candidates[: min(size, options.words)])
        items: Items = {split: [] for split in splits}
        for split, members in content_words.items():
            for sentence, words in members:
                if len(words & classes) == 1:
                    items[split] += [_item(sentence, word) for word in words & classes]
        enough = len(frequent_enough(label_counts(items), options))
        if enough > most:
            most, best = enough, items
        if size >= min(len(common), options.words):
            break
    return best


def _content_words(sentence: Sentence) -> set[str]:
    """Lower-case words of four letters or more; nouns, verbs, adjectives and adverbs where parts of speech
    are known."""
    return {
        word.lower()
        for number, word in enumerate(sentence.words)
        if len(word) > 3 and word.isalpha() and (sentence.upos is None or sentence.upos[number] in CONTENT)
    }


def _changed(
    change: Callable[[Sentence, np.random.Generator], tuple[str, ...] | None], label: str
) -> Callable[[Splits, Generate], Items]:
    """A task of intact against changed sentences: only sentences that can be changed take part, half of them
    changed."""

    def make(splits: Splits, options: Generate) -> Items:
        rng = np.random.default_rng(options.seed)
        items: Items = {split: [] for split in splits}
        for split, members in splits.items():
            changes = [(sentence, change(sentence, rng)) for sentence in members]
            changeable = [(sentence, words) for sentence, words in changes if words is not None]
            order = rng.permutation(len(changeable))
            for number, (sentence, words) in zip(order, changeable, strict=True):
                if number % 2:
                    items[split].append(_item(sentence, ORIGINAL))
                else:
                    items[split].append(Item(" ".join(words), label, "", len(sentence)))
        return items

    return make


def _odd_man_out(splits: Splits, options: Generate) -> Items:
    replacer = perturbing.Replacer(chain.from_iterable(splits.values()))
    return _changed(replacer.replace, REPLACED)(splits, options)


MAKERS: dict[str, Callable[[Splits, Generate], Items]] = {
    "Length": _lengths,
    "WordContent": _word_content,
    "Depth": _read(labelling.depth),
    "TopConstituents": _top_constituents,
    "BigramShift": _changed(perturbing.swap_words, INVERTED),
    "Tense": _read(labelling.tense),
    "SubjNumber": _read(labelling.subject_number),
    "ObjNumber": _read(labelling.object_number),
    "OddManOut": _odd_man_out,
    "CoordinationInversion": _changed(lambda sentence, rng: perturbing.swap_clauses(sentence), INVERTED),
}
FORM_TASKS = {"Tense", "SubjNumber", "ObjNumber"}
WORD_TASKS = {"WordContent", "OddManOut"}
