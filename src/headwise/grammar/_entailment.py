"""Premise and hypothesis: hypernyms, adjectives, adverbials and quantifiers changed at random, the label
decided by `logic`.

Labels are equally frequent under every quantifier of the hypothesis, so that "no" or "not" alone says
nothing.
"""

from dataclasses import dataclass, replace
from itertools import product

from headwise.grammar import _clauses as clauses, _joining as joining, _logic as logic
from headwise.grammar._clauses import PAST, SINGULAR, Nominal
from headwise.grammar._lexicon import Entry
from headwise.grammar._logic import EVERY, NO, NOT_EVERY, SOME
from headwise.grammar._paraphrase import Pair
from headwise.grammar._phrases import to_sentence
from headwise.grammar._source import Source, time_adjuncts
from headwise.tasks import Sentence

LABELS = (logic.ENTAILMENT, logic.NEUTRAL, logic.CONTRADICTION)
EDITS = (
    *("subject up", "subject down", "object up", "object down", "adjective", "object adjective", "time"),
    *("quantifier", "object quantifier", "other noun", "other verb", "synonym", "negate", "negate"),
)


@dataclass(frozen=True)
class Form:
    """A statement by its words. `name`: first and last name instead of a quantified subject."""

    quantifier: str
    subject: Entry
    adjective: Entry | None
    verb: Entry
    object_quantifier: str
    object: Entry
    object_adjective: Entry | None
    time: str
    name: tuple[str, ...] = ()


def pairs(source: Source, size: int, name: str = "") -> list[Pair]:
    """`size` different pairs, each label as often under each of the hypothesis' four quantifiers, up to
    rounding.

    Whether premise and hypothesis agree in being negative tells entailment from contradiction, as it must;
    half of the neutral pairs agree and half do not.
    """
    quotas = _quotas(size)
    pairs_by_text: dict[tuple[str, str], Pair] = {}
    while len(pairs_by_text) < size:
        premise = _form(source)
        hypothesis, changes = premise, []
        for _ in range(source.pick((1, 2, 2, 3))):
            changes.append(source.pick(EDITS))
            hypothesis = _edited(source, hypothesis, changes[-1])
        label = logic.relation(statement(source, premise), statement(source, hypothesis))
        disagree = label == logic.NEUTRAL and _negative(premise) != _negative(hypothesis)
        cell = (label, hypothesis.quantifier, disagree)
        if hypothesis == premise or not quotas[cell]:
            continue
        pair_name = f"{name}-{len(pairs_by_text)}"
        first = _write(premise, source.chance(0.3), f"{pair_name}a")
        second = _write(hypothesis, source.chance(0.3), f"{pair_name}b")
        texts = (first.text, second.text)
        if texts not in pairs_by_text and first.text != second.text:
            pairs_by_text[texts] = Pair(first, second, label, tuple(changes))
            quotas[cell] -= 1
    return source.shuffled(list(pairs_by_text.values()))


def _quotas(size: int) -> dict[tuple[str, str, bool], int]:
    """How many pairs of each label, quantifier of the hypothesis, and (neutral ones) disagreement in being
    negative.
    """
    quantifiers = (SOME, EVERY, NO, NOT_EVERY)
    quotas: dict[tuple[str, str, bool], int] = {}
    for label, count in zip(LABELS, _shares(size, 3), strict=True):
        signs = (False, True) if label == logic.NEUTRAL else (False,)
        cells = list(product([label], quantifiers, signs))
        quotas |= zip(cells, _shares(count, len(cells)), strict=True)
    return quotas


