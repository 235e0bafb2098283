"""Sentences about people who do things: topic, tense, subject and object number, in many forms.

A template says which forms a sentence uses. Templates, like words, belong to one split each: training sees
every single form, but validation and test combine them in ways that training does not.
"""

import hashlib
from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

from headwise.grammar import _clauses as clauses, _joining as joining
from headwise.grammar._clauses import PAST, PRESENT, Adjunct, Clause, Nominal
from headwise.grammar._lexicon import PATTERN, Entry
from headwise.grammar._phrases import Drawn, to_sentence
from headwise.grammar._source import Source, time_adjuncts
from headwise.tasks import Sentence


class Template(NamedTuple):
    """The forms of a sentence."""

    structure: str
    voice: str
    aspect: str
    subject: str
    object: str
    adjunct: str

    @property
    def split(self) -> int:
        """0 train, 1 validation, 2 test: by a hash of its name."""
        digest = hashlib.blake2b("/".join(self).encode(), digest_size=1).digest()
        return PATTERN[digest[0] % len(PATTERN)]


STRUCTURES = ("single", "when", "because", "and")
VOICES = ("active", "negative", "passive")
ASPECTS = ("simple", "progressive", "perfect")
SUBJECTS = ("plain", "adjective", "of", "relative", "object-relative")
OBJECTS = ("plain", "adjective", "with", "relative")
ADJUNCTS = ("none", "place", "time", "time-first", "manner")
TEMPLATES = tuple(
    Template(*forms) for forms in product(STRUCTURES, VOICES, ASPECTS, SUBJECTS, OBJECTS, ADJUNCTS)
)


@cache
def _fitting(split: int, structure: str, voices: tuple[str, ...]) -> tuple[Template, ...]:
    """The templates of a split and structure; the passive has the simple aspect only."""
    return tuple(
        template
        for template in TEMPLATES
        if template.split == split
        and template.structure == structure
        and template.voice in voices
        and (template.voice != "passive" or template.aspect == "simple")
    )


def choose(source: Source, voices: Sequence[str] = VOICES) -> Template:
    """A template of the source's split: half of the time a single clause."""
    structure = source.pick((*("single",) * 3, *STRUCTURES[1:]))
    return source.pick(_fitting(source.split_number, structure, tuple(voices)))


class Wish(NamedTuple):
    """What a sentence must be; "" leaves it to chance."""

    topic: str = ""
    tense: str = ""
    subject_number: str = ""
    object_number: str = ""


def sentence(source: Source, template: Template, wish: Wish | None = None, name: str = "") -> Sentence:
    """`draw`, written down."""
    return to_sentence(*draw(source, template, wish), name)


def draw(source: Source, template: Template, wish: Wish | None = None) -> Drawn:
    """A random sentence of a template that fulfils a wish. Labels: topic, tense, subject_number,
    object_number, template.

    Every label is that of the main clause; other clauses and nouns are drawn freely, so that no single word
    gives it away.
    """
    wish = wish or Wish()
    topic = wish.topic or source.pick(source.lexicon.topics)
    tense = wish.tense or source.pick((PAST, PRESENT))
    subject_number = wish.subject_number or source.number()
    object_number = wish.object_number or source.number()
    main = main_clause(source, template, topic, tense, subject_number, object_number)
    root, frames = _joined(source, template, main, topic)
    labels = {
        "topic": topic,
        "tense": tense,
        "subject_number": subject_number,
        "object_number": "none" if template.voice == "passive" else object_number,
        "template": "/".join(template),
    }
    return root, frames, labels


def _joined(source: Source, template: Template, main: Clause, topic: str) -> joining.Root:
    """The main clause, with a second one where the template has one."""
    structure = template.structure
    if structure == "single":
        return joining.single(main)
    if source.chance(0.4):  # a clause beside the main one is often about something else
        topic = source.pick(source.lexicon.topics)
    second = simple_clause(source, topic)
    if structure == "and":
        return joining.coordinate(main, source.pick(("and", "but")), second)
    if structure == "because":
        return joining.subordinate(main, "because", second, first=False)
    if template.adjunct == "time-first":  # the front is taken
        return joining.subordinate(main, "while", second, first=False)
    return joining.subordinate(main, "when", second, first=True)


def main_clause(
    source: Source, template: Template, topic: str, tense: str, subject_number: str, object_number: str
) -> Clause:
    """The main clause of a template; in the passive `subject_number` is that of the surface subject."""
    verb, patient = verb_and_object(source, topic)
    agent = source.entry("person", topic)
    adjuncts = _adjuncts(source, template.adjunct)
    passive = template.voice == "passive"
    if passive:
        agent, patient = patient, agent
    first = nominal(source, agent, subject_number, template.subject, topic)
    second = nominal(source, patient, object_number, template.object, topic)
    if passive:
        first, second = second, first
    return clauses.transitive(
        first,
        verb,
        second,
        tense=tense,
        aspect=template.aspect,
        negated=template.voice == "negative",
        passive=passive,
        adjuncts=adjuncts,
    )


def verb_and_object(source: Source, topic: str) -> tuple[Entry, Entry]:
    """A verb with the noun of a fitting object: the topic's own verb, or one that goes with anything, or with
    people.
    """
    verb_topic, kind = source.pick(((topic, "thing"), ("any", "thing"), ("any", "thing"), ("any", "person")))
    return source.entry("verb", verb_topic, kind), source.entry(kind, topic)


def nominal(source: Source, entry: Entry, number: str, form: str, topic: str) -> Nominal:
    """A noun phrase in one of the forms of SUBJECTS and OBJECTS."""
    base = source.simple(entry, number, described=form == "adjective")
    if form in ("of", "with"):  # a second noun of either number between the first and its verb
        if source.chance(0.3):
            return clauses.with_modifier(base, clauses.preposition("from", source.city()), "nmod")
        second = source.simple(source.entry("thing", topic), source.number())
        preposition = "with" if entry.kind == "person" else "beside"
        return clauses.with_modifier(base, clauses.preposition(preposition, second), "nmod")
    if form == "relative":
        verb, target = verb_and_object(source, topic)
        if entry.kind == "person":
            objects = [(source.simple(target, source.number()), "obj", "ARG1")]
            tense = source.pick((PAST, PRESENT))
            body = clauses.clause(None, verb, objects, tense=tense, number=number)
            return clauses.relative(base, "who", body, "ARG0")
    if form in ("relative", "object-relative"):
        doer = source.simple(source.entry("person", topic), source.number())
        body = clauses.clause(
            doer, source.entry("verb", "any", entry.sort), [], tense=source.pick((PAST, PRESENT))
        )
        return clauses.relative(base, "that", body, "ARG1")
    return base


def simple_clause(source: Source, topic: str) -> Clause:
    """A plain clause, of a person or company that does something."""
    verb, target = verb_and_object(source, topic)
    draw = source.rng.random()
    if draw < 0.3:
        subject = source.person_name()
    elif draw < 0.4:
        subject = source.company()
        verb = source.entry("verb", "any", "person")
        target = source.entry("person", topic)
    else:
        subject = source.described(source.entry("person", topic))
    return clauses.transitive(
        subject,
        verb,
        source.described(target),
        tense=source.pick((PAST, PRESENT)),
        aspect=source.pick(ASPECTS),
        negated=source.chance(0.2),
    )


def _adjuncts(source: Source, form: str) -> list[Adjunct]:
    if form == "place":
        return [source.location()]
    if form in ("time", "time-first"):
        return time_adjuncts(source.entry("time").lemma, front=form == "time-first")
    if form == "manner":
        return [source.manner()]
    return []
