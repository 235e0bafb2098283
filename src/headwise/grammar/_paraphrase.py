"""Pairs that say the same, and close ones that do not.

A proposition (who did what to whom, when) is written twice: once plainly, once changed in form: passive,
synonyms, an adverbial moved. In a pair that is not a paraphrase the second proposition differs: most often
the two people change places, which leaves every word.
"""

from dataclasses import dataclass, replace

from headwise.grammar import _clauses as clauses, _joining as joining
from headwise.grammar._clauses import PAST, PLURAL, PRESENT, SINGULAR, Nominal
from headwise.grammar._lexicon import Entry
from headwise.grammar._phrases import to_sentence
from headwise.grammar._source import Source, time_adjuncts
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


DETERMINERS = {SINGULAR: ("the", "a", "this"), PLURAL: ("the", "some", "two", "three")}
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
    first_passive, second_passive = source.chance(0.5), source.chance(0.5)
    first_fronted, second_fronted = source.chance(0.4), source.chance(0.4)
    reworded = _reworded(source, second) if source.chance(0.5) else second
    same_order = first_fronted == second_fronted or not first.time
    if label == SAME and first_passive == second_passive and same_order and reworded == second:
        second_passive = not second_passive  # at least one change of form
    if reworded != second:
        changes.append("synonym")
    if first_passive != second_passive:
        changes.append("voice")
    return Pair(
        _write(first, first_passive, first_fronted, f"{name}-a"),
        _write(reworded, second_passive, second_fronted, f"{name}-b"),
        label,
        tuple(changes),
    )


def _proposition(source: Source) -> Proposition:
    topics = source.shuffled(source.lexicon.topics)
    agent = _someone(source, source.entry("person", topics[0]))
    if source.chance(0.8):
        verb = source.entry("verb", "any", "person")
        patient = _someone(source, source.entry("person", topics[source.pick((0, 1))]))
        while patient.noun.lemma == agent.noun.lemma:  # "the tenors thanked the tenors" has nothing to swap
            patient = _someone(source, source.entry("person", topics[1]))
    else:
        verb = source.entry("verb", "any", "thing")
        patient = _someone(source, source.entry("thing", topics[0]))
    time = source.maybe_time(0.5)
    return Proposition(agent, verb, patient, source.pick((PAST, PRESENT)), source.chance(0.25), time)


def _someone(source: Source, noun: Entry) -> Someone:
    number = source.number()
    determiner = source.pick(DETERMINERS[number])
    return Someone(noun, number, determiner, source.maybe_adjective(noun.sort, 0.4))


def _altered(source: Source, was: Proposition, change: str) -> Proposition:
    """A proposition that differs in one respect."""
    find = source.lexicon.find
    if change == "swap":
        return replace(was, agent=was.patient, patient=was.agent)
    if change == "negation":
        return replace(was, negated=not was.negated)
    if change == "tense":
        return replace(was, tense=PRESENT if was.tense == PAST else PAST)
    if change == "number":
        if was.patient.number == SINGULAR:
            patient = replace(was.patient, number=PLURAL, determiner="two")
        else:
            patient = replace(was.patient, number=SINGULAR, determiner="the")
        return replace(was, patient=patient)
    if change == "verb":
        fitting = find("verb", "any", was.verb.category, source.split)
        verbs = [entry for entry in fitting if entry.lemma not in (was.verb.lemma, was.verb.synonym)]
        return replace(was, verb=source.pick(verbs))
    noun = was.patient.noun
    excluded = (noun.lemma, noun.synonym, was.agent.noun.lemma)
    fitting = find(noun.kind, noun.topic, None, source.split)
    nouns = [entry for entry in fitting if entry.lemma not in excluded]
    return replace(was, patient=replace(was.patient, noun=source.pick(nouns)))


def _reworded(source: Source, was: Proposition) -> Proposition:
    """Synonyms for many of the words that have one."""

    def reworded(entry: Entry) -> Entry:
        if not entry.synonym or source.chance(0.2):
            return entry
        return source.lexicon.synonym(entry)

    def someone(was: Someone) -> Someone:
        noun = reworded(was.noun)
        adjective = None if was.adjective is None else reworded(was.adjective)
        return replace(was, noun=noun, adjective=adjective)

    return replace(was, verb=reworded(was.verb), agent=someone(was.agent), patient=someone(was.patient))


def _nominal(someone: Someone) -> Nominal:
    return clauses.noun_phrase(someone.noun, someone.number, someone.determiner, someone.adjective)


def _write(proposition: Proposition, passive: bool, fronted: bool, name: str) -> Sentence:
    clause = clauses.transitive(
        _nominal(proposition.agent),
        proposition.verb,
        _nominal(proposition.patient),
        tense=proposition.tense,
        negated=proposition.negated,
        passive=passive,
        adjuncts=time_adjuncts(proposition.time, fronted),
    )
    return to_sentence(*joining.single(clause), {}, name)
