"""Dependencies made of constituency trees: heads by hand, trees of any shape, and the CoNLL-2012 files that have no others."""

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from headwise.errors import HeadwiseError
from headwise.tasks import Sentence, Task, Tree, structured, with_dependencies
from headwise.tasks._head_rules import PUNCTUATION, TABLE, dependencies
from headwise.tasks.readers import brackets, ontonotes

# the tree, and for every word its head by hand
BY_HAND = {
    "a verb, its subject and its object": (
        "(TOP (S (NP (DT The) (NN dog)) (VP (VBD chased) (NP (DT a) (JJ black) (NN cat))) (. .)))",
        {
            "The": "dog",
            "dog": "chased",
            "chased": "",
            "a": "cat",
            "black": "cat",
            "cat": "chased",
            ".": "chased",
        },
    ),
    "auxiliaries depend on the lexical verb": (
        "(S (NP (PRP She)) (VP (MD may) (RB not) (VP (VB have) (VP (VBN been) (VP (VBN seen))))))",
        {"She": "seen", "may": "seen", "not": "seen", "have": "seen", "been": "seen", "seen": ""},
    ),
    "have and be with nothing verbal after them are the head": (
        "(S (S (NP (PRP He)) (VP (VBZ has) (NP (NNS debts)))) (CC and) (S (NP (EX there)) (VP (VBZ 's) (ADJP (JJ nothing)))))",
        {"He": "has", "has": "", "debts": "has", "and": "has", "there": "'s", "'s": "has", "nothing": "'s"},
    ),
    "a curly apostrophe is an apostrophe": (
        "(S (NP (PRP We)) (VP (VBP ’ve) (VP (VBN gone))))",
        {"We": "gone", "’ve": "gone", "gone": ""},
    ),
    "prepositions carry their phrases": (
        "(S (NP (PRP They)) (VP (VBD sat) (PP (IN on) (NP (NP (NNS chairs)) (PP (IN of) (NP (NN oak)))))))",
        {"They": "sat", "sat": "", "on": "sat", "chairs": "on", "of": "chairs", "oak": "of"},
    ),
    "clauses carry what introduces them": (
        "(S (NP (NNP Ann)) (VP (VBZ says) (SBAR (IN that) (S (NP (NNP Bo)) (VP (VBD left) (SBAR (WHADVP (WRB when)) (S (NP (PRP I)) "
        "(VP (VBD came)))))))))",
        {
            "Ann": "says",
            "says": "",
            "that": "left",
            "Bo": "left",
            "left": "says",
            "when": "came",
            "I": "came",
            "came": "left",
        },
    ),
    "a relative clause depends on its noun": (
        "(NP (NP (DT the) (NN man)) (SBAR (WHNP (WP who)) (S (VP (VBD sang)))))",
        {"the": "man", "man": "", "who": "sang", "sang": "man"},
    ),
    "the first part of a coordination carries it": (
        "(S (NP (NNS apples) (, ,) (NNS pears) (CC and) (NNS figs)) (VP (VP (VBP ripen)) (CC or) (VP (VBP rot) (ADVP (RB soon)))))",
        {
            "apples": "ripen",
            ",": "apples",
            "pears": "apples",
            "and": "apples",
            "figs": "apples",
            "ripen": "",
            "or": "ripen",
            "rot": "ripen",
            "soon": "rot",
        },
    ),
    "words beside a coordination do not": (
        "(NP (DT the) (JJ old) (, ,) (JJ tired) (NN king) (CC and) (NN queen))",
        {
            "the": "king",
            "old": "king",
            ",": "king",
            "tired": "king",
            "king": "",
            "and": "king",
            "queen": "king",
        },
    ),
    "possessives and compounds": (
        "(NP (NP (NNP Anna) (POS 's)) (NN kitchen) (NN table))",
        {"Anna": "table", "'s": "Anna", "kitchen": "table", "table": ""},
    ),
    "questions": (
        "(SBARQ (WHNP (WP What)) (SQ (VBD did) (NP (PRP you)) (VP (VB buy))) (. ?))",
        {"What": "buy", "did": "buy", "you": "buy", "buy": "", "?": "buy"},
    ),
    "the other word order": (
        "(SINV (`` ``) (S (NP (PRP It)) (VP (VBZ rains))) (, ,) ('' '') (VP (VBD said)) (NP (NNP Eve)))",
        {"``": "said", "It": "rains", "rains": "said", ",": "said", "''": "said", "said": "", "Eve": "said"},
    ),
    "quantities": (
        "(S (NP (QP ($ $) (CD 3) (CD million))) (VP (VBZ is) (ADVP (RB probably)) (NP (QP (RB about) (CD half)))))",
        {"$": "is", "3": "$", "million": "$", "is": "", "probably": "is", "about": "half", "half": "is"},
    ),
    "infinitives and particles": (
        "(S (VP (VB Try) (S (VP (TO to) (VP (VB give) (PRT (RP up)) (S (VP (VBG smoking))))))))",
        {"Try": "", "to": "give", "give": "Try", "up": "give", "smoking": "give"},
    ),
    "what was taken back, and what stands in brackets, do not carry": (
        "(NP (EDITED (NP (DT the) (NN cat))) (NP (DT a) (NN dog)) (PRN (-LRB- -LRB-) (NP (NN male)) (-RRB- -RRB-)))",
        {"the": "cat", "cat": "dog", "a": "dog", "dog": "", "(": "male", "male": "dog", ")": "male"},
    ),
}


