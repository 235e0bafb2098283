"""The rules: noun phrases, verb phrases and clauses, with heads, relations and roles."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headwise.grammar import _inflection as inflection
from headwise.grammar._lexicon import Entry
from headwise.grammar._phrases import Child, Frame, Phrase, Word, phrase

SINGULAR, PLURAL = "singular", "plural"
PAST, PRESENT = "past", "present"
FEATURES = {SINGULAR: "Sing", PLURAL: "Plur", PAST: "Past", PRESENT: "Pres"}

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
PRONOUN_TAGS = {"who": "WP", "that": "WDT"}  # of relative pronouns
RELATIONS = {"ARG0": "nsubj", "ARG1": "obj"}  # in an active clause, by role


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
    """The children of a clause (the verb phrase is the head) and its predicates, that of its own verb
    last.
    """

    children: tuple[Child, ...]
    frames: tuple[Frame, ...]

    def phrase(self, label: str = "S") -> Phrase:
        """The clause as a phrase of its own."""
        return Phrase(label, self.children)


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
    children: list[Child] = []
    if determiner.startswith("not "):
        children.append(Child(negation(), "advmod"))
        determiner = determiner.removeprefix("not ")
    if determiner == "a":
        determiner = inflection.article(entry.lemma if modifier is None else modifier.lemma)
    if determiner in NUMERALS:
        children.append(Child(Word(determiner, determiner, "NUM", "CD", "NumType=Card"), "nummod"))
    elif determiner in QUANTITIES:
        children.append(Child(Word(determiner, determiner, "ADJ", "JJ", "Degree=Pos"), "amod"))
    elif determiner:
        children.append(Child(replace(DETERMINERS[determiner]), "det"))
    if modifier is not None:
        children.append(Child(adjective(modifier), "amod"))
    np = Phrase("NP", (*children, Child(noun(entry, number))))
    return Nominal(np, number, np)


def proper(words: Sequence[str], entity: str) -> Nominal:
    """A name: "Clara Novak", its first word the head."""
    first, *names = (Word(word, word, "PROPN", "NNP", "Number=Sing") for word in words)
    np = Phrase("NP", (Child(first), *(Child(name, "flat") for name in names)), entity)
    return Nominal(np, SINGULAR, np)


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
    """A noun phrase with a relative clause: `body` lacks the argument, of the given role, that the pronoun
    stands for.
    """
    which = phrase("WHNP", Word(pronoun, pronoun, "PRON", PRONOUN_TAGS[pronoun], "PronType=Rel"))
    relative_clause = phrase("SBAR", (which, RELATIONS[role]), body.phrase())
    *inner_frames, frame = body.frames
    arguments = (*frame.arguments, (nominal.core, role), (which, f"R-{role}"))
    frames = (*inner_frames, replace(frame, arguments=arguments))
    return with_modifier(nominal, relative_clause, "acl:relcl", frames)


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
    tags = {(PRESENT, SINGULAR): "VBZ", (PRESENT, PLURAL): "VBP"}
    feats = f"Mood=Ind|Number={FEATURES[number]}|Person=3|Tense={FEATURES[tense]}|VerbForm=Fin"
    return Word(form, lemma, "AUX", tags.get((tense, number), "VBD"), feats)


def negation() -> Word:
    """A "not"."""
    return Word("not", "not", "PART", "RB", "Polarity=Neg")


def verb_phrase(
    entry: Entry,
    tense: str,
    aspect: str,
    number: str,
    negated: bool,
    passive: bool,
    after: Sequence[tuple[Phrase, str]],
) -> tuple[Phrase, Word, Word | None]:
    """A verb with its auxiliaries and what follows it.

    Args:
        entry: the verb.
        tense, number: of the finite form.
        aspect: "simple", "progressive" or "perfect" (simple alone in the passive).
        negated, passive: whether "not" is there, and the passive.
        after: (phrase, relation) behind the verb.

    Returns:
        The phrase, the verb, and the "not" if there is one.
    """
    before: list[Child] = []
    if passive:
        verb = Word(entry.participle, entry.lemma, "VERB", "VBN", "Tense=Past|VerbForm=Part|Voice=Pass")
        before.append(Child(auxiliary("be", tense, number), "aux:pass"))
    elif aspect == "progressive":
        verb = Word(inflection.gerund(entry.lemma), entry.lemma, "VERB", "VBG", "Tense=Pres|VerbForm=Part")
        before.append(Child(auxiliary("be", tense, number), "aux"))
    elif aspect == "perfect":
        verb = Word(entry.participle, entry.lemma, "VERB", "VBN", "Tense=Past|VerbForm=Part")
        before.append(Child(auxiliary("have", tense, number), "aux"))
    elif negated:
        verb = Word(entry.lemma, entry.lemma, "VERB", "VB", "VerbForm=Inf")
        before.append(Child(auxiliary("do", tense, number), "aux"))
    else:
        verb = finite(entry.lemma, entry.past, tense, number)
    not_ = negation() if negated else None
    if not_ is not None:
        before.append(Child(not_, "advmod"))
    vp = phrase("VP", verb, *after)
    if before:
        vp = Phrase("VP", (*before, Child(vp)))
    return vp, verb, not_


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
        number: of the finite verb where there is no subject.
        adjuncts: adverbials; those with `front` go before the subject, followed by a comma.
    """
    children: list[Child] = []
    roles: list[tuple[Phrase | Word, str]] = []
    frames: list[Frame] = []
    behind: list[tuple[Phrase, str]] = []
    subject_role, subject_relation = ("ARG1", "nsubj:pass") if passive else ("ARG0", "nsubj")
    if subject is not None:
        number = subject.number
        roles.append((subject.phrase, subject_role))
        frames += subject.frames
    for target, relation, role in objects:
        if isinstance(target, Nominal):
            frames += target.frames
            target = target.phrase
        behind.append((target, relation))
        roles.append((target, role))
    for adjunct in adjuncts:
        roles.append((adjunct.phrase, adjunct.role))
        if adjunct.front:
            children += [Child(adjunct.phrase, adjunct.relation), Child(punctuation(","), "punct")]
        else:
            behind.append((adjunct.phrase, adjunct.relation))
    if subject is not None:
        children.append(Child(subject.phrase, subject_relation))
    vp, verb, not_ = verb_phrase(entry, tense, aspect, number or SINGULAR, negated, passive, behind)
    if not_ is not None:
        roles.append((not_, "ARGM-NEG"))
    frames.append(Frame(verb, f"{entry.lemma}.01", tuple(roles)))
    return Clause((*children, Child(vp)), tuple(frames))


