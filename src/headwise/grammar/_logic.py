"""What follows from what, for statements of two quantified nouns: decided by inclusion of sets.

A statement is: quantifier, noun (with adjective), verb (with adverbial), quantifier, noun (with adjective);
"no athlete bought an old instrument on Monday". Nouns, adjectives and adverbials narrow sets; a noun lies
within the category words above it. Every noun phrase is taken to have members.
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

    def within(self, wider: "Noun") -> bool:
        """Whether all of these are of the wider set."""
        return self.kinds >= wider.kinds and wider.adjective in ("", self.adjective)

    def comparable(self, second: "Noun") -> bool:
        """Whether one of the two lies within the other (so that they share members)."""
        return self.within(second) or second.within(self)


@dataclass(frozen=True)
class Predicate:
    """What is said: verb, adverbial ("" for none), quantifier (some or every) and noun of the object."""

    verb: str
    adverbial: str
    quantifier: str
    noun: Noun

    def within(self, weaker: "Predicate") -> bool:
        """Whether this being true of someone makes the weaker one true."""
        if self.verb != weaker.verb or weaker.adverbial not in ("", self.adverbial):
            return False
        cases = {
            (SOME, SOME): self.noun.within(weaker.noun),
            (EVERY, EVERY): weaker.noun.within(self.noun),
            (EVERY, SOME): self.noun.comparable(weaker.noun),
        }
        return cases.get((self.quantifier, weaker.quantifier), False)


@dataclass(frozen=True)
class Statement:
    """Quantifier, subject and predicate."""

    quantifier: str
    noun: Noun
    predicate: Predicate

    def negation(self) -> "Statement":
        """What is true exactly when this is not."""
        return Statement(OPPOSITE[self.quantifier], self.noun, self.predicate)

    def entails(self, hypothesis: "Statement") -> bool:
        """Whether the hypothesis is true whenever this is."""
        up, down = self.predicate.within(hypothesis.predicate), hypothesis.predicate.within(self.predicate)
        cases = {
            (SOME, SOME): up and self.noun.within(hypothesis.noun),
            (EVERY, EVERY): up and hypothesis.noun.within(self.noun),
            (EVERY, SOME): up and self.noun.comparable(hypothesis.noun),
            (NO, NO): down and hypothesis.noun.within(self.noun),
            (NO, NOT_EVERY): down and self.noun.comparable(hypothesis.noun),
            (NOT_EVERY, NOT_EVERY): down and self.noun.within(hypothesis.noun),
        }
        return cases.get((self.quantifier, hypothesis.quantifier), False)


def relation(premise: Statement, hypothesis: Statement) -> str:
    """Entailment, contradiction or neutral."""
    if premise.entails(hypothesis):
        return ENTAILMENT
    if premise.entails(hypothesis.negation()):
        return CONTRADICTION
    return NEUTRAL
