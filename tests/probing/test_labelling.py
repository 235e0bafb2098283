"""Readings of hand-checked sentences, in CoNLL-U and in brackets, and sentences with one thing wrong."""

import numpy as np
import pytest

from headwise.probing import Generate, _labels as labelling, _perturbations as perturbing
from headwise.probing._labels import Reading
from headwise.tasks._sentence import Sentence
from headwise.tasks.readers import brackets


def ud(*rows: str) -> Sentence:
    """A sentence from lines "word upos feats head relation"."""
    words, upos, feats, heads, deprels = zip(*(row.split() for row in rows), strict=True)
    return Sentence(words, upos=upos, feats=feats, heads=tuple(map(int, heads)), deprels=deprels)


def tree(text: str) -> Sentence:
    parsed = brackets.parse(text)
    return Sentence(parsed.words(), xpos=tuple(leaf.label for leaf in parsed.leaves()), tree=parsed)


DOGS = ud(
    "The DET _ 3 det",
    "old ADJ _ 3 amod",
    "dogs NOUN Number=Plur 4 nsubj",
    "chased VERB Tense=Past|VerbForm=Fin 0 root",
    "a DET _ 6 det",
    "cat NOUN Number=Sing 4 obj",
    ". PUNCT _ 4 punct",
)
GERMAN = ud(
    "Die DET _ 2 det",
    "Lehrerin NOUN Number=Sing 3 nsubj",
    "sieht VERB Tense=Pres|VerbForm=Fin 0 root",
    "Häuser NOUN Number=Plur 3 obj",
)
WAS_CHASED = ud(
    "Dogs NOUN Number=Plur 3 nsubj:pass",
    "were AUX Tense=Past|VerbForm=Fin 3 aux:pass",
    "chased VERB Tense=Past|VerbForm=Part 0 root",
)
BOTH = ud(
    "Dogs NOUN Number=Plur 4 nsubj",
    "and CCONJ _ 3 cc",
    "cats NOUN Number=Plur 1 conj",
    "ran VERB Tense=Past|VerbForm=Fin 0 root",
)
TWO = ud(
    "The DET _ 2 det",
    "dog NOUN Number=Sing 3 nsubj",
    "slept VERB Tense=Past|VerbForm=Fin 0 root",
    ", PUNCT _ 7 punct",
    "but CCONJ _ 7 cc",
    "Mary PROPN Number=Sing 7 nsubj",
    "left VERB Tense=Past|VerbForm=Fin 3 conj",
    "early ADV _ 7 advmod",
    ". PUNCT _ 3 punct",
)
DOGS_TREE = tree(
    "(ROOT (S (NP-SBJ (DT The) (JJ old) (NNS dogs)) (VP (VBD chased) (NP (DT a) (NN cat))) (. .)))"
)
DEEP_TREE = tree(
    "(TOP (S (ADVP (RB Now)) (, ,) (NP (NP (DT the) (NN owner)) (PP (IN of) (NP (NNS dogs)))) (VP (VBZ sleeps) (ADVP (RB well))) (. .)))"
)
TWO_TREE = tree(
    "(ROOT (S (S (NP (DT The) (NN dog)) (VP (VBD slept))) (, ,) (CC but) (S (NP (NNP Mary)) (VP (VBD left) (ADVP (RB early)))) (. .)))"
)


@pytest.mark.parametrize(
    ("sentence", "tense", "subject", "object_"),
    [
        (DOGS, Reading("Past", "chased"), Reading("Plur", "dogs"), Reading("Sing", "cat")),
        (GERMAN, Reading("Pres", "sieht"), Reading("Sing", "lehrerin"), Reading("Plur", "häuser")),
        (WAS_CHASED, None, Reading("Plur", "dogs"), None),
        (BOTH, Reading("Past", "ran"), None, None),
        (DOGS_TREE, Reading("Past", "chased"), Reading("Plur", "dogs"), Reading("Sing", "cat")),
        (DEEP_TREE, Reading("Pres", "sleeps"), Reading("Sing", "owner"), None),
    ],
)
def test_tense_and_numbers(
    sentence: Sentence, tense: Reading | None, subject: Reading | None, object_: Reading | None
) -> None:
    assert labelling.tense(sentence) == tense
    assert labelling.subject_number(sentence) == subject
    assert labelling.object_number(sentence) == object_


