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
    """Two neighbouring words exchanged (bigram shift). The first word stays, since its capital would tell; so does punctuation."""
    words = sentence.words
    places = [i for i in range(1, len(words) - 1) if _plain(words[i]) and _plain(words[i + 1])]
    places = [i for i in places if words[i].lower() != words[i + 1].lower()]
    if not places:
        return None
    i = int(rng.choice(places))
    return (*words[:i], words[i + 1], words[i], *words[i + 2 :])


def swap_clauses(sentence: Sentence) -> tuple[str, ...] | None:
    """The two coordinated main clauses exchanged, conjunction and punctuation left in their places, the first word with a capital."""
    found = coordinated(sentence)
    if found is None:
        return None
    place, end = found
    words = list(sentence.words)
    edge = place
    while edge > 0 and not any(char.isalnum() for char in words[edge - 1]):
        edge -= 1  # a comma before the conjunction stays there
    first, second = words[:edge], words[place + 1 : end]
    if not first or not second:
        return None
    if first[0][0].isupper() and not _always_capital(sentence, 0):
        first[0] = first[0][0].lower() + first[0][1:]
    second[0] = second[0][0].upper() + second[0][1:]
    return (*second, *words[edge : place + 1], *first, *words[end:])


def _always_capital(sentence: Sentence, word: int) -> bool:
    """Names, and words such as "I" that are capitals alone or throughout."""
    form = sentence.words[word]
    named = sentence.upos is not None and sentence.upos[word] == "PROPN"
    tagged = sentence.xpos is not None and sentence.xpos[word].startswith("NNP")
    return (
        named or tagged or form in ("I", "I'm", "I'll", "I've", "I'd") or (len(form) > 1 and form.isupper())
    )


class Replacer:
    """Replaces a noun or verb by one of the same form whose frequency, and whose bigrams with both neighbours, are about as frequent.

    Counts leave out the sentence at hand: the word that belongs there then has no more evidence on its side than the one that does not.

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
        places = [
            i
            for i in range(1, len(sentence))
            if word_kind(sentence, i) is not None and _plain(sentence.words[i])
        ]
        own = {word.lower() for word in sentence.words}
        for place in rng.permutation(places):
            for candidate in self._candidates(sentence, int(place), rng, tries):
                if candidate not in own and self.fits(sentence, int(place), candidate):
                    return (*sentence.words[:place], candidate, *sentence.words[place + 1 :])
        return None

    def fits(self, sentence: Sentence, place: int, candidate: str) -> bool:
        """Whether a word matches the one at `place` in frequency and in both bigrams."""
        words = [EDGE, *(word.lower() for word in sentence.words), EDGE]
        before, old, after = words[place : place + 3]
        repeats = words.count(old)
        near = _near(self.unigrams[old] - repeats, self.unigrams[candidate])
        left = _near(self.bigrams[before, old] - 1, self.bigrams[before, candidate])
        return near and left and _near(self.bigrams[old, after] - 1, self.bigrams[candidate, after])

    def _candidates(
        self, sentence: Sentence, place: int, rng: np.random.Generator, tries: int
    ) -> Sequence[str]:
        sizes = self.by_size[str(word_kind(sentence, place))]
        size = int(log2(max(1, self.unigrams[sentence.words[place].lower()])))
        pool = [word for near in (size - 1, size, size + 1) for word in sizes.get(near, ())]
        return [pool[i] for i in rng.permutation(len(pool))[:tries]]


def word_kind(sentence: Sentence, word: int) -> str | None:
    """What a replacement must share: part of speech and inflection of a common noun or full verb; None for other words."""
    if sentence.upos is not None:
        if sentence.upos[word] not in ("NOUN", "VERB"):
            return None
        inflection = (
            sentence.feats[word]
            if sentence.feats is not None
            else sentence.xpos[word]
            if sentence.xpos is not None
            else ""
        )
        return f"{sentence.upos[word]} {inflection}"
    if sentence.xpos is not None and (
        sentence.xpos[word] in ("NN", "NNS") or sentence.xpos[word].startswith("VB")
    ):
        return sentence.xpos[word]
    return None


def _near(one: int, other: int) -> bool:
    return abs(log2(max(one, 0) + 1) - log2(max(other, 0) + 1)) <= CLOSE


def _plain(word: str) -> bool:
    """A word of letters, hyphens and apostrophes inside allowed."""
    return word.replace("-", "").replace("'", "").replace("’", "").isalpha()
