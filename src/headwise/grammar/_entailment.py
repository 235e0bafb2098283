"""Premise and hypothesis: hypernyms, adjectives, adverbials and quantifiers changed at random, the label decided by `logic`.

Labels are equally frequent under every quantifier of the hypothesis, so that "no" or "not" alone says nothing.
"""

from dataclasses import dataclass, replace

from headwise.grammar import _clauses as clauses, _joining as joining, _logic as logic
from headwise.grammar._clauses import PAST, SINGULAR, Adjunct, Nominal
from headwise.grammar._lexicon import Entry
from headwise.grammar._logic import EVERY, NO, NOT_EVERY, SOME
from headwise.grammar._paraphrase import Pair
from headwise.grammar._phrases import to_sentence
from headwise.grammar._source import WEEKDAYS, Source
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
    """`size` different pairs, each label as often under each of the hypothesis' four quantifiers, up to rounding.

    Whether premise and hypothesis agree in being negative tells entailment from contradiction, as it must; half of the neutral
    pairs agree and half do not.
    """
    left = _quotas(size)
    found: dict[tuple[str, str], Pair] = {}
    while len(found) < size:
        premise = _form(source)
        hypothesis, changes = premise, []
        for _ in range(source.pick((1, 2, 2, 3))):
            changes.append(source.pick(EDITS))
            hypothesis = _edited(source, hypothesis, changes[-1])
        label = logic.relation(statement(source, premise), statement(source, hypothesis))
        cell = (
            label,
            hypothesis.quantifier,
            label == logic.NEUTRAL and _negative(premise) != _negative(hypothesis),
        )
        if hypothesis == premise or not left[cell]:
            continue
        made = [
            _write(form, source.chance(0.3), f"{name}-{len(found)}{'ab'[i]}")
            for i, form in enumerate((premise, hypothesis))
        ]
        key = (made[0].text, made[1].text)
        if key not in found and key[0] != key[1]:
            found[key] = Pair(made[0], made[1], label, tuple(changes))
            left[cell] -= 1
    return source.shuffled(list(found.values()))


def _quotas(size: int) -> dict[tuple[str, str, bool], int]:
    """How many pairs of each label, quantifier of the hypothesis, and (neutral ones) disagreement in being negative."""
    quantifiers = (SOME, EVERY, NO, NOT_EVERY)
    labels = [size // 3 + (i < size % 3) for i in range(3)]
    left: dict[tuple[str, str, bool], int] = {}
    for label, count in zip(LABELS, labels, strict=True):
        signs = (False, True) if label == logic.NEUTRAL else (False,)
        cells = [(label, quantifier, sign) for quantifier in quantifiers for sign in signs]
        left |= {cell: count // len(cells) + (i < count % len(cells)) for i, cell in enumerate(cells)}
    return left


def _negative(form: Form) -> bool:
    return form.quantifier in (NO, NOT_EVERY)


def statement(source: Source, form: Form) -> logic.Statement:
    """The logic of a form; a name is a set of one, of which "every" and "some" say the same."""
    subject = (
        logic.Noun(frozenset({" ".join(form.name)}))
        if form.name
        else _set(source, form.subject, form.adjective)
    )
    target = _set(source, form.object, form.object_adjective)
    verb = min(form.verb.lemma, form.verb.synonym or form.verb.lemma)
    return logic.Statement(
        form.quantifier, subject, logic.Predicate(verb, form.time, form.object_quantifier, target)
    )


def _set(source: Source, noun: Entry, adjective: Entry | None) -> logic.Noun:
    own = min(noun.lemma, noun.synonym or noun.lemma)
    above = {found.lemma for found in source.lexicon.hypernyms(noun)}
    return logic.Noun(
        frozenset({own, *above}),
        "" if adjective is None else min(adjective.lemma, adjective.synonym or adjective.lemma),
    )


def _form(source: Source) -> Form:
    verb = source.entry("verb", "any", "thing")
    target = source.pick(
        [e for e in source.lexicon.find("thing", None, None, source.split) if e.category != "-"]
    )
    subject = source.entry("person")
    form = Form(
        source.pick((SOME, EVERY, NO, NOT_EVERY)),
        _maybe_above(source, subject),
        source.entry("adjective", "person") if source.chance(0.3) else None,
        verb,
        source.pick((SOME, SOME, EVERY)),
        _maybe_above(source, target),
        source.entry("adjective", "thing") if source.chance(0.3) else None,
        source.entry("time").lemma if source.chance(0.4) else "",
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
        return replace(form, verb=_synonym(source, form.verb), object=_synonym(source, form.object))
    if edit == "object adjective":
        return replace(
            form, object_adjective=None if form.object_adjective else source.entry("adjective", "thing")
        )
    if edit in ("object up", "object down", "other noun"):
        return replace(form, object=_moved(source, form.object, edit.split()[-1], "thing"))
    if form.name:
        return form
    if edit == "adjective":
        return replace(form, adjective=None if form.adjective else source.entry("adjective", "person"))
    return replace(form, subject=_moved(source, form.subject, edit.split()[-1], "person"))


def _synonym(source: Source, entry: Entry) -> Entry:
    fitting = source.lexicon.find(entry.kind, entry.topic, entry.category)
    return next((found for found in fitting if entry.synonym and found.lemma == entry.synonym), entry)


def _moved(source: Source, noun: Entry, direction: str, kind: str) -> Entry:
    """A word above, below or beside the noun."""
    if direction == "up":
        return source.pick(source.lexicon.hypernyms(noun) or (noun,))
    if direction == "down":
        return source.pick(source.lexicon.hyponyms(kind, noun.lemma, source.split) or (noun,))
    beside = [
        e for e in source.lexicon.find(kind, None, noun.category, source.split) if e.lemma != noun.lemma
    ]
    return source.pick(beside or (noun,))


def _write(form: Form, passive: bool, name: str) -> Sentence:
    """The sentence; passive only where it cannot change which quantifier goes first."""
    negated = bool(form.name) and form.quantifier == NO
    if form.name:
        subject = clauses.proper(form.name, "PER")
    else:
        subject = _nominal("a" if form.quantifier == SOME else form.quantifier, form.subject, form.adjective)
    target = _nominal("a" if form.object_quantifier == SOME else EVERY, form.object, form.object_adjective)
    adjuncts = []
    if form.time:
        inside = clauses.proper((form.time,), "")
        adjuncts = [
            Adjunct(clauses.preposition("on" if form.time in WEEKDAYS else "in", inside), "obl", "ARGM-TMP")
        ]
    if passive and form.quantifier == SOME and form.object_quantifier == SOME:
        by = clauses.preposition("by", subject)
        made = clauses.clause(
            target, form.verb, [(by, "obl", "ARG0")], tense=PAST, passive=True, adjuncts=adjuncts
        )
    else:
        made = clauses.clause(
            subject, form.verb, [(target, "obj", "ARG1")], tense=PAST, negated=negated, adjuncts=adjuncts
        )
    return to_sentence(*joining.single(made), {}, name)


def _nominal(determiner: str, noun: Entry, adjective: Entry | None) -> Nominal:
    return clauses.noun_phrase(noun, SINGULAR, determiner, adjective)