@pytest.mark.parametrize("what", BY_HAND)
def test_heads_are_those_found_by_hand(what: str) -> None:
    text, expected = BY_HAND[what]
    tree = brackets.parse(text)
    words = ("", *tree.words())
    heads, _ = dependencies(tree)
    assert {word: words[head] for word, head in zip(words[1:], heads, strict=True)} == expected


def test_relations_are_labels_of_phrases() -> None:
    tree = brackets.parse(
        "(TOP (S (NP-SBJ (NNP Ann)) (VP (MD will) (VP (VB give) (NP (NNP Bo)) (NP (NP (NN time)) (PP (IN for) (NP (NN tea)))) (NP-TMP "
        "(NN today)))) (. .)))"
    )
    assert tree.words() == ("Ann", "will", "give", "Bo", "time", "for", "tea", "today", ".")
    assert dependencies(tree)[1] == ("NP|S", "MD", "root", "NP|VP", "NP|VP", "PP", "NP|PP", "NP|VP", "punct")


LABELS = sorted({*TABLE, "UCP", "X", "INTJ", "EDITED", "PRN", "LST"})
WORDS = sorted({"NN", "VBD", "VBZ", "MD", "TO", "IN", "DT", "CC", "JJ", "POS", "XX", *PUNCTUATION})
leaves = st.builds(
    lambda tag, word: Tree(tag, (), word), st.sampled_from(WORDS), st.sampled_from(["a", "is", "has", "gone"])
)
trees = st.recursive(
    leaves,
    lambda below: st.builds(
        Tree, st.sampled_from(LABELS), st.lists(below, min_size=1, max_size=5).map(tuple)
    ),
    max_leaves=14,
)


def depends(heads: tuple[int, ...], word: int, other: int) -> bool:
    """Whether `word` lies under `other`, by going up one step after another (words count from 1)."""
    for _ in heads:
        word = heads[word - 1]
        if word in (0, other):
            return word == other
    raise AssertionError("a cycle")


@settings(max_examples=300, deadline=None)
@given(trees)
def test_any_tree_gives_one_root_no_crossing_arcs_and_one_head_a_phrase(tree: Tree) -> None:
    heads, relations = dependencies(tree)
    size = len(heads)
    assert size == len(relations) == len(tree.words())
    assert sum(head == 0 for head in heads) == 1
    root = heads.index(0) + 1
    assert all(depends(heads, word, root) for word in range(1, size + 1) if word != root)
    arcs = [(min(word, head), max(word, head)) for word, head in enumerate(heads, 1) if head]
    assert not any(a < c < b < d for a, b in arcs for c, d in arcs)
    for start, end, _ in tree.spans():  # of a phrase's words, one alone depends on a word outside it
        assert sum(not start < heads[word] <= end for word in range(start, end)) == 1


