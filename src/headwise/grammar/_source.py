"""A stream of random choices from one split's words, the same for the same seed on every platform."""

import random
from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from headwise.grammar._clauses import (
    NUMERALS,
    PLURAL,
    SINGULAR,
    Adjunct,
    Nominal,
    noun_phrase,
    preposition,
    proper,
)
from headwise.grammar._lexicon import SPLITS, Entry, load
from headwise.grammar._phrases import Word, phrase

T = TypeVar("T")
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def time_adjuncts(word: str, front: bool = False) -> list[Adjunct]:
    """ "on Monday", "in March"; neither tells the tense. Without a word there are none."""
    if not word:
        return []
    form = "on" if word in WEEKDAYS else "in"
    return [Adjunct(preposition(form, proper((word,), "")), "obl", "ARGM-TMP", front)]


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
        self.split_number = SPLITS.index(split)
        self.rng = random.Random(f"{seed}/{split}")
        self._recent: deque[str] = deque(maxlen=8)

    def pick(self, choices: Sequence[T]) -> T:
        """One choice, each with equal chance. (`random()` is the one method whose stream Python promises to
        keep.)
        """
        return choices[int(self.rng.random() * len(choices))]

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.rng.random() < probability

    def shuffled(self, choices: Sequence[T]) -> list[T]:
        """The choices in random order."""
        keys = [self.rng.random() for _ in choices]
        return [choices[i] for i in sorted(range(len(choices)), key=keys.__getitem__)]

    def entry(self, kind: str, topic: str | None = None, category: str | None = None) -> Entry:
        """A word of the lexicon."""
        fitting = self.lexicon.find(kind, topic, category, self.split)
        entry = self.pick(fitting)
        for _ in range(3):  # a word just used is drawn again only if there is hardly another
            if entry.lemma in self._recent:
                entry = self.pick(fitting)
        self._recent.append(entry.lemma)
        return entry

    def maybe_adjective(self, sort: str, probability: float) -> Entry | None:
        """With this probability an adjective for a person or thing."""
        return self.entry("adjective", sort) if self.chance(probability) else None

    def maybe_time(self, probability: float) -> str:
        """With this probability a weekday or month, else ""."""
        return self.entry("time").lemma if self.chance(probability) else ""

    def number(self) -> str:
        """Singular or plural."""
        return self.pick((SINGULAR, PLURAL))

    def determiner(self, number: str) -> str:
        """A determiner that fits the number; "" is none."""
        if number == SINGULAR:
            return self.pick(("the", "the", "a", "a", "this", "every"))
        return self.pick(("the", "the", "some", "these", "many", "several", "", *NUMERALS[:2]))

    def person_name(self) -> Nominal:
        """First and last name."""
        first = self.entry("name", "first", self.pick(("male", "female")))
        return proper((first.lemma, self.entry("name", "last").lemma), "PER")

    def simple(self, entry: Entry, number: str, *, described: bool = False) -> Nominal:
        """A noun phrase with a determiner, and an adjective if `described`."""
        modifier = self.entry("adjective", entry.sort) if described else None
        return noun_phrase(entry, number, self.determiner(number), modifier)

    def described(self, entry: Entry) -> Nominal:
        """A noun phrase in either number, three times in ten with an adjective."""
        number = self.number()
        return self.simple(entry, number, described=self.chance(0.3))

    def somebody(self, topic: str | None = None) -> Nominal:
        """A name, or people of a topic."""
        if self.chance(0.3):
            return self.person_name()
        return self.simple(self.entry("person", topic), self.number())

    def city(self) -> Nominal:
        """The name of a city."""
        return proper((self.entry("name", "place").lemma,), "LOC")

    def company(self) -> Nominal:
        """The name of a company."""
        return proper((self.entry("name", "organization").lemma,), "ORG")

    def location(self) -> Adjunct:
        """ "in the kitchen", "in Vienna"."""
        if self.chance(0.4):
            return Adjunct(preposition("in", self.city()), "obl", "ARGM-LOC")
        location = noun_phrase(self.entry("place"), SINGULAR, "the")
        form = self.pick(("in", "near", "behind", "outside"))
        return Adjunct(preposition(form, location), "obl", "ARGM-LOC")

    def manner(self) -> Adjunct:
        """ "carefully"."""
        word = self.entry("adverb", "manner").lemma
        return Adjunct(phrase("ADVP", Word(word, word, "ADV", "RB")), "advmod", "ARGM-MNR")