def transitive(
    agent: Nominal,
    entry: Entry,
    patient: Nominal,
    *,
    tense: str,
    aspect: str = "simple",
    negated: bool = False,
    passive: bool = False,
    adjuncts: Sequence[Adjunct] = (),
) -> Clause:
    """Somebody does something to somebody or something; in the passive the agent stands behind "by"."""
    if not passive:
        objects = [(patient, "obj", "ARG1")]
        return clause(agent, entry, objects, tense=tense, aspect=aspect, negated=negated, adjuncts=adjuncts)
    by = (preposition("by", agent), "obl", "ARG0")
    passive_clause = clause(
        patient, entry, [by], tense=tense, negated=negated, passive=True, adjuncts=adjuncts
    )
    return Clause(passive_clause.children, (*agent.frames, *passive_clause.frames))


def copula(subject: Nominal, predicate: Phrase, *, tense: str, negated: bool = False) -> Clause:
    """ "the film was not dull": the predicate is the head, as Universal Dependencies has it."""
    be = auxiliary("be", tense, subject.number)
    children = [Child(be, "cop")]
    roles: list[tuple[Phrase | Word, str]] = [(predicate, "ARG2"), (subject.phrase, "ARG1")]
    if negated:
        not_ = negation()
        children.append(Child(not_, "advmod"))
        roles.append((not_, "ARGM-NEG"))
    vp = Phrase("VP", (*children, Child(predicate)))
    return Clause(
        (Child(subject.phrase, "nsubj"), Child(vp)),
        (*subject.frames, Frame(be, "be.01", tuple(roles))),
    )


def punctuation(form: str) -> Word:
    """A comma, a full stop or a question mark."""
    return Word(form, form, "PUNCT", "," if form == "," else ".")
