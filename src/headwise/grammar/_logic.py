"""What follows from what, for statements of two quantified nouns: decided by inclusion of sets.

A statement is: quantifier, noun (with adjective), verb (with adverbial), quantifier, noun (with adjective); "no athlete bought an old
instrument on Monday". Nouns, adjectives and adverbials narrow sets; a noun lies within the category words above it. Every noun
phrase is taken to have members.
"""

from dataclasses import dataclass

SOME, EVERY, NO, NOT_EVERY = "some", "every", "no", "not every"
OPPOSITE = {SOME: NO, NO: SOME, EVERY: NOT_EVERY, NOT_EVERY: EVERY}
ENTAILMENT, NEUTRAL, CONTRADICTION = "entailment", "neutral", "contradiction"


@dataclass(frozen=True)
class Noun:
    """A set of things: the noun's meaning and everything above it, narrowed by an adjective if there is one.

    `kinds`: the meanings it falls under, itself among them: a rose is {rose, flower, plant}.
    """

    kinds: frozenset[str]
    adjective: str = ""

    def within(self, other: "Noun") -> bool:
        """Whether all of these are of the other."""
        return self.kinds >= other.kinds and other.adjective in ("", self.adjective)

    def comparable(self, other: "Noun") -> bool:
        """Whether one of the two lies within the other (so that they share members)."""
        return self.within(other) or other.within(self)


@dataclass(frozen=True)
class Predicate:
    """What is said: verb, adverbial ("" for none), quantifier (some or every) and noun of the object."""

    verb: str
    adverbial: str
    quantifier: str
    noun: Noun

    def within(self, other: "Predicate") -> bool:
        """Whether this being true of someone makes the other true."""
        if self.verb != other.verb or other.adverbial not in ("", self.adverbial):
            return False
        if self.quantifier == other.quantifier:
            return self.noun.within(other.noun) if self.quantifier == SOME else other.noun.within(self.noun)
        return self.quantifier == EVERY and self.noun.comparable(other.noun)


@dataclass(frozen=True)
class Statement:
    """Quantifier, subject and predicate."""

    quantifier: str
    noun: Noun
    predicate: Predicate

    def negation(self) -> "Statement":
        """What is true exactly when this is not."""
        return Statement(OPPOSITE[self.quantifier], self.noun, self.predicate)

    def entails(self, other: "Statement") -> bool:
        """Whether the other is true whenever this is."""
        up, down = self.predicate.within(other.predicate), other.predicate.within(self.predicate)
        cases = {
            (SOME, SOME): up and self.noun.within(other.noun),
            (EVERY, EVERY): up and other.noun.within(self.noun),
            (EVERY, SOME): up and self.noun.comparable(other.noun),
            (NO, NO): down and other.noun.within(self.noun),
            (NO, NOT_EVERY): down and self.noun.comparable(other.noun),
            (NOT_EVERY, NOT_EVERY): down and self.noun.within(other.noun),
        }
        return cases.get((self.quantifier, other.quantifier), False)


def relation(premise: Statement, hypothesis: Statement) -> str:
    """Entailment, contradiction or neutral."""
    if premise.entails(hypothesis):
        return ENTAILMENT
    return CONTRADICTION if premise.entails(hypothesis.negation()) else NEUTRAL
