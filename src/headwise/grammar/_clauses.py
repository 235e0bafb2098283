"""The rules: noun phrases, verb phrases and clauses, with heads, relations and roles."""

from collections.abc import Sequence
from dataclasses import dataclass

from headwise.grammar import _inflection as inflection
from headwise.grammar._lexicon import Entry
from headwise.grammar._phrases import Frame, Part, Phrase, Word, phrase

SINGULAR, PLURAL = "singular", "plural"
PAST, PRESENT = "past", "present"

DETERMINERS = {
    "the": Word("the", "the", "DET", "DT", "Definite=Def|PronType=Art"),
    "a": Word("a", "a", "DET", "DT", "Definite=Ind|PronType=Art"),
    "an": Word("an", "a", "DET", "DT", "Definite=Ind|PronType=Art"),
    "this": Word("this", "this", "DET", "DT", "Number=Sing|PronType=Dem"),
    "these": Word("these", "this", "DET", "DT", "Number=Plur|PronType=Dem"),
    "every": Word("every", "every", "DET", "DT", "PronType=Tot"),
    "some": Word("some", "some", "DET", "DT", "PronType=Ind"),
    "no": Word("no", "no", "DET", "DT", "PronType=Neg"),
}
NUMERALS = ("two", "three", "four", "five")
QUANTITIES = ("many", "several")


@dataclass(frozen=True, eq=False)
class Nominal:
    """A noun phrase with its number, and the phrase roles point at (without what modifies it from behind)."""

    phrase: Phrase
    number: str
    core: Phrase
    frames: tuple[Frame, ...] = ()
    """predicates inside it, of relative clauses"""


@dataclass(frozen=True, eq=False)
class Adjunct:
    """An adverbial: its phrase, relation, role, and whether it stands before the subject."""

    phrase: Phrase
    relation: str
    role: str
    front: bool = False


@dataclass(frozen=True, eq=False)
class Clause:
    """The parts of a clause (the verb phrase is the head) and its predicates, its own one last."""

    parts: tuple[Part, ...]
    frames: tuple[Frame, ...]

    def phrase(self, label: str = "S") -> Phrase:
        """The clause as a phrase of its own."""
        return Phrase(label, self.parts)


def noun(entry: Entry, number: str) -> Word:
    """A common noun in the singular or plural."""
    if number == SINGULAR:
        return Word(entry.lemma, entry.lemma, "NOUN", "NN", "Number=Sing")
    return Word(entry.plural, entry.lemma, "NOUN", "NNS", "Number=Plur")


def adjective(entry: Entry) -> Word:
    """An adjective."""
    return Word(entry.lemma, entry.lemma, "ADJ", "JJ", "Degree=Pos")


def noun_phrase(entry: Entry, number: str, determiner: str, modifier: Entry | None = None) -> Nominal:
    """ "the tall goalkeepers"; determiner "" for none, "not every" for the negated quantifier."""
    parts: list[Part] = []
    first = modifier.lemma if modifier is not None else entry.lemma
    words = determiner.split()
    if words[:1] == ["not"]:
        parts.append(Part(Word("not", "not", "PART", "RB", "Polarity=Neg"), "advmod"))
        words = words[1:]
    if words == ["a"]:
        words = [inflection.article(first)]
    if words and words[0] in NUMERALS:
        parts.append(Part(Word(words[0], words[0], "NUM", "CD", "NumType=Card"), "nummod"))
    elif words and words[0] in QUANTITIES:
        parts.append(Part(Word(words[0], words[0], "ADJ", "JJ", "Degree=Pos"), "amod"))
    elif words:
        shared = DETERMINERS[words[0]]
        parts.append(Part(Word(shared.form, shared.lemma, shared.upos, shared.xpos, shared.feats), "det"))
    if modifier is not None:
        parts.append(Part(adjective(modifier), "amod"))
    found = Phrase("NP", (*parts, Part(noun(entry, number))))
    return Nominal(found, number, found)


def proper(words: Sequence[str], entity: str) -> Nominal:
    """A name: "Clara Novak", its first word the head."""
    made = [Word(word, word, "PROPN", "NNP", "Number=Sing") for word in words]
    found = Phrase("NP", (Part(made[0]), *(Part(word, "flat") for word in made[1:])), entity)
    return Nominal(found, SINGULAR, found)


