"""Opinions on films, books and the like. The opinion is that of the main clause: "not" and "nobody" turn it
around, and what a subordinate or first clause grants does not count, so that no single word decides."""

from headwise.grammar import _clauses as clauses, _joining as joining
from headwise.grammar._clauses import PAST, PRESENT, SINGULAR, Clause, Nominal
from headwise.grammar._phrases import Drawn, Word, phrase
from headwise.grammar._source import Source

POSITIVE, NEGATIVE = "positive", "negative"
FORMS = {  # form -> the splits that use it
    "plain": (0, 1, 2),
    "verb": (0, 1, 2),
    "but": (0, 2),
    "although": (0, 1),
    "relative": (0, 1, 2),
    "nobody": (0, 1, 2),
    "although-last": (2,),
    "but-verb": (1,),
}
OPPOSITE = {POSITIVE: NEGATIVE, NEGATIVE: POSITIVE}


def draw(source: Source, label: str) -> Drawn:
    """A random opinion whose overall sentiment is `label`."""
    form = source.pick([form for form, splits in FORMS.items() if source.split_number in splits])
    tense = source.pick((PAST, PRESENT))
    distractor = source.pick((POSITIVE, NEGATIVE))
    if form in ("but", "but-verb"):
        first = judgement(source, distractor, tense, _reviewed(source))
        if form == "but":
            second = judgement(source, label, tense, _reviewed(source))
        else:
            second = liking(source, label, tense)
        root, frames = joining.coordinate(first, "but", second)
    elif form in ("although", "although-last"):
        concession = judgement(source, distractor, tense, _reviewed(source))
        main = judgement(source, label, tense, _reviewed(source))
        root, frames = joining.subordinate(main, "although", concession, first=form == "although")
    else:
        root, frames = joining.single(_opinion(source, form, label, distractor, tense))
    return root, frames, {"sentiment": label, "tense": tense, "template": form}


def _opinion(source: Source, form: str, label: str, distractor: str, tense: str) -> Clause:
    """A single clause in one of the forms."""
    if form == "verb":
        return liking(source, label, tense)
    if form == "nobody":
        return everybody(source, label, tense)
    if form == "relative":
        critic = source.simple(source.entry("person"), source.number())
        body = clauses.clause(critic, source.entry("verb", distractor, "review"), [], tense=tense)
        subject = clauses.relative(_reviewed(source), "that", body, "ARG1")
        return judgement(source, label, tense, subject)
    return judgement(source, label, tense, _reviewed(source))


def _reviewed(source: Source) -> Nominal:
    entry = source.entry("thing", "review")
    number = source.number() if source.chance(0.3) else SINGULAR
    return clauses.noun_phrase(entry, number, "the")


def _sort(label: str, negated: bool) -> str:
    """The sort of word that gives the label, under a negation or not."""
    return OPPOSITE[label] if negated else label


def judgement(source: Source, label: str, tense: str, subject: Nominal) -> Clause:
    """ "the film was (not) dull"."""
    negated = source.chance(0.3)
    adjective = clauses.adjective(source.entry("adjective", _sort(label, negated)))
    predicate = phrase("ADJP", adjective)
    if source.chance(0.3):
        word = source.pick(("really", "so", "very", "quite"))
        predicate = phrase("ADJP", (Word(word, word, "ADV", "RB"), "advmod"), adjective)
    return clauses.copula(subject, predicate, tense=tense, negated=negated)


def liking(source: Source, label: str, tense: str) -> Clause:
    """ "the tourists (did not) love the film"."""
    negated = source.chance(0.3)
    subject = source.somebody()
    verb = source.entry("verb", _sort(label, negated), "review")
    return clauses.transitive(subject, verb, _reviewed(source), tense=tense, negated=negated)


def everybody(source: Source, label: str, tense: str) -> Clause:
    """ "nobody loved the film", "everybody hated the film"."""
    negated = source.chance(0.4)
    form, pronoun_type = ("nobody", "Neg") if negated else ("everybody", "Tot")
    np = phrase("NP", Word(form, form, "PRON", "NN", f"Number=Sing|PronType={pronoun_type}"))
    verb = source.entry("verb", _sort(label, negated), "review")
    return clauses.transitive(Nominal(np, SINGULAR, np), verb, _reviewed(source), tense=tense)
