"""Sentences about people who do things: topic, tense, subject and object number, in many forms.

A template says which forms a sentence uses. Templates, like words, belong to one split each: training sees every single form, but
validation and test combine them in ways that training does not.
"""

import hashlib
from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

from headwise.grammar import _clauses as clauses, _joining as joining
from headwise.grammar._clauses import PAST, PRESENT, Adjunct, Clause, Nominal
from headwise.grammar._lexicon import PATTERN, Entry
from headwise.grammar._phrases import Drawn, Frame, Phrase, to_sentence
from headwise.grammar._source import Source
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
        return PATTERN[hashlib.blake2b("/".join(self).encode(), digest_size=1).digest()[0] % len(PATTERN)]


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
    fitting = (t for t in TEMPLATES if t.split == split and t.structure == structure and t.voice in voices)
    return tuple(t for t in fitting if t.voice != "passive" or t.aspect == "simple")


def choose(source: Source, voices: Sequence[str] = VOICES) -> Template:
    """A template of the source's split: half of the time a single clause."""
    structure = source.pick((*("single",) * 3, *STRUCTURES[1:]))
    return source.pick(_fitting(source.number, structure, tuple(voices)))


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
    """A random sentence of a template that fulfils a wish. Labels: topic, tense, subject_number, object_number, template.

    Every label is that of the main clause; other clauses and nouns are drawn freely, so that no single word gives it away.
    """
    wish = wish or Wish()
    topic = wish.topic or source.pick(source.lexicon.topics)
    tense = wish.tense or source.pick((PAST, PRESENT))
    numbers = (wish.subject_number or source.number_(), wish.object_number or source.number_())
    main = main_clause(source, template, topic, tense, *numbers)
    root, frames = _whole(source, template, main, topic)
    labels = {
        "topic": topic,
        "tense": tense,
        "subject_number": numbers[0],
        "object_number": numbers[1],
        "template": "/".join(template),
    }
    if template.voice == "passive":
        labels["object_number"] = "none"
    return root, frames, labels


def _whole(source: Source, template: Template, main: Clause, topic: str) -> tuple[Phrase, tuple[Frame, ...]]:
    if template.structure == "single":
        return joining.single(main)
    # a clause beside the main one is often about something else
    other = simple_clause(source, source.pick(source.lexicon.topics) if source.chance(0.4) else topic)
    if template.structure == "and":
        return joining.coordinate(main, source.pick(("and", "but")), other)
    front = template.structure == "when" and template.adjunct != "time-first"
    return joining.subordinate(
        main, template.structure if front or template.structure == "because" else "while", other, first=front
    )


def main_clause(
    source: Source, template: Template, topic: str, tense: str, subject_number: str, object_number: str
) -> Clause:
    """The main clause of a template; in the passive `subject_number` is that of the surface subject."""
    entry, patient = verb_and_object(source, topic)
    agent = source.entry("person", topic)
    adjuncts = _adjuncts(source, template.adjunct)
    if template.voice == "passive":
        subject = nominal(source, patient, subject_number, template.subject, topic)
        doer = nominal(source, agent, object_number, template.object, topic)
        by = clauses.preposition("by", doer)
        made = clauses.clause(
            subject, entry, [(by, "obl", "ARG0")], tense=tense, passive=True, adjuncts=adjuncts
        )
        return Clause(made.parts, (*doer.frames, *made.frames))
    subject = nominal(source, agent, subject_number, template.subject, topic)
    target = nominal(source, patient, object_number, template.object, topic)
    return clauses.clause(
        subject,
        entry,
        [(target, "obj", "ARG1")],
        tense=tense,
        aspect=template.aspect,
        negated=template.voice == "negative",
        adjuncts=adjuncts,
    )


def verb_and_object(source: Source, topic: str) -> tuple[Entry, Entry]:
    """A verb with the noun of a fitting object: the topic's own verb, or one that goes with anything, or with people."""
    kind = source.pick(("topic", "thing", "thing", "person"))
    if kind == "person":
        return source.entry("verb", "any", "person"), source.entry("person", topic)
    return source.entry("verb", topic if kind == "topic" else "any", "thing"), source.thing(topic)


def nominal(source: Source, entry: Entry, number: str, form: str, topic: str) -> Nominal:
    """A noun phrase in one of the forms of SUBJECTS and OBJECTS."""
    base = source.simple(entry, number, described=form == "adjective")
    if form in ("of", "with"):  # a second noun of either number between the first and its verb
        if source.chance(0.3):
            return clauses.with_modifier(base, clauses.preposition("from", source.city()), "nmod")
        inside = source.simple(source.thing(topic), source.number_())
        return clauses.with_modifier(
            base, clauses.preposition("with" if entry.kind == "person" else "beside", inside), "nmod"
        )
    if form == "relative":
        verb, target = verb_and_object(source, topic)
        if entry.kind == "person":
            obj = source.simple(target, source.number_())
            body = clauses.clause(
                None, verb, [(obj, "obj", "ARG1")], tense=source.pick((PAST, PRESENT)), number=number
            )
            return clauses.relative(base, "who", body, "ARG0")
    if form in ("relative", "object-relative"):
        kind = "person" if entry.kind == "person" else "thing"
        doer = source.simple(source.entry("person", topic), source.number_())
        body = clauses.clause(doer, source.entry("verb", "any", kind), [], tense=source.pick((PAST, PRESENT)))
        return clauses.relative(base, "that", body, "ARG1")
    return base


def simple_clause(source: Source, topic: str) -> Clause:
    """A plain clause, of a person or company that does something."""
    verb, target = verb_and_object(source, topic)
    chosen = source.rng.random()
    if chosen < 0.3:
        subject = source.person_name()
    elif chosen < 0.4:
        subject, verb, target = (
            source.company(),
            source.entry("verb", "any", "person"),
            source.entry("person", topic),
        )
    else:
        subject = source.simple(source.entry("person", topic), source.number_(), described=source.chance(0.3))
    obj = source.simple(target, source.number_(), described=source.chance(0.3))
    return clauses.clause(
        subject,
        verb,
        [(obj, "obj", "ARG1")],
        tense=source.pick((PAST, PRESENT)),
        aspect=source.pick(ASPECTS),
        negated=source.chance(0.2),
    )


def _adjuncts(source: Source, form: str) -> list[Adjunct]:
    if form == "place":
        return [source.place()]
    if form in ("time", "time-first"):
        return [source.time(front=form == "time-first")]
    return [source.manner()] if form == "manner" else []