def preposition(form: str, inside: Nominal) -> Phrase:
    """ "in the kitchen"."""
    return phrase("PP", (Word(form, form, "ADP", "IN"), "case"), inside.phrase)


def with_modifier(nominal: Nominal, after: Phrase, relation: str, frames: tuple[Frame, ...] = ()) -> Nominal:
    """A noun phrase with a phrase or relative clause behind it."""
    return Nominal(
        phrase("NP", nominal.phrase, (after, relation)),
        nominal.number,
        nominal.core,
        (*nominal.frames, *frames),
    )


def relative(nominal: Nominal, pronoun: str, body: Clause, role: str) -> Nominal:
    """A noun phrase with a relative clause: `body` lacks the argument, of the given role, that the pronoun stands for."""
    word = Word(pronoun, pronoun, "PRON", "WP" if pronoun == "who" else "WDT", "PronType=Rel")
    which = phrase("WHNP", word)
    whole = phrase("SBAR", (which, "nsubj" if role in ("ARG0", "SUBJ") else "obj"), body.phrase())
    own = body.frames[-1]
    role = "ARG1" if role == "SUBJ" else role  # the subject of a copula
    filled = Frame(own.verb, own.sense, (*own.arguments, (nominal.core, role), (which, f"R-{role}")))
    return with_modifier(nominal, whole, "acl:relcl", (*body.frames[:-1], filled))


def finite(lemma: str, past: str, tense: str, number: str) -> Word:
    """A finite verb form."""
    if tense == PAST:
        return Word(past, lemma, "VERB", "VBD", "Mood=Ind|Tense=Past|VerbForm=Fin")
    if number == SINGULAR:
        form = inflection.third_person(lemma)
        return Word(form, lemma, "VERB", "VBZ", "Mood=Ind|Number=Sing|Person=3|Tense=Pres|VerbForm=Fin")
    return Word(lemma, lemma, "VERB", "VBP", "Mood=Ind|Number=Plur|Person=3|Tense=Pres|VerbForm=Fin")


FORMS = {  # auxiliary -> (past singular, past plural, present singular, present plural)
    "be": ("was", "were", "is", "are"),
    "have": ("had", "had", "has", "have"),
    "do": ("did", "did", "does", "do"),
}


def auxiliary(lemma: str, tense: str, number: str) -> Word:
    """A form of be, have or do."""
    form = FORMS[lemma][2 * (tense == PRESENT) + (number == PLURAL)]
    tag = "VBD" if tense == PAST else "VBZ" if number == SINGULAR else "VBP"
    feats = f"Mood=Ind|Number={'Sing' if number == SINGULAR else 'Plur'}|Person=3|Tense={'Past' if tense == PAST else 'Pres'}"
    return Word(form, lemma, "AUX", tag, f"{feats}|VerbForm=Fin")


def verb_phrase(
    entry: Entry,
    tense: str,
    aspect: str,
    number: str,
    negated: bool,
    passive: bool,
    after: Sequence[tuple[Phrase, str]],
) -> tuple[Phrase, Word, Word | None, list[Part]]:
    """A verb with its auxiliaries and what follows it.

    Args:
        entry: the verb.
        tense, number: of the finite form.
        aspect: "simple", "progressive" or "perfect" (simple alone in the passive).
        negated, passive: whether "not" is there, and the passive.
        after: (phrase, relation) behind the verb.

    Returns:
        The phrase, the verb, the "not" if there is one, and the parts before the inner verb phrase (for questions).
    """
    rest = [Part(child, relation) for child, relation in after]
    before: list[Part] = []
    if passive:
        verb = Word(entry.participle, entry.lemma, "VERB", "VBN", "Tense=Past|VerbForm=Part|Voice=Pass")
        before.append(Part(auxiliary("be", tense, number), "aux:pass"))
    elif aspect == "progressive":
        verb = Word(inflection.gerund(entry.lemma), entry.lemma, "VERB", "VBG", "Tense=Pres|VerbForm=Part")
        before.append(Part(auxiliary("be", tense, number), "aux"))
    elif aspect == "perfect":
        verb = Word(entry.participle, entry.lemma, "VERB", "VBN", "Tense=Past|VerbForm=Part")
        before.append(Part(auxiliary("have", tense, number), "aux"))
    elif negated:
        verb = Word(entry.lemma, entry.lemma, "VERB", "VB", "VerbForm=Inf")
        before.append(Part(auxiliary("do", tense, number), "aux"))
    else:
        verb = finite(entry.lemma, entry.past, tense, number)
    negation = Word("not", "not", "PART", "RB", "Polarity=Neg") if negated else None
    if negation is not None:
        before.append(Part(negation, "advmod"))
    inner = Phrase("VP", (Part(verb), *rest))
    return (Phrase("VP", (*before, Part(inner))) if before else inner), verb, negation, before


