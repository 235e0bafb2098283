"""Pairs that say the same, and close ones that do not.

A proposition (who did what to whom, when) is written twice: once plainly, once changed in form: passive, synonyms, an adverbial moved.
In a pair that is not a paraphrase the second proposition differs: most often the two people change places, which leaves every word.
"""

from dataclasses import dataclass, replace

from headwise.grammar import _clauses as clauses, _joining as joining
from headwise.grammar._clauses import PAST, PLURAL, PRESENT, SINGULAR, Adjunct, Nominal
from headwise.grammar._lexicon import Entry
from headwise.grammar._phrases import to_sentence
from headwise.grammar._source import WEEKDAYS, Source
from headwise.tasks import Sentence


@dataclass(frozen=True)
class Someone:
    """A person or thing: noun, number, determiner, and perhaps an adjective."""

    noun: Entry
    number: str
    determiner: str
    adjective: Entry | None = None


@dataclass(frozen=True)
class Proposition:
    """Who did what to whom."""

    agent: Someone
    verb: Entry
    patient: Someone
    tense: str
    negated: bool
    time: str


@dataclass(frozen=True)
class Pair:
    """Two sentences, their label, and what was changed between them."""

    first: Sentence
    second: Sentence
    label: str
    changes: tuple[str, ...]


SAME, DIFFERENT = "paraphrase", "not a paraphrase"
CHANGES = ("verb", "noun", "negation", "tense", "number")


def pair(source: Source, label: str, name: str = "") -> Pair:
    """A random pair with the given label."""
    first = _proposition(source)
    second = first
    changes: list[str] = []
    if label == DIFFERENT:
        swap = first.patient.noun.kind == "person" and source.chance(0.5)
        changes.append("swap" if swap else source.pick(CHANGES))
        second = _altered(source, first, changes[0])
    passive = [source.chance(0.5), source.chance(0.5)]
    fronted = [source.chance(0.4), source.chance(0.4)]
    worded = _reworded(source, second) if source.chance(0.5) else second
    if (
        label == SAME
        and passive[0] == passive[1]
        and (fronted[0] == fronted[1] or not first.time)
        and worded == second
    ):
        passive[1] = not passive[1]  # at least one change of form
    if worded != second:
        changes.append("synonym")
    if passive[0] != passive[1]:
        changes.append("voice")
    made = [
        _write(proposition, passive[i], fronted[i], f"{name}-{'ab'[i]}")
        for i, proposition in enumerate((first, worded))
    ]
    return Pair(made[0], made[1], label, tuple(changes))


def _proposition(source: Source) -> Proposition:
    topics = source.shuffled(source.lexicon.topics)
    agent = _someone(source, source.entry("person", topics[0]))
    if source.chance(0.8):
        verb = source.entry("verb", "any", "person")
        patient = _someone(source, source.entry("person", topics[source.pick((0, 1))]))
        while patient.noun.lemma == agent.noun.lemma:  # "the tenors thanked the tenors" has nothing to swap
            patient = _someone(source, source.entry("person", topics[1]))
    else:
        verb, patient = source.entry("verb", "any", "thing"), _someone(source, source.thing(topics[0]))
    time = source.entry("time").lemma if source.chance(0.5) else ""
    return Proposition(agent, verb, patient, source.pick((PAST, PRESENT)), source.chance(0.25), time)


def _someone(source: Source, noun: Entry) -> Someone:
    number = source.number_()
    determiner = source.pick(("the", "a", "this") if number == SINGULAR else ("the", "some", "two", "three"))
    sort = "person" if noun.kind == "person" else "thing"
    return Someone(noun, number, determiner, source.entry("adjective", sort) if source.chance(0.4) else None)


def _altered(source: Source, was: Proposition, change: str) -> Proposition:
    """A proposition that differs in one respect."""
    if change == "swap":
        return replace(was, agent=was.patient, patient=was.agent)
    if change == "negation":
        return replace(was, negated=not was.negated)
    if change == "tense":
        return replace(was, tense=PRESENT if was.tense == PAST else PAST)
    if change == "number":
        number = PLURAL if was.patient.number == SINGULAR else SINGULAR
        return replace(
            was,
            patient=replace(was.patient, number=number, determiner="the" if number == SINGULAR else "two"),
        )
    if change == "verb":
        others = [
            e
            for e in source.lexicon.find("verb", "any", was.verb.category, source.split)
            if e.lemma not in _meanings(was.verb)
        ]
        return replace(was, verb=source.pick(others))
    noun = was.patient.noun
    taken = {*_meanings(noun), was.agent.noun.lemma}
    others = [
        e for e in source.lexicon.find(noun.kind, noun.topic, None, source.split) if e.lemma not in taken
    ]
    return replace(was, patient=replace(was.patient, noun=source.pick(others)))


def _meanings(entry: Entry) -> set[str]:
    return {entry.lemma, entry.synonym}


def _reworded(source: Source, was: Proposition) -> Proposition:
    """Synonyms for some of the words that have one."""

    def other(entry: Entry) -> Entry:
        if not entry.synonym or source.chance(0.2):
            return entry
        fitting = source.lexicon.find(entry.kind, entry.topic, entry.category)
        return next((found for found in fitting if found.lemma == entry.synonym), entry)

    def someone(was: Someone) -> Someone:
        return replace(
            was, noun=other(was.noun), adjective=other(was.adjective) if was.adjective is not None else None
        )

    return replace(was, verb=other(was.verb), agent=someone(was.agent), patient=someone(was.patient))


def _nominal(someone: Someone) -> Nominal:
    return clauses.noun_phrase(someone.noun, someone.number, someone.determiner, someone.adjective)


def _write(what: Proposition, passive: bool, fronted: bool, name: str) -> Sentence:
    agent, patient = _nominal(what.agent), _nominal(what.patient)
    adjuncts = []
    if what.time:
        preposition = "on" if what.time in WEEKDAYS else "in"
        phrase = clauses.preposition(preposition, clauses.proper((what.time,), ""))
        adjuncts.append(Adjunct(phrase, "obl", "ARGM-TMP", fronted))
    if passive:
        by = clauses.preposition("by", agent)
        made = clauses.clause(
            patient,
            what.verb,
            [(by, "obl", "ARG0")],
            tense=what.tense,
            negated=what.negated,
            passive=True,
            adjuncts=adjuncts,
        )
    else:
        made = clauses.clause(
            agent,
            what.verb,
            [(patient, "obj", "ARG1")],
            tense=what.tense,
            negated=what.negated,
            adjuncts=adjuncts,
        )
    return to_sentence(*joining.single(made), {}, name)