def test_depth_and_top_constituents() -> None:
    assert labelling.depth(DOGS_TREE) == 3  # S, VP, NP above "a cat"
    assert labelling.depth(DEEP_TREE) == 4  # S, NP, PP, NP above "dogs"
    assert labelling.depth(DOGS) == 2  # chased -> dogs -> The
    assert labelling.top_constituents(DOGS_TREE) == "NP VP ."
    assert labelling.top_constituents(DEEP_TREE) == "ADVP , NP VP ."
    assert labelling.top_constituents(DOGS) == "nsubj root obj punct"
    assert labelling.top_constituents(WAS_CHASED) == "nsubj aux root"
    assert labelling.top_constituents(tree("(ROOT (NP (DT the) (NN dog)))")) is None


def test_length_bins() -> None:
    assert labelling.length(DOGS, Generate().lengths) == "0"
    assert labelling.length(GERMAN, Generate().lengths) is None  # four words: shorter than the first bin
    assert labelling.length(Sentence(("w",) * 21), Generate().lengths) == "4"


@pytest.mark.parametrize("sentence", [TWO, TWO_TREE])
def test_coordinated_clauses_are_exchanged(sentence: Sentence) -> None:
    assert labelling.coordinated(sentence) == (4, 8)
    assert perturbing.swap_clauses(sentence) == (
        "Mary",
        "left",
        "early",
        ",",
        "but",
        "the",
        "dog",
        "slept",
        ".",
    )


@pytest.mark.parametrize("sentence", [DOGS, BOTH, DOGS_TREE, DEEP_TREE, Sentence(("a", "b"))])
def test_other_sentences_have_no_coordinated_clauses(sentence: Sentence) -> None:
    assert perturbing.swap_clauses(sentence) is None


def test_names_and_i_keep_their_capitals() -> None:
    sentence = ud(
        "I PRON _ 2 nsubj",
        "sang VERB _ 0 root",
        "and CCONJ _ 5 cc",
        "they PRON _ 5 nsubj",
        "danced VERB _ 2 conj",
        "well ADV _ 5 advmod",
    )
    assert perturbing.swap_clauses(sentence) == ("They", "danced", "well", "and", "I", "sang")


def test_swapped_words_are_neighbours_and_never_the_first() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        words = perturbing.swap_words(DOGS, rng)
        assert words is not None
        assert words[0] == "The"
        assert words[-1] == "."
        different = [i for i, (a, b) in enumerate(zip(words, DOGS.words, strict=True)) if a != b]
        assert len(different) == 2
        assert different[1] == different[0] + 1


def test_replaced_word_matches_in_form_and_frequency() -> None:
    texts = [
        "the dog sees a cat",
        "the fox sees a cat",
        "the dog hears a cow",
        "the fox hears a cow",
        "the sun shines",
        "the sun shines",
    ]
    nouns = {"dog", "fox", "cat", "cow", "sun"}
    corpus = [
        Sentence(
            tuple(t.split()),
            xpos=tuple("NN" if w in nouns else "DT" if w in ("the", "a") else "VBZ" for w in t.split()),
        )
        for t in texts
    ]
    replacer = perturbing.Replacer(corpus)
    assert replacer.fits(corpus[0], 1, "fox")
    # "the sun" is seen twice and "sun sees" never; leaving the sentence out, "dog sees" is never seen either
    assert not replacer.fits(Sentence(("the", "dog", "sees")), 0, "sun")
    rng = np.random.default_rng(0)
    for sentence in corpus[:4] * 5:
        words = replacer.replace(sentence, rng)
        assert words is not None
        places = [i for i, (a, b) in enumerate(zip(words, sentence.words, strict=True)) if a != b]
        assert len(places) == 1
        assert sentence.xpos is not None
        same = [
            s.xpos[s.words.index(words[places[0]])]
            for s in corpus
            if s.xpos is not None and words[places[0]] in s.words
        ]
        assert set(same) == {sentence.xpos[places[0]]}