def clause(
    subject: Nominal | None,
    entry: Entry,
    objects: Sequence[tuple[Nominal | Phrase, str, str]],
    *,
    tense: str,
    number: str | None = None,
    aspect: str = "simple",
    negated: bool = False,
    passive: bool = False,
    adjuncts: Sequence[Adjunct] = (),
) -> Clause:
    """A clause with the frames of its predicates.

    Args:
        subject: None in a relative clause whose pronoun is the subject; then `number` is the antecedent's.
        entry: the verb.
        objects: (noun or prepositional phrase, relation, role) behind the verb.
        tense, aspect, negated, passive: of the verb phrase.
        adjuncts: adverbials; those with `front` go before the subject, followed by a comma.
    """
    behind = [(item.phrase if isinstance(item, Nominal) else item, relation) for item, relation, _ in objects]
    behind += [(adjunct.phrase, adjunct.relation) for adjunct in adjuncts if not adjunct.front]
    agrees = subject.number if subject is not None else number or SINGULAR
    phrase_, verb, negation, _ = verb_phrase(entry, tense, aspect, agrees, negated, passive, behind)
    roles: list[tuple[Phrase | Word, str]] = []
    if subject is not None:
        roles.append((subject.phrase, "ARG1" if passive else "ARG0"))
    roles += [(item.phrase if isinstance(item, Nominal) else item, role) for item, _, role in objects if role]
    roles += [(adjunct.phrase, adjunct.role) for adjunct in adjuncts]
    if negation is not None:
        roles.append((negation, "ARGM-NEG"))
    parts: list[Part] = []
    for adjunct in adjuncts:
        if adjunct.front:
            parts += [Part(adjunct.phrase, adjunct.relation), Part(punctuation(","), "punct")]
    if subject is not None:
        parts.append(Part(subject.phrase, "nsubj:pass" if passive else "nsubj"))
    inside = [subject, *(item for item, _, _ in objects if isinstance(item, Nominal))]
    frames = [frame for nominal in inside if nominal is not None for frame in nominal.frames]
    return Clause((*parts, Part(phrase_)), (*frames, Frame(verb, f"{entry.lemma}.01", tuple(roles))))


def copula(subject: Nominal | None, predicate: Phrase, *, tense: str, negated: bool = False) -> Clause:
    """ "the film was not dull": the predicate is the head, as Universal Dependencies has it."""
    be = auxiliary("be", tense, subject.number if subject is not None else SINGULAR)
    negation = Word("not", "not", "PART", "RB", "Polarity=Neg")
    middle = [Part(negation, "advmod")] if negated else []
    verb_part = Phrase("VP", (Part(be, "cop"), *middle, Part(predicate)))
    roles: list[tuple[Phrase | Word, str]] = [(predicate, "ARG2")]
    if subject is not None:
        roles.append((subject.phrase, "ARG1"))
    if negated:
        roles.append((negation, "ARGM-NEG"))
    parts = [Part(subject.phrase, "nsubj")] if subject is not None else []
    return Clause(
        (*parts, Part(verb_part)),
        (*(subject.frames if subject is not None else ()), Frame(be, "be.01", tuple(roles))),
    )


def punctuation(form: str) -> Word:
    """A comma, a full stop or a question mark."""
    return Word(form, form, "PUNCT", "," if form == "," else ".")
