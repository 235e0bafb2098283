"""Whole sentences from clauses: with a full stop, coordinated, with a subordinate clause, or as a question."""

from headwise.grammar._clauses import Clause, Nominal, auxiliary, punctuation
from headwise.grammar._lexicon import Entry
from headwise.grammar._phrases import Frame, Part, Phrase, Word, phrase


def single(clause: Clause) -> tuple[Phrase, tuple[Frame, ...]]:
    """The clause with a full stop."""
    return Phrase("S", (*clause.parts, Part(punctuation("."), "punct"))), clause.frames


def coordinate(first: Clause, conjunction: str, second: Clause) -> tuple[Phrase, tuple[Frame, ...]]:
    """ "S, and S." Comma and conjunction belong to the second clause."""
    word = Word(conjunction, conjunction, "CCONJ", "CC")
    parts = (
        Part(first.phrase()),
        Part(punctuation(","), "punct", to=3),
        Part(word, "cc", to=3),
        Part(second.phrase(), "conj"),
        Part(punctuation("."), "punct"),
    )
    return Phrase("S", parts), (*first.frames, *second.frames)


def subordinate(
    main: Clause, conjunction: str, other: Clause, *, first: bool
) -> tuple[Phrase, tuple[Frame, ...]]:
    """ "When S, S." or "S because S."; the subordinate clause is an adverbial argument of the main verb."""
    tag = "WRB" if conjunction == "when" else "IN"
    word = Word(conjunction, conjunction, "SCONJ", tag)
    clause = phrase("SBAR", (word, "mark"), other.phrase())
    role = {"when": "ARGM-TMP", "because": "ARGM-CAU"}.get(conjunction, "ARGM-ADV")
    head = main.frames[-1]
    frames = (
        *main.frames[:-1],
        Frame(head.verb, head.sense, (*head.arguments, (clause, role))),
        *other.frames,
    )
    if first:
        parts = (
            Part(clause, "advcl"),
            Part(punctuation(","), "punct"),
            *main.parts,
            Part(punctuation("."), "punct"),
        )
    else:
        parts = (*main.parts[:-1], Part(_inside(main.parts[-1], clause)), Part(punctuation("."), "punct"))
    return Phrase("S", parts), frames


def _inside(part: Part, clause: Phrase) -> Phrase:
    """The verb phrase with the clause as its last part, inside the innermost verb phrase."""
    body = part.child
    assert isinstance(body, Phrase)
    last = body.parts[-1]
    if last.relation is None and isinstance(last.child, Phrase) and last.child.label == "VP":
        return Phrase(body.label, (*body.parts[:-1], Part(_inside(last, clause))))
    return Phrase(body.label, (*body.parts, Part(clause, "advcl")))


def question(subject: Nominal, entry: Entry, obj: Nominal, tense: str) -> tuple[Phrase, tuple[Frame, ...]]:
    """ "Did the coach kick the ball?" """
    helper = auxiliary("do", tense, subject.number)
    verb = Word(entry.lemma, entry.lemma, "VERB", "VB", "VerbForm=Inf")
    body = phrase("VP", verb, (obj.phrase, "obj"))
    root = phrase("SQ", (helper, "aux"), (subject.phrase, "nsubj"), body, (punctuation("?"), "punct"))
    return root, (Frame(verb, f"{entry.lemma}.01", ((subject.phrase, "ARG0"), (obj.phrase, "ARG1"))),)
