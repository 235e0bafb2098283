"""Pairs of the grammar: paraphrases compared by their roles, entailments by brute force over small worlds."""

import itertools
import random
from collections import Counter
from functools import cache

import numpy as np
import pytest

from headwise.grammar import _entailment as entailment, _logic as logic, _paraphrase as paraphrase
from headwise.grammar._lexicon import SPLITS, load
from headwise.grammar._source import Source
from headwise.tasks import Sentence


@cache
def meaning(lemma: str) -> str:
    """One name for all synonyms."""
    found = [entry.synonym for entry in load().entries if entry.lemma == lemma and entry.synonym]
    return min([lemma, *found])


def proposition(sentence: Sentence) -> tuple[object, ...]:
    """Verb, tense, negation, and each argument's words by meaning, from roles and tags alone."""
    assert sentence.roles is not None
    assert sentence.lemmas is not None
    assert sentence.xpos is not None
    (predicate,) = sentence.roles
    finite = next(i for i, tag in enumerate(sentence.xpos) if tag in ("VBD", "VBZ", "VBP"))
    arguments = {}
    for start, end, label in predicate.arguments:
        words = [
            (meaning(sentence.lemmas[i]), sentence.xpos[i] == "NNS")
            for i in range(start, end)
            if sentence.words[i] != "by"
        ]
        arguments[label] = tuple(words)
    return (
        meaning(sentence.lemmas[predicate.index]),
        sentence.xpos[finite] == "VBD",
        tuple(sorted(arguments.items())),
    )


def test_paraphrases_say_the_same_and_the_others_do_not() -> None:
    changes: Counter[str] = Counter()
    same_words = 0
    for split in SPLITS:
        source = Source("p", split)
        for i in range(150):
            label = (paraphrase.DIFFERENT, paraphrase.SAME)[i % 2]
            pair = paraphrase.pair(source, label)
            assert pair.first.text != pair.second.text
            equal = proposition(pair.first) == proposition(pair.second)
            assert equal == (label == paraphrase.SAME), (pair.first.text, pair.second.text, label)
            changes.update(pair.changes)
            assert pair.first.lemmas is not None
            assert pair.second.lemmas is not None
            extra = {"by", "be", "do"}
            if label == paraphrase.DIFFERENT:
                same_words += Counter(set(pair.first.lemmas) - extra) == Counter(
                    set(pair.second.lemmas) - extra
                )
    assert {"swap", "verb", "noun", "negation", "tense", "number", "synonym", "voice"} <= set(changes)
    assert same_words > 45  # many pairs that are no paraphrases have the very same words


@cache
def above(lemma: str) -> str:
    """The category word right above a noun, "" for none."""
    lexicon = load()
    entry = next(
        (e for e in lexicon.entries if e.lemma == lemma and e.kind in ("person", "thing", "kind")), None
    )
    return lexicon.hypernyms(entry)[0].lemma if entry is not None and lexicon.hypernyms(entry) else ""


class World:
    """A small world: who belongs to which noun and adjective, and who did what to whom and when."""

    def __init__(self, rng: random.Random, things: int = 4) -> None:
        self.rng, self.size = rng, things
        self.sets: dict[str, set[int]] = {}
        self.acts: dict[tuple[str, str], set[tuple[int, int]]] = {}

    def noun(self, lemma: str, adjective: str) -> set[int]:
        """Everything a noun phrase is true of; a noun lies within the category words above it; never empty."""
        lemma = meaning(lemma)
        if lemma not in self.sets:
            within = self.noun(above(lemma), "") if above(lemma) else set(range(self.size))
            kept = {i for i in within if self.rng.random() < 0.7}
            self.sets[lemma] = kept
        found = self.sets[lemma]
        if adjective:
            found = found & self.sets.setdefault(
                f"adjective {meaning(adjective)}", {i for i in range(self.size) if self.rng.random() < 0.6}
            )
        return found

    def act(self, verb: str, time: str) -> set[tuple[int, int]]:
        verb = meaning(verb)
        density = self.rng.choice((0.15, 0.5, 0.85, 1.0))
        every = [(a, b) for a in range(self.size) for b in range(self.size)]
        base = self.acts.setdefault((verb, ""), {pair for pair in every if self.rng.random() < density})
        if not time:
            return base
        return self.acts.setdefault((verb, time), {pair for pair in base if self.rng.random() < 0.7})


