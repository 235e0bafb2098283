"""A treebank: sentences of every form the grammar knows, with every layer of annotation."""

from functools import lru_cache

from headwise.grammar import _clauses as clauses, _joining as joining, _sentences as sentences
from headwise.grammar._clauses import PAST, PRESENT, Clause, Nominal
from headwise.grammar._phrases import Frame, Phrase, phrase, to_sentence
from headwise.grammar._source import Source
from headwise.tasks import Sentence

KEPT = 2_000  # sentences, at most, that are made once in a process


def treebank(size: int, seed: int = 0, split: str = "train", *, shared_words: bool = False) -> list[Sentence]:
    """Generated sentences, no two alike, with words, lemmas, upos, xpos, feats, dependencies (UD-like), entities, constituency tree,
    semantic roles, and labels (topic, tense, and where they exist subject_number and object_number).

    Args:
        size: how many.
        seed: another seed, other sentences.
        split: whose words and templates to use: "train", "validation" or "test" share no content word and no template.
        shared_words: draw the words of all splits.
    """
    return list((_made if size <= KEPT else _made.__wrapped__)(size, seed, split, shared_words))


@lru_cache(12)
def _made(size: int, seed: int, split: str, shared_words: bool) -> list[Sentence]:
    """The sentences; kept, since the cells of a study ask for the same ones again and again."""
    source = Source(f"treebank/{seed}", split, shared_words)
    found: dict[str, Sentence] = {}
    while len(found) < size:
        made = _any(source, f"{split}-{len(found)}")
        found.setdefault(made.text, made)
    return list(found.values())


def _any(source: Source, name: str) -> Sentence:
    form = source.pick(("template",) * 7 + ("question", "gift", "intransitive", "copula", "appositive"))
    if form == "template":
        return sentences.sentence(source, sentences.choose(source), name=name)
    topic, tense = source.pick(source.lexicon.topics), source.pick((PAST, PRESENT))
    subject = _anyone(source, topic)
    root, frames = _FORMS[form](source, topic, tense, subject)
    return to_sentence(
        root,
        frames,
        {"topic": topic, "tense": tense, "subject_number": subject.number, "template": form},
        name,
    )


def _anyone(source: Source, topic: str) -> Nominal:
    """A subject: a name, or people of the topic, perhaps described."""
    if source.chance(0.3):
        return source.person_name() if source.chance(0.7) else source.company()
    form = source.pick(("plain", "plain", "adjective", "of", "relative"))
    return sentences.nominal(source, source.entry("person", topic), source.number_(), form, topic)


def _question(source: Source, topic: str, tense: str, subject: Nominal) -> tuple[Phrase, tuple[Frame, ...]]:
    verb, target = sentences.verb_and_object(source, topic)
    root, frames = joining.question(
        subject, verb, source.simple(target, source.number_(), described=source.chance(0.3)), tense
    )
    return root, (*subject.frames, *frames)


def _gift(source: Source, topic: str, tense: str, subject: Nominal) -> tuple[Phrase, tuple[Frame, ...]]:
    gift = source.simple(source.thing(topic), source.number_(), described=source.chance(0.3))
    receiver = (
        source.person_name()
        if source.chance(0.3)
        else source.simple(source.entry("person", topic), source.number_())
    )
    return joining.single(giving(source, subject, gift, receiver, tense, double=source.chance(0.5)))


def giving(
    source: Source, subject: Nominal, gift: Nominal, receiver: Nominal, tense: str, *, double: bool
) -> Clause:
    """ "gives the ball to the coach", or with `double` "gives the coach the ball"."""
    verb = source.entry("verb", "any", "gift")
    if double:
        return clauses.clause(subject, verb, [(receiver, "iobj", "ARG2"), (gift, "obj", "ARG1")], tense=tense)
    return clauses.clause(
        subject,
        verb,
        [(gift, "obj", "ARG1"), (clauses.preposition("to", receiver), "obl", "ARG2")],
        tense=tense,
    )


def _intransitive(
    source: Source, topic: str, tense: str, subject: Nominal
) -> tuple[Phrase, tuple[Frame, ...]]:
    adjuncts = [source.place()] if source.chance(0.6) else [source.manner()]
    if source.chance(0.4):
        adjuncts.append(source.time(front=source.chance(0.5)))
    aspect = source.pick(sentences.ASPECTS)
    made = clauses.clause(
        subject,
        source.entry("verb", "any", "place"),
        [],
        tense=tense,
        aspect=aspect,
        negated=source.chance(0.2),
        adjuncts=adjuncts,
    )
    return joining.single(made)


def _copula(source: Source, topic: str, tense: str, subject: Nominal) -> tuple[Phrase, tuple[Frame, ...]]:
    predicate = phrase("ADJP", clauses.adjective(source.entry("adjective", "person")))
    return joining.single(clauses.copula(subject, predicate, tense=tense, negated=source.chance(0.2)))


def _appositive(source: Source, topic: str, tense: str, subject: Nominal) -> tuple[Phrase, tuple[Frame, ...]]:
    """Two clauses, the second with a name that works for a company: "..., and Clara Novak from Belcor waited in Oslo." """
    person = clauses.with_modifier(
        source.person_name(), clauses.preposition("from", source.company()), "nmod"
    )
    second = clauses.clause(
        person,
        source.entry("verb", "any", "place"),
        [],
        tense=source.pick((PAST, PRESENT)),
        adjuncts=[source.place()],
    )
    verb, target = sentences.verb_and_object(source, topic)
    first = clauses.clause(
        subject, verb, [(source.simple(target, source.number_()), "obj", "ARG1")], tense=tense
    )
    return joining.coordinate(first, source.pick(("and", "but")), second)


_FORMS = {
    "question": _question,
    "gift": _gift,
    "intransitive": _intransitive,
    "copula": _copula,
    "appositive": _appositive,
}