def _shares(total: int, number: int) -> list[int]:
    """A total in equal shares, the first ones larger by the remainder."""
    return [total // number + (i < total % number) for i in range(number)]


def _negative(form: Form) -> bool:
    return form.quantifier in (NO, NOT_EVERY)


def statement(source: Source, form: Form) -> logic.Statement:
    """The logic of a form; a name is a set of one, of which "every" and "some" say the same."""
    if form.name:
        subject = logic.Noun(frozenset({" ".join(form.name)}))
    else:
        subject = _set(source, form.subject, form.adjective)
    target = _set(source, form.object, form.object_adjective)
    predicate = logic.Predicate(form.verb.meaning, form.time, form.object_quantifier, target)
    return logic.Statement(form.quantifier, subject, predicate)


def _set(source: Source, noun: Entry, adjective: Entry | None) -> logic.Noun:
    above = {entry.lemma for entry in source.lexicon.hypernyms(noun)}
    return logic.Noun(frozenset({noun.meaning, *above}), "" if adjective is None else adjective.meaning)


def _form(source: Source) -> Form:
    verb = source.entry("verb", "any", "thing")
    nouns = source.lexicon.find("thing", None, None, source.split)
    target = source.pick([noun for noun in nouns if noun.category != "-"])
    subject = source.entry("person")
    form = Form(
        source.pick((SOME, EVERY, NO, NOT_EVERY)),
        _maybe_above(source, subject),
        source.maybe_adjective("person", 0.3),
        verb,
        source.pick((SOME, SOME, EVERY)),
        _maybe_above(source, target),
        source.maybe_adjective("thing", 0.3),
        source.maybe_time(0.4),
    )
    if form.quantifier in (SOME, NO) and source.chance(0.3):
        first = source.entry("name", "first", source.pick(("male", "female")))
        return replace(form, name=(first.lemma, source.entry("name", "last").lemma), adjective=None)
    return form


def _maybe_above(source: Source, noun: Entry) -> Entry:
    """The noun, or one of the category words above it."""
    return source.pick((noun, *source.lexicon.hypernyms(noun)))


def _edited(source: Source, form: Form, edit: str) -> Form:
    """The form after one change; unchanged where the edit does not apply."""
    if edit == "negate":
        return replace(form, quantifier=logic.OPPOSITE[form.quantifier])
    if edit == "quantifier" and not form.name:
        return replace(form, quantifier=source.pick((SOME, EVERY, NO, NOT_EVERY)))
    if edit == "object quantifier":
        return replace(form, object_quantifier=EVERY if form.object_quantifier == SOME else SOME)
    if edit == "time":
        return replace(form, time="" if form.time else source.entry("time").lemma)
    if edit == "other verb":
        return replace(form, verb=source.entry("verb", "any", "thing"))
    if edit == "synonym":
        synonym = source.lexicon.synonym
        return replace(form, verb=synonym(form.verb), object=synonym(form.object))
    if edit == "object adjective":
        adjective = None if form.object_adjective else source.entry("adjective", "thing")
        return replace(form, object_adjective=adjective)
    if edit in ("object up", "object down", "other noun"):
        return replace(form, object=_moved(source, form.object, edit.split()[-1], "thing"))
    if form.name:
        return form
    if edit == "adjective":
        return replace(form, adjective=None if form.adjective else source.entry("adjective", "person"))
    return replace(form, subject=_moved(source, form.subject, edit.split()[-1], "person"))


def _moved(source: Source, noun: Entry, direction: str, kind: str) -> Entry:
    """A word above, below or beside the noun."""
    if direction == "up":
        return source.pick(source.lexicon.hypernyms(noun) or (noun,))
    if direction == "down":
        return source.pick(source.lexicon.hyponyms(kind, noun.lemma, source.split) or (noun,))
    fitting = source.lexicon.find(kind, None, noun.category, source.split)
    beside = [entry for entry in fitting if entry.lemma != noun.lemma]
    return source.pick(beside or (noun,))


def _write(form: Form, passive: bool, name: str) -> Sentence:
    """The sentence; passive only where it cannot change which quantifier goes first."""
    negated = bool(form.name) and form.quantifier == NO
    if form.name:
        subject = clauses.proper(form.name, "PER")
    else:
        subject = _nominal(form.quantifier, form.subject, form.adjective)
    target = _nominal(form.object_quantifier, form.object, form.object_adjective)
    statement = clauses.transitive(
        subject,
        form.verb,
        target,
        tense=PAST,
        negated=negated,
        passive=passive and form.quantifier == SOME and form.object_quantifier == SOME,
        adjuncts=time_adjuncts(form.time),
    )
    return to_sentence(*joining.single(statement), {}, name)


def _nominal(quantifier: str, noun: Entry, adjective: Entry | None) -> Nominal:
    determiner = "a" if quantifier == SOME else quantifier
    return clauses.noun_phrase(noun, SINGULAR, determiner, adjective)