def parsed(sentence: Sentence) -> tuple[str, str, str, str, str, str, str, str]:
    """Quantifier, noun and adjective of subject and object, verb and time: read from roles and tags."""
    assert sentence.roles is not None
    assert sentence.lemmas is not None
    assert sentence.upos is not None
    (predicate,) = sentence.roles
    spans = {label: range(start, end) for start, end, label in predicate.arguments}

    def phrase(label: str) -> tuple[str, str, str]:
        words = [i for i in spans[label] if sentence.words[i] != "by"]
        assert sentence.lemmas is not None
        assert sentence.upos is not None
        nouns = [sentence.lemmas[i] for i in words if sentence.upos[i] in ("NOUN", "PROPN")]
        adjectives = [sentence.lemmas[i] for i in words if sentence.upos[i] == "ADJ"]
        quantifier = " ".join(sentence.lemmas[i] for i in words if sentence.upos[i] in ("DET", "PART"))
        return {"a": "some"}.get(quantifier, quantifier), " ".join(nouns), " ".join(adjectives)

    subject, target = phrase("ARG0"), phrase("ARG1")
    quantifier = subject[0] or ("no" if "ARGM-NEG" in spans else "some")
    time = " ".join(sentence.words[i] for i in spans.get("ARGM-TMP", ()))
    return (quantifier, *subject[1:], *target, sentence.lemmas[predicate.index], time)


def true(statement: tuple[str, str, str, str, str, str, str, str], world: World) -> bool:
    quantifier, noun, adjective, object_quantifier, target, object_adjective, verb, time = statement
    acts, objects = world.act(verb, time), world.noun(target, object_adjective)
    some = any if object_quantifier == "some" else all
    holds = [some((a, b) in acts for b in objects) for a in world.noun(noun, adjective)]
    return {"some": any(holds), "every": all(holds), "no": not any(holds), "not every": not all(holds)}[
        quantifier
    ]


def by_brute_force(premise: Sentence, hypothesis: Sentence, rng: random.Random, worlds: int = 200) -> str:
    """The label, from many random worlds in which no noun phrase is empty and the premise is true."""
    one, other = parsed(premise), parsed(hypothesis)
    outcomes = set()
    for _ in range(worlds):
        world = World(rng)
        names = {s[1] for s in (one, other) if " " in s[1]}
        world.sets |= {name: {i} for i, name in enumerate(sorted(names))}
        if not all(world.noun(*part) for s in (one, other) for part in ((s[1], s[2]), (s[4], s[5]))):
            continue
        if true(one, world):
            outcomes.add(true(other, world))
        if len(outcomes) == 2:
            return "neutral"
    assert outcomes, "the premise was never true"
    return "entailment" if outcomes == {True} else "contradiction"


def test_entailment_labels_agree_with_every_small_world_tried() -> None:
    rng = random.Random(0)
    wrong = []
    for split in SPLITS:
        for pair in entailment.pairs(Source("e", split), 48):
            found = by_brute_force(pair.first, pair.second, rng)
            if found != pair.label:
                wrong.append((pair.first.text, pair.second.text, pair.label, found))
    assert not wrong, wrong


def test_entailment_labels_are_balanced_under_every_quantifier() -> None:
    pairs = entailment.pairs(Source("b", "train"), 240)
    table = Counter((pair.label, parsed(pair.second)[0]) for pair in pairs)
    assert set(table.values()) == {20}
    edits = Counter(change for pair in pairs for change in pair.changes)
    assert set(edits) == set(entailment.EDITS)


@pytest.mark.parametrize("size", [48, 50])
def test_entailment_sizes_are_met(size: int) -> None:
    pairs = entailment.pairs(Source("c", "test"), size)
    counts = Counter(pair.label for pair in pairs)
    assert len(pairs) == size
    assert max(counts.values()) - min(counts.values()) <= 1


def test_logic_by_hand() -> None:
    owl, bird = logic.Noun(frozenset({"owl", "bird"})), logic.Noun(frozenset({"bird"}))
    old_owl = logic.Noun(owl.kinds, "old")
    someone = logic.Noun(frozenset({"tenor"}))

    def said(quantifier: str, target: logic.Noun, inner: str = "some") -> logic.Statement:
        return logic.Statement(quantifier, someone, logic.Predicate("buy", "", inner, target))

    assert logic.relation(said("some", owl), said("some", bird)) == "entailment"
    assert logic.relation(said("some", bird), said("some", owl)) == "neutral"
    assert logic.relation(said("no", bird), said("no", old_owl)) == "entailment"
    assert logic.relation(said("no", bird), said("some", owl)) == "contradiction"
    assert logic.relation(said("every", owl, "every"), said("some", old_owl)) == "entailment"
    assert logic.relation(said("not every", owl), said("every", owl)) == "contradiction"
    for one, other in itertools.product(("some", "every", "no", "not every"), repeat=2):
        statement = said(one, owl)
        assert statement.negation().negation() == statement
        forward = logic.relation(statement, said(other, owl))
        backward = logic.relation(said(other, owl), statement)
        assert (forward == "contradiction") == (backward == "contradiction")  # contradiction is mutual
    assert np.mean([logic.relation(said(q, owl), said(q, owl)) == "entailment" for q in logic.OPPOSITE]) == 1
