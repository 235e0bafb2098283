"""A treebank: sentences of every form the grammar knows, with every layer of annotation."""

from functools import lru_cache

from headwise.grammar import _clauses as clauses, _joining as joining, _sentences as sentences
from headwise.grammar._clauses import PAST, PRESENT, Nominal
from headwise.grammar._phrases import Phrase, phrase, to_sentence
from headwise.grammar._source import Source, time_adjuncts
from headwise.tasks import Sentence

KEPT = 2_000  # sentences, at most, that are made once in a process


def treebank(size: int, seed: int = 0, split: str = "train", *, shared_words: bool = False) -> list[Sentence]:
    """Generated sentences, no two alike, with words, lemmas, upos, xpos, feats, dependencies (UD-like),
    entities, constituency tree, semantic roles, and labels (topic, tense, and where they exist subject_number
    and object_number).

    Args:
        size: how many.
        seed: another seed, other sentences.
        split: whose words and templates to use: "train", "validation" or "test" share no content word and no
            template.
        shared_words: draw the words of all splits.
    """
    draw = _drawn_sentences if size <= KEPT else _drawn_sentences.__wrapped__
    return list(draw(size, seed, split, shared_words))


@lru_cache(12)
def _drawn_sentences(size: int, seed: int, split: str, shared_words: bool) -> list[Sentence]:
    """The sentences; kept, since the cells of a study ask for the same ones again and again."""
    source = Source(f"treebank/{seed}", split, shared_words)
    sentences_by_text: dict[str, Sentence] = {}
    while len(sentences_by_text) < size:
        sentence = _drawn_sentence(source, f"{split}-{len(sentences_by_text)}")
        sentences_by_text.setdefault(sentence.text, sentence)
    return list(sentences_by_text.values())


def _drawn_sentence(source: Source, name: str) -> Sentence:
    form = source.pick(("template",) * 7 + ("question", "gift", "intransitive", "copula", "appositive"))
    if form == "template":
        return sentences.sentence(source, sentences.choose(source), name=name)
    topic, tense = source.pick(source.lexicon.topics), source.pick((PAST, PRESENT))
    subject = _anyone(source, topic)
    root, frames = _FORMS[form](source, topic, tense, subject)
    labels = {"topic": topic, "tense": tense, "subject_number": subject.number, "template": form}
    return to_sentence(root, frames, labels, name)


def _anyone(source: Source, topic: str) -> Nominal:
    """A subject: a name, or people of the topic, perhaps described."""
    if source.chance(0.3):
        return source.person_name() if source.chance(0.7) else source.company()
    form = source.pick(("plain", "plain", "adjective", "of", "relative"))
    return sentences.nominal(source, source.entry("person", topic), source.number(), form, topic)


def _question(source: Source, topic: str, tense: str, subject: Nominal) -> joining.Root:
    verb, target = sentences.verb_and_object(source, topic)
    root, frames = joining.question(subject, verb, source.described(target), tense)
    return root, (*subject.frames, *frames)


def _gift(source: Source, topic: str, tense: str, subject: Nominal) -> joining.Root:
    """ "gives the ball to the coach", or "gives the coach the ball"."""
    gift = source.described(source.entry("thing", topic))
    receiver = source.somebody(topic)
    double = source.chance(0.5)
    verb = source.entry("verb", "any", "gift")
    objects: list[tuple[Nominal | Phrase, str, str]] = [(gift, "obj", "ARG1")]
    if double:
        objects.insert(0, (receiver, "iobj", "ARG2"))
    else:
        objects.append((clauses.preposition("to", receiver), "obl", "ARG2"))
    return joining.single(clauses.clause(subject, verb, objects, tense=tense))


def _intransitive(source: Source, topic: str, tense: str, subject: Nominal) -> joining.Root:
    adjuncts = [source.location() if source.chance(0.6) else source.manner()]
    if source.chance(0.4):
        front = source.chance(0.5)
        adjuncts += time_adjuncts(source.entry("time").lemma, front)
    aspect = source.pick(sentences.ASPECTS)
    clause = clauses.clause(
        subject,
        source.entry("verb", "any", "place"),
        [],
        tense=tense,
        aspect=aspect,
        negated=source.chance(0.2),
        adjuncts=adjuncts,
    )
    return joining.single(clause)


def _copula(source: Source, topic: str, tense: str, subject: Nominal) -> joining.Root:
    predicate = phrase("ADJP", clauses.adjective(source.entry("adjective", "person")))
    return joining.single(clauses.copula(subject, predicate, tense=tense, negated=source.chance(0.2)))


def _appositive(source: Source, topic: str, tense: str, subject: Nominal) -> joining.Root:
    """Two clauses, the second with a name that works for a company: "..., and Clara Novak from Belcor waited
    in Oslo."
    """
    name = source.person_name()
    person = clauses.with_modifier(name, clauses.preposition("from", source.company()), "nmod")
    second = clauses.clause(
        person,
        source.entry("verb", "any", "place"),
        [],
        tense=source.pick((PAST, PRESENT)),
        adjuncts=[source.location()],
    )
    verb, target = sentences.verb_and_object(source, topic)
    first = clauses.transitive(subject, verb, source.simple(target, source.number()), tense=tense)
    return joining.coordinate(first, source.pick(("and", "but")), second)


_FORMS = {
    "question": _question,
    "gift": _gift,
    "intransitive": _intransitive,
    "copula": _copula,
    "appositive": _appositive,
}
