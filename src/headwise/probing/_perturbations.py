"""Sentences with one thing wrong: two words swapped, two clauses swapped, one word that does not belong."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import log2

import numpy as np

from headwise.probing._labels import coordinated
from headwise.tasks import Sentence

CLOSE = 1.0  # frequencies match if they differ by no more than this many doublings
EDGE = "\x00"  # before the first and after the last word


def swap_words(sentence: Sentence, rng: np.random.Generator) -> tuple[str, ...] | None:
    """Two neighbouring words exchanged (bigram shift). The first word stays, since its capital would tell; so
    does punctuation."""
    words = sentence.words
    plain = [i for i in range(1, len(words) - 1) if _plain(words[i]) and _plain(words[i + 1])]
    swappable = [i for i in plain if words[i].lower() != words[i + 1].lower()]
    if not swappable:
        return None
    i = int(rng.choice(swappable))
    return (*words[:i], words[i + 1], words[i], *words[i + 2 :])


def swap_clauses(sentence: Sentence) -> tuple[str, ...] | None:
    """The two coordinated main clauses exchanged, conjunction and punctuation left in their places, the first
    word with a capital."""
    clauses = coordinated(sentence)
    if clauses is None:
        return None
    conjunction, end = clauses
    words = list(sentence.words)
    edge = conjunction
    while edge > 0 and not any(char.isalnum() for char in words[edge - 1]):
        edge -= 1  # a comma before the conjunction stays there
    first, second = words[:edge], words[conjunction + 1 : end]
    if not first or not second:
        return None
    if first[0][0].isupper() and not _always_capital(sentence, 0):
        first[0] = first[0][0].lower() + first[0][1:]
    second[0] = second[0][0].upper() + second[0][1:]
    return (*second, *words[edge : conjunction + 1], *first, *words[end:])


def _always_capital(sentence: Sentence, word: int) -> bool:
    """Names, and words such as "I" that are capitals alone or throughout."""
    form = sentence.words[word]
    named = sentence.upos is not None and sentence.upos[word] == "PROPN"
    tagged = sentence.xpos is not None and sentence.xpos[word].startswith("NNP")
    return (
        named or tagged or form in ("I", "I'm", "I'll", "I've", "I'd") or (len(form) > 1 and form.isupper())
    )


class Replacer:
    """Replaces a noun or verb by one of the same form whose frequency, and whose bigrams with both
    neighbours, are about as frequent.

    Counts leave out the sentence at hand: the word that belongs there then has no more evidence on its side
    than the one that does not.

    Args:
        sentences: the corpus the frequencies come from; needs parts of speech (upos or xpos).
    """

    def __init__(self, sentences: Iterable[Sentence]) -> None:
        self.unigrams: Counter[str] = Counter()
        self.bigrams: Counter[tuple[str, str]] = Counter()
        self.forms: dict[str, set[str]] = defaultdict(set)
        for sentence in sentences:
            words = [word.lower() for word in sentence.words]
            self.unigrams.update(words)
            self.bigrams.update(zip([EDGE, *words], [*words, EDGE], strict=True))
            for i, word in enumerate(words):
                kind = word_kind(sentence, i)
                if kind is not None and _plain(sentence.words[i]):
                    self.forms[kind].add(word)
        self.by_size: dict[str, dict[int, list[str]]] = {}
        for kind, members in self.forms.items():
            sizes: dict[int, list[str]] = defaultdict(list)
            for word in sorted(members):
                sizes[int(log2(self.unigrams[word]))].append(word)
            self.by_size[kind] = sizes

    def replace(
        self, sentence: Sentence, rng: np.random.Generator, tries: int = 200
    ) -> tuple[str, ...] | None:
        """The sentence with one noun or verb exchanged; None if no word fits."""
        replaceable = [
            i
            for i in range(1, len(sentence))
            if word_kind(sentence, i) is not None and _plain(sentence.words[i])
        ]
        present = {word.lower() for word in sentence.words}
        for number in rng.permutation(replaceable):
            for candidate in self._candidates(sentence, int(number), rng, tries):
                if candidate not in present and self.fits(sentence, int(number), candidate):
                    return (*sentence.words[:number], candidate, *sentence.words[number + 1 :])
        return None

    def fits(self, sentence: Sentence, number: int, candidate: str) -> bool:
        """Whether a word matches the sentence's word `number` in frequency and in both bigrams."""
        words = [EDGE, *(word.lower() for word in sentence.words), EDGE]
        before, word, after = words[number : number + 3]
        return (
            _near(self.unigrams[word] - words.count(word), self.unigrams[candidate])
            and _near(self.bigrams[before, word] - 1, self.bigrams[before, candidate])
            and _near(self.bigrams[word, after] - 1, self.bigrams[candidate, after])
        )

    def _candidates(
        self, sentence: Sentence, number: int, rng: np.random.Generator, tries: int
    ) -> Sequence[str]:
        sizes = self.by_size[str(word_kind(sentence, number))]
        size = int(log2(max(1, self.unigrams[sentence.words[number].lower()])))
        words = [*sizes.get(size - 1, ()), *sizes.get(size, ()), *sizes.get(size + 1, ())]
        return [words[i] for i in rng.permutation(len(words))[:tries]]


def word_kind(sentence: Sentence, word: int) -> str | None:
    """What a replacement must share: part of speech and inflection of a common noun or full verb; None for
    other words."""
    if sentence.upos is not None:
        if sentence.upos[word] not in ("NOUN", "VERB"):
            return None
        inflections = sentence.feats if sentence.feats is not None else sentence.xpos
        return f"{sentence.upos[word]} {inflections[word] if inflections is not None else ''}"
    if sentence.xpos is not None:
        tag = sentence.xpos[word]
        if tag in ("NN", "NNS") or tag.startswith("VB"):
            return tag
    return None


def _near(count: int, candidate_count: int) -> bool:
    return abs(log2(max(count, 0) + 1) - log2(max(candidate_count, 0) + 1)) <= CLOSE


def _plain(word: str) -> bool:
    """A word of letters, hyphens and apostrophes inside allowed."""
    return word.replace("-", "").replace("'", "").replace("’", "").isalpha()
