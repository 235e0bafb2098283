"""Opinions on films, books and the like. The opinion is that of the main clause: "not" and "nobody" turn it around, and what a
subordinate or first clause grants does not count, so that no single word decides."""

from headwise.grammar import _clauses as clauses, _joining as joining
from headwise.grammar._clauses import PAST, PRESENT, SINGULAR, Clause, Nominal
from headwise.grammar._phrases import Drawn, Part, Phrase, Word, phrase
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
    form = source.pick([form for form, splits in FORMS.items() if source.number in splits])
    tense = source.pick((PAST, PRESENT))
    distractor = source.pick((POSITIVE, NEGATIVE))
    if form in ("but", "but-verb"):
        first = judgement(source, distractor, tense, _reviewed(source))
        second = (
            judgement(source, label, tense, _reviewed(source))
            if form == "but"
            else liking(source, label, tense)
        )
        root, frames = joining.coordinate(first, "but", second)
    elif form in ("although", "although-last"):
        other = judgement(source, distractor, tense, _reviewed(source))
        main = judgement(source, label, tense, _reviewed(source))
        root, frames = joining.subordinate(main, "although", other, first=form == "although")
    elif form == "relative":
        critic = source.simple(source.entry("person"), source.number_())
        body = clauses.clause(critic, source.entry("verb", distractor, "review"), [], tense=tense)
        root, frames = joining.single(
            judgement(source, label, tense, clauses.relative(_reviewed(source), "that", body, "ARG1"))
        )
    elif form == "nobody":
        root, frames = joining.single(everybody(source, label, tense))
    else:
        root, frames = joining.single(
            liking(source, label, tense)
            if form == "verb"
            else judgement(source, label, tense, _reviewed(source))
        )
    return root, frames, {"sentiment": label, "tense": tense, "template": form}


def _reviewed(source: Source) -> Nominal:
    return clauses.noun_phrase(
        source.entry("thing", "review"), source.number_() if source.chance(0.3) else SINGULAR, "the"
    )


def judgement(source: Source, label: str, tense: str, subject: Nominal) -> Clause:
    """ "the film was (not) dull"."""
    negated = source.chance(0.3)
    sort = OPPOSITE[label] if negated else label
    inside: list[Part] = [Part(clauses.adjective(source.entry("adjective", sort)))]
    if source.chance(0.3):
        word = source.pick(("really", "so", "very", "quite"))
        inside.insert(0, Part(Word(word, word, "ADV", "RB"), "advmod"))
    return clauses.copula(subject, Phrase("ADJP", tuple(inside)), tense=tense, negated=negated)


def liking(source: Source, label: str, tense: str) -> Clause:
    """ "the tourists (did not) love the film"."""
    negated = source.chance(0.3)
    subject = (
        source.person_name()
        if source.chance(0.3)
        else source.simple(source.entry("person"), source.number_())
    )
    verb = source.entry("verb", OPPOSITE[label] if negated else label, "review")
    return clauses.clause(subject, verb, [(_reviewed(source), "obj", "ARG1")], tense=tense, negated=negated)


def everybody(source: Source, label: str, tense: str) -> Clause:
    """ "nobody loved the film", "everybody hated the film"."""
    negated = source.chance(0.4)
    form = "nobody" if negated else "everybody"
    word = Word(form, form, "PRON", "NN", "Number=Sing|PronType=" + ("Neg" if negated else "Tot"))
    found = phrase("NP", word)
    verb = source.entry("verb", OPPOSITE[label] if negated else label, "review")
    return clauses.clause(
        Nominal(found, SINGULAR, found), verb, [(_reviewed(source), "obj", "ARG1")], tense=tense
    )
