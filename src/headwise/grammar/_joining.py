"""Whole sentences from clauses: with a full stop, coordinated, with a subordinate clause, or as a
question.
"""

from headwise.grammar._clauses import Clause, Nominal, auxiliary, punctuation
from headwise.grammar._lexicon import Entry
from headwise.grammar._phrases import Child, Frame, Phrase, Word, phrase

SUBORDINATORS = {  # conjunction -> tag, role of its clause
    "when": ("WRB", "ARGM-TMP"),
    "because": ("IN", "ARGM-CAU"),
    "while": ("IN", "ARGM-ADV"),
    "although": ("IN", "ARGM-ADV"),
}
Root = tuple[Phrase, tuple[Frame, ...]]  # a sentence's phrase and its predicates


def single(clause: Clause) -> Root:
    """The clause with a full stop."""
    return Phrase("S", (*clause.children, Child(punctuation("."), "punct"))), clause.frames


def coordinate(first: Clause, conjunction: str, second: Clause) -> Root:
    """ "S, and S." Comma and conjunction belong to the second clause."""
    word = Word(conjunction, conjunction, "CCONJ", "CC")
    children = (
        Child(first.phrase()),
        Child(punctuation(","), "punct", to=3),
        Child(word, "cc", to=3),
        Child(second.phrase(), "conj"),
        Child(punctuation("."), "punct"),
    )
    return Phrase("S", children), (*first.frames, *second.frames)


def subordinate(main: Clause, conjunction: str, second: Clause, *, first: bool) -> Root:
    """ "When S, S." or "S because S."; the subordinate clause is an adverbial argument of the main verb."""
    tag, role = SUBORDINATORS[conjunction]
    word = Word(conjunction, conjunction, "SCONJ", tag)
    clause = phrase("SBAR", (word, "mark"), second.phrase())
    *inner_frames, frame = main.frames
    main_frame = Frame(frame.verb, frame.sense, (*frame.arguments, (clause, role)))
    if first:
        children = [Child(clause, "advcl"), Child(punctuation(","), "punct"), *main.children]
    else:
        *before, verb_phrase = main.children
        children = [*before, Child(_with_clause(verb_phrase.node, clause))]
    children.append(Child(punctuation("."), "punct"))
    return Phrase("S", tuple(children)), (*inner_frames, main_frame, *second.frames)


def _with_clause(verb_phrase: Phrase | Word, clause: Phrase) -> Phrase:
    """The verb phrase with the clause as the last child of its innermost verb phrase."""
    assert isinstance(verb_phrase, Phrase)
    *before, last = verb_phrase.children
    if last.relation is None and isinstance(last.node, Phrase) and last.node.label == "VP":
        return Phrase(verb_phrase.label, (*before, Child(_with_clause(last.node, clause))))
    return Phrase(verb_phrase.label, (*verb_phrase.children, Child(clause, "advcl")))


def question(subject: Nominal, entry: Entry, obj: Nominal, tense: str) -> Root:
    """ "Did the coach kick the ball?" """
    helper = auxiliary("do", tense, subject.number)
    verb = Word(entry.lemma, entry.lemma, "VERB", "VB", "VerbForm=Inf")
    vp = phrase("VP", verb, (obj.phrase, "obj"))
    root = phrase("SQ", (helper, "aux"), (subject.phrase, "nsubj"), vp, (punctuation("?"), "punct"))
    return root, (Frame(verb, f"{entry.lemma}.01", ((subject.phrase, "ARG0"), (obj.phrase, "ARG1"))),)
