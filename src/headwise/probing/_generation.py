"""The ten probing tasks from any treebank: balanced, and with splits that share neither sentences nor, where one word carries the
label, that word.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from headwise.errors import HeadwiseError
from headwise.probing import _labels as labelling, _perturbations as perturbing
from headwise.probing._balance import Item, Items, as_task, balanced, forms_apart
from headwise.probing._senteval import SENTEVAL, senteval_name
from headwise.probing._settings import Generate
from headwise.settings import operation
from headwise.tasks import SPLIT_FRACTIONS, Sentence, Task, by_fraction, sources, text_key

ORIGINAL, INVERTED, REPLACED = "O", "I", "C"  # SentEval's labels

Splits = dict[str, list[Sentence]]
DEFAULT = Generate()


@operation(Generate)
def treebank_tasks(
    path: str | Path, names: Sequence[str] | None = None, settings: Generate = DEFAULT
) -> list[Task]:
    """Probing tasks from a treebank file, or a folder with train, validation and test files (CoNLL-U, bracketed trees, or both)."""
    raw = sources.from_path(path, True, skip_bad=settings.skip_bad)
    found = {split: list(part.sentences or ()) for split, part in raw.items()}
    sentences: Iterable[Sentence] | Splits = found.get(sources.ALL, found)
    return _generate(sentences, names, settings)


@operation(Generate)
def grammar_tasks(
    size: int = 6000, names: Sequence[str] | None = None, settings: Generate = DEFAULT
) -> list[Task]:
    """Probing tasks from headwise's embedded grammar: synthetic sentences, `size` for train and an eighth as many for each other split."""
    from headwise import grammar

    sizes = {"train": size, "validation": max(1, size // 8), "test": max(1, size // 8)}
    wanted = [senteval_name(name) for name in names] if names else list(SENTEVAL)
    made: dict[str, Task] = {}
    # Splits that share no content word, but for the tasks that ask about words themselves.
    for shared in (False, True):
        some = [name for name in wanted if (name in WORD_TASKS) == shared]
        if some:
            splits = {
                split: grammar.treebank(n, settings.seed, split, shared_words=shared)
                for split, n in sizes.items()
            }
            made |= {
                task.name: task for task in _generate(splits, some, settings.with_changes(synthetic=True))
            }
    return [made[name] for name in wanted]


@operation(Generate)
def generate(
    sentences: Iterable[Sentence] | Mapping[str, Iterable[Sentence]],
    names: Sequence[str] | None = None,
    settings: Generate = DEFAULT,
) -> list[Task]:
    """Probing tasks from annotated sentences in any language.

    Classes are equally frequent within every split. No sentence is in two splits, changed or not. Where one word carries the label
    (Tense, SubjNumber, ObjNumber), its form belongs to one split alone, and is no more than 5 % of its class.

    Args:
        sentences: annotated sentences, or those of each split; without splits they are divided by a hash of their words.
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
    wanted = [senteval_name(name) for name in names] if names else list(SENTEVAL)
    made = []
    for name in wanted:
        try:
            items = MAKERS[name](splits, options)
            if name in FORM_TASKS:
                items = forms_apart(items, options, fixed=isinstance(sentences, Mapping))
            made.append(as_task(name, balanced(name, items, options), options.synthetic))
        except HeadwiseError as error:
            if names:
                raise
            warnings.warn(str(error), stacklevel=2)
    if not made:
        raise HeadwiseError("no probing task could be made from these sentences; the warnings say why")
    return made


def _splits(sentences: Iterable[Sentence] | Mapping[str, Iterable[Sentence]], options: Generate) -> Splits:
    """Sentences by split, each text once over all splits."""
    if isinstance(sentences, Mapping):
        given = {split: list(members) for split, members in sentences.items()}
    else:
        whole = list(sentences)
        parts = by_fraction([_key(s) for s in whole], options.fractions or SPLIT_FRACTIONS, options.seed)
        given = {split: [whole[i] for i in rows] for split, rows in parts.items()}
    missing = [split for split in SPLIT_FRACTIONS if not given.get(split)]
    if missing:
        raise HeadwiseError(f"there are no sentences for the split {missing[0]!r}; found: {', '.join(given)}")
    seen: set[str] = set()
    found: Splits = {}
    for split in SPLIT_FRACTIONS:
        found[split] = []
        for sentence in given[split]:
            if (key := _key(sentence)) not in seen:
                seen.add(key)
                found[split].append(sentence)
    return found


def _key(sentence: Sentence) -> str:
    return text_key([" ".join(sentence.words)])


def _read(
    label: Callable[[Sentence], labelling.Reading | str | int | None],
) -> Callable[[Splits, Generate], Items]:
    """A task that only reads annotation."""

    def make(splits: Splits, options: Generate) -> Items:
        return {
            split: [item for s in members if (item := _item(s, label(s))) is not None]
            for split, members in splits.items()
        }

    return make


def _item(sentence: Sentence, found: labelling.Reading | str | int | None) -> Item | None:
    if found is None:
        return None
    text = " ".join(sentence.words)
    if isinstance(found, labelling.Reading):
        return Item(text, found.label, found.form, len(sentence))
    return Item(text, str(found), "", len(sentence))


def _lengths(splits: Splits, options: Generate) -> Items:
    return _read(lambda sentence: labelling.length(sentence, options.lengths))(splits, options)


def _top_constituents(splits: Splits, options: Generate) -> Items:
    """The commonest sequences of train are classes, all others "OTHER"."""
    items = _read(labelling.top_constituents)(splits, options)
    counts = Counter(item.label for item in items["train"]).most_common(options.constituents - 1)
    kept = {label for label, count in counts if count >= options.least}
    return {
        split: [i if i.label in kept else i._replace(label="OTHER") for i in members]
        for split, members in items.items()
    }


def _word_content(splits: Splits, options: Generate) -> Items:
    """Which of the chosen words a sentence holds; sentences with two of them are left out.

    The words are content words of four letters or more, rare ones first. How many: as many classes as then have enough examples.
    """
    held = {split: [_content_words(s) for s in members] for split, members in splits.items()}
    counts = {split: Counter(word for words in members for word in words) for split, members in held.items()}
    common = [
        w
        for w, n in counts["train"].items()
        if n >= options.least and all(counts[split][w] for split in counts)
    ]
    common.sort(key=lambda word: (counts["train"][word], word))
    best: tuple[int, Items] = (0, {split: [] for split in splits})
    for size in (4, 8, 16, 32, 64, 125, 250, 500, 1000, 2000):
        # from the rarest that have room for what will be left out
        chosen = {w for w in common if counts["train"][w] >= 1.5 * options.least or size >= len(common)}
        chosen = set(
            sorted(chosen, key=lambda word: (counts["train"][word], word))[: min(size, options.words)]
        )
        items: Items = {
            split: [
                Item(" ".join(s.words), next(iter(words & chosen)), "", len(s))
                for s, words in zip(members, held[split], strict=True)
                if len(words & chosen) == 1
            ]
            for split, members in splits.items()
        }
        left = [Counter(item.label for item in members) for members in items.values()]
        enough = sum(left[0][w] >= options.least and all(part[w] for part in left) for w in chosen)
        best = max(best, (enough, items), key=lambda pair: pair[0])
        if size >= min(len(common), options.words):
            break
    return best[1]


def _content_words(sentence: Sentence) -> set[str]:
    """Lower-case words of four letters or more; nouns, verbs, adjectives and adverbs where parts of speech are known."""
    words = [(word.lower(), i) for i, word in enumerate(sentence.words) if len(word) > 3 and word.isalpha()]
    return {
        word
        for word, i in words
        if sentence.upos is None or sentence.upos[i] in ("NOUN", "VERB", "ADJ", "ADV")
    }


def _changed(
    change: Callable[[Sentence, np.random.Generator], tuple[str, ...] | None], label: str
) -> Callable[[Splits, Generate], Items]:
    """A task of intact against changed sentences: only sentences that can be changed take part, half of them changed."""

    def make(splits: Splits, options: Generate) -> Items:
        rng = np.random.default_rng(options.seed)
        found: Items = {}
        for split, members in splits.items():
            pairs = [(s, new) for s in members if (new := change(s, rng)) is not None]
            turn = rng.permutation(len(pairs)) % 2 == 0
            found[split] = [
                Item(" ".join(new if flip else s.words), label if flip else ORIGINAL, "", len(s))
                for (s, new), flip in zip(pairs, turn, strict=True)
            ]
        return found

    return make


def _odd_man_out(splits: Splits, options: Generate) -> Items:
    replacer = perturbing.Replacer(sentence for members in splits.values() for sentence in members)
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
