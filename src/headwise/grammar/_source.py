"""A stream of random choices from one split's words, the same for the same seed on every platform."""

import random
from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from headwise.grammar import _clauses as clauses
from headwise.grammar._clauses import PLURAL, SINGULAR, Adjunct, Nominal
from headwise.grammar._lexicon import SPLITS, Entry, load
from headwise.grammar._phrases import Word, phrase

Item = TypeVar("Item")
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class Source:
    """Random words and phrases of one split.

    Args:
        seed: anything printable; the same one gives the same choices.
        split: "train", "validation" or "test".
        shared: whether to draw from the words of all splits instead.
    """

    def __init__(self, seed: object, split: str, shared: bool = False) -> None:
        self.lexicon = load()
        self.split = None if shared else SPLITS.index(split)
        self.number = SPLITS.index(split)
        self.rng = random.Random(f"{seed}/{split}")
        self._recent: deque[str] = deque(maxlen=8)

    def pick(self, items: Sequence[Item]) -> Item:
        """One item, each with equal chance. (`random()` is the one method whose stream Python promises to keep.)"""
        return items[int(self.rng.random() * len(items))]

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.rng.random() < probability

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        """The items in random order."""
        return [item for _, item in sorted((self.rng.random(), i, item)[::2] for i, item in enumerate(items))]

    def entry(self, kind: str, topic: str | None = None, category: str | None = None) -> Entry:
        """A word of the lexicon."""
        found = self.lexicon.find(kind, topic, category, self.split)
        chosen = self.pick(found)
        for _ in range(3):  # a word just used is drawn again only if there is hardly another
            if chosen.lemma in self._recent:
                chosen = self.pick(found)
        self._recent.append(chosen.lemma)
        return chosen

    def thing(self, topic: str) -> Entry:
        """A thing of a topic."""
        return self.entry("thing", topic)

    def number_(self) -> str:
        """Singular or plural."""
        return self.pick((SINGULAR, PLURAL))

    def determiner(self, number: str) -> str:
        """A determiner that fits the number; "" is none."""
        if number == SINGULAR:
            return self.pick(("the", "the", "a", "a", "this", "every"))
        return self.pick(("the", "the", "some", "these", "many", "several", "", *clauses.NUMERALS[:2]))

    def person_name(self) -> Nominal:
        """First and last name."""
        first = self.entry("name", "first", self.pick(("male", "female")))
        return clauses.proper((first.lemma, self.entry("name", "last").lemma), "PER")

    def simple(self, entry: Entry, number: str, *, described: bool = False) -> Nominal:
        """A noun phrase with a determiner, and an adjective if `described`."""
        kind = "person" if entry.kind == "person" else "thing"
        modifier = self.entry("adjective", kind) if described else None
        return clauses.noun_phrase(entry, number, self.determiner(number), modifier)

    def city(self) -> Nominal:
        """The name of a city."""
        return clauses.proper((self.entry("name", "place").lemma,), "LOC")

    def company(self) -> Nominal:
        """The name of a company."""
        return clauses.proper((self.entry("name", "organization").lemma,), "ORG")

    def place(self) -> Adjunct:
        """ "in the kitchen", "in Vienna"."""
        if self.chance(0.4):
            return Adjunct(clauses.preposition("in", self.city()), "obl", "ARGM-LOC")
        inside = clauses.noun_phrase(self.entry("place"), SINGULAR, "the")
        return Adjunct(
            clauses.preposition(self.pick(("in", "near", "behind", "outside")), inside), "obl", "ARGM-LOC"
        )

    def time(self, front: bool = False) -> Adjunct:
        """ "on Monday", "in March"; neither tells the tense."""
        word = self.entry("time").lemma
        made = clauses.proper((word,), "")
        return Adjunct(
            clauses.preposition("on" if word in WEEKDAYS else "in", made), "obl", "ARGM-TMP", front
        )

    def manner(self) -> Adjunct:
        """ "carefully"."""
        word = self.entry("adverb", "manner").lemma
        return Adjunct(phrase("ADVP", Word(word, word, "ADV", "RB")), "advmod", "ARGM-MNR")