CONLL_2012 = """#begin document (nw/one/00/one_0001); part 000
nw/one/00/one_0001   0   0     Ann   NNP   (TOP(S(NP*)      -    -   -   -   (PERSON)   (ARG0*)   -
nw/one/00/one_0001   0   1     has   VBZ          (VP*    have  01   -   -          *        *    -
nw/one/00/one_0001   0   2    seen   VBN          (VP*     see  01   1   -          *      (V*)   -
nw/one/00/one_0001   0   3    Oslo   NNP        (NP*)))    -    -   -   -      (GPE)   (ARG1*)   -
nw/one/00/one_0001   0   4      /.     .           *))     -    -   -   -          *        *    -

#end document
#begin document (nw/one/00/one_0001); part 001
nw/one/00/one_0001   1   0      Go    VB   (TOP(S(VP*)    go   02   1   -          *      (V*)   -
nw/one/00/one_0001   1   1       !     .           *))     -    -   -   -          *        *    -

#end document
"""


@pytest.fixture
def ontonotes_folder(tmp_path: Path) -> Path:
    for split, city in (("train", "Oslo"), ("validation", "Rome"), ("test", "Bern")):
        (tmp_path / f"{split}.v4_gold_conll").write_text(CONLL_2012.replace("Oslo", city))
    return tmp_path


def test_conll_2012_has_the_five_tasks_of_the_stem_cell_study(ontonotes_folder: Path) -> None:
    pos, ner, dep, con, srl = structured(ontonotes_folder, ("pos", "ner", "tree-dep", "con", "srl"))
    assert pos.classes == (".", "NNP", "VB", "VBN", "VBZ")
    assert pos.split("test").sentences[0].words == ("Ann", "has", "seen", "Bern", ".")  # type: ignore[index]
    assert [pos.classes[i] for i in pos.split("train").labels[0]] == ["NNP", "VBZ", "VBN", "NNP", "."]
    assert ner.classes == ("GPE", "PERSON")
    assert (con.kind, srl.kind) == ("constituents", "roles")
    named = [(head, dep.classes[number], counts) for head, number, counts in dep.split("train").labels[0]]
    assert named == [(3, "NP|S", 1), (3, "VBZ", 1), (0, "root", 1), (3, "NP|VP", 1), (3, "punct", 0)]
    (own,) = structured(ontonotes_folder, ("xpos",))
    assert own.split("train").fingerprint == pos.split("train").fingerprint
    with pytest.raises(
        HeadwiseError,
        match=r"no training sentence has the layer 'dep' \(heads\); 'tree-dep' makes dependencies of",
    ):
        structured(ontonotes_folder, ("dep",))


def test_a_task_of_dependencies_reads_trees_where_it_is_told_to(ontonotes_folder: Path) -> None:
    (dep,) = structured(ontonotes_folder, ("tree-dep",))
    task = Task("tree-dep", path=ontonotes_folder, kind="dependencies", label="tree", metric="las")
    assert task.fingerprint == dep.fingerprint
    with pytest.raises(
        HeadwiseError, match="no sentence has the layer 'heads'; they have: xpos, entities, tree, roles"
    ):
        Task("d", path=ontonotes_folder, kind="dependencies").splits  # noqa: B018
    with pytest.raises(HeadwiseError, match=r"no sentence has the layer 'upos'; .*label='xpos'"):
        Task("p", path=ontonotes_folder, kind="tags").splits  # noqa: B018


def test_universal_parts_of_speech_come_first() -> None:
    both = Sentence(("a", "b"), upos=("DET", "NOUN"), xpos=("DT", "NN"))
    (pos,) = structured({"train": [both, Sentence(("c",), xpos=("NN",))], "validation": [both]}, ("pos",))
    assert pos.classes == ("DET", "NOUN")
    assert len(pos.split("train")) == 1


def test_tags_that_a_file_does_not_have_are_no_tags(tmp_path: Path) -> None:
    ontonotes.write([Sentence(("Go", "!"), roles=())], tmp_path / "a.gold_conll")
    (sentence,) = ontonotes.read(tmp_path / "a.gold_conll")
    assert (sentence.xpos, sentence.tree) == (None, None)


def test_a_sentence_without_its_tree_has_no_dependencies_to_make() -> None:
    with pytest.raises(HeadwiseError, match="'a b' has no constituency tree"):
        with_dependencies(Sentence(("a", "b")))
    with pytest.raises(HeadwiseError, match="its tree has the words"):
        with_dependencies(Sentence(("a", "b"), tree=brackets.parse("(NP (DT a) (NN c))")))
