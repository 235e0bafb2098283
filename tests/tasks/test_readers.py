"""Readers and writers: what is written comes back, and hand-made files are read as a person would."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from seqeval.metrics.sequence_labeling import get_entities

from headwise.errors import HeadwiseError
from headwise.grammar import treebank
from headwise.tasks import Predicate, Sentence, Span, Task, Tree, structured
from headwise.tasks._kinds import constituents
from headwise.tasks.readers import (
    brackets,
    columns,
    conllu,
    ontonotes,
    propbank,
    read_sentences,
)
from headwise.tasks.readers.tags import spans_from_tags, tags_from_spans

CONLLU = """# newdoc id = d
# global.Entity = GRP-etype-infstat-identity
# sent_id = s1
# text = Don't visit Oslo with Clara Novak.
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVBP\tMood=Imp|VerbForm=Fin\t3\taux\t_\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_
3\tvisit\tvisit\tVERB\tVB\tVerbForm=Inf\t0\troot\t_\t_
4\tOslo\tOslo\tPROPN\tNNP\tNumber=Sing\t3\tobj\t_\tEntity=(1-place-new-Oslo)
5\twith\twith\tADP\tIN\t_\t6\tcase\t_\tEntity=(4-event-new
6\tClara\tClara\tPROPN\tNNP\tNumber=Sing\t3\tobl\t_\tEntity=(2-person-new-Clara_Novak
6.1\tghost\t_\t_\t_\t_\t_\t_\t_\t_
7\tNovak\tNovak\tPROPN\tNNP\tNumber=Sing\t6\tflat\t_\tEntity=2)4)|SpaceAfter=No
8\t.\t.\tPUNCT\t.\t_\t3\tpunct\t_\t_

1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\tEntity=(3-object-new)
"""


def test_conllu_by_hand(tmp_path: Path) -> None:
    (tmp_path / "a.conllu").write_text(CONLLU)
    first, second = conllu.read(tmp_path / "a.conllu")
    assert first.words == ("Do", "n't", "visit", "Oslo", "with", "Clara", "Novak", ".")
    assert (first.heads, first.text, first.id) == (
        (3, 3, 0, 3, 6, 3, 6, 3),
        "Don't visit Oslo with Clara Novak.",
        "s1",
    )
    assert first.entities == (Span(3, 4, "place"), Span(5, 7, "person"))
    assert conllu.read(tmp_path / "a.conllu", mentions="outer")[0].entities == (
        Span(3, 4, "place"),
        Span(4, 7, "event"),
    )
    assert second.entities == ()
    assert (first.feature(0, "Mood"), first.feature(1, "Mood")) == ("Imp", None)
    assert first.source.endswith("a.conllu, line 1 (sentence 1)")


def test_brackets_by_hand(tmp_path: Path) -> None:
    text = """( (S
    (NP-SBJ-1 (NNP Ann))
    (VP (VBD saw) (NP (-NONE- *T*-1)) (PRN (-LRB- -LRB-) (UH wow) (-RRB- -RRB-))) (. .)))
(TOP (S (NP (-NONE- *)) (VP (VB Go))))
"""
    (tmp_path / "a.mrg").write_text(text)
    first, second = brackets.read(tmp_path / "a.mrg")
    assert first.words == ("Ann", "saw", "(", "wow", ")", ".")
    assert first.xpos == ("NNP", "VBD", "-LRB-", "UH", "-RRB-", ".")
    assert first.tree is not None
    assert second.tree is not None
    assert constituents(first.tree) == [(0, 6, "S"), (0, 1, "NP"), (1, 5, "VP"), (2, 5, "PRN")]
    assert constituents(second.tree) == [(0, 1, "S+VP")]
    assert str(second.tree) == "(TOP (S (VP (VB Go))))"


def test_columns_by_hand(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text(
        "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nand CC O O\nUN NNP I-NP I-ORG\nUS NNP I-NP B-ORG\n\n"
    )
    (sentence,) = columns.read(tmp_path / "a.conll", scheme="iob1")
    assert sentence.words == ("EU", "and", "UN", "US")
    assert sentence.entities == (Span(0, 1, "ORG"), Span(2, 3, "ORG"), Span(3, 4, "ORG"))
    (tmp_path / "b.conll").write_text("Anna\tNOUN\nruns\tVERB\n")
    assert columns.read(tmp_path / "b.conll", columns=("words", "upos"))[0].upos == ("NOUN", "VERB")
    reading = {"columns": ["words", "upos"]}
    task = Task(
        "pos",
        path={"train": tmp_path / "b.conll", "test": tmp_path / "b.conll"},
        kind="tags",
        reading=reading,
    )
    with pytest.warns(UserWarning, match="also occur"):
        assert task.classes == ("NOUN", "VERB")


def test_ontonotes_by_hand(tmp_path: Path) -> None:
    rows = [
        (
            "bc/x",
            "0",
            "0",
            "Ann",
            "NNP",
            "(TOP(S(NP*)",
            "-",
            "-",
            "-",
            "Ann",
            "(PERSON)",
            "(ARG0*)",
            "(ARG0*)",
            "-",
        ),
        ("bc/x", "0", "1", "says", "VBZ", "(VP*", "say", "01", "1", "Ann", "*", "(V*)", "*", "-"),
        ("bc/x", "0", "2", "Bo", "NNP", "(SBAR(S(NP*)", "-", "-", "-", "Ann", "(PERSON)", "(ARG1*", "*", "-"),
        ("bc/x", "0", "3", "left", "VBD", "(VP*))))", "leave", "02", "1", "Ann", "*", "*)", "(V*)", "-"),
        ("bc/x", "0", "4", "/.", ".", "*))", "-", "-", "-", "Ann", "*", "*", "*", "-"),
    ]
    text = (
        "#begin document (bc/x); part 000\n"
        + "\n".join("  ".join(row) for row in rows)
        + "\n\n#end document\n"
    )
    (tmp_path / "a.conll").write_text(text)
    (sentence,) = read_sentences(tmp_path / "a.conll")
    assert sentence.words == ("Ann", "says", "Bo", "left", ".")
    assert sentence.entities == (Span(0, 1, "PERSON"), Span(2, 3, "PERSON"))
    assert sentence.roles == (
        Predicate(1, "say.01", (Span(0, 1, "ARG0"), Span(2, 4, "ARG1"))),
        Predicate(3, "leave.02", (Span(0, 1, "ARG0"),)),
    )
    assert str(sentence.tree).startswith("(TOP (S (NP (NNP Ann)) (VP (VBZ says) (SBAR")


def test_propbank_json_by_hand(tmp_path: Path) -> None:
    line = (
        '{"id": "x", "words": ["He", "gave", "up", "("], "head": [2, 0, 2, 2], "deprel": ["nsubj", "root", "compound:prt", "punct"],'
        ' "ner": null, "parse": "(S (NP (PRP He)) (VP (VBD gave) (PRT (RP up)) (-LRB- -LRB-)))",'
        ' "srl": [{"pred": 1, "roleset": "give_up.08", "args": [[0, 0, "ARG0"], [1, 2, "V"]]}]}'
    )
    (tmp_path / "a.jsonl").write_text(line + "\n")
    (sentence,) = read_sentences(tmp_path / "a.jsonl")
    assert sentence.roles == (Predicate(1, "give_up.08", (Span(0, 1, "ARG0"),)),)
    assert (sentence.entities, sentence.upos) == (None, None)
    assert sentence.tree is not None
    assert sentence.tree.words() == sentence.words


def bare(sentence: Sentence, *layers: str) -> dict[str, object]:
    return {layer: getattr(sentence, layer) for layer in ("words", *layers)}


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("a.conllu", ("upos", "xpos", "lemmas", "feats", "heads", "deprels", "text", "id")),
        ("a.ptb", ("xpos", "tree")),
        ("a.conll", ("entities",)),
        ("a.gold_conll", ("xpos", "tree", "entities", "roles")),
        (
            "a.jsonl",
            (
                "upos",
                "xpos",
                "lemmas",
                "feats",
                "heads",
                "deprels",
                "entities",
                "tree",
                "roles",
                "text",
                "id",
            ),
        ),
    ],
)
def test_what_is_written_comes_back(tmp_path: Path, name: str, layers: tuple[str, ...]) -> None:
    writer = {
        ".conllu": conllu,
        ".ptb": brackets,
        ".conll": columns,
        ".gold_conll": ontonotes,
        ".jsonl": propbank,
    }[Path(name).suffix]
    sentences = treebank(60, seed=2)
    odd = Tree("S", (Tree("NP", (Tree("NN", (), "(x)"),)), Tree("VP", (Tree("VB", (), "ba_r"),))))
    sentences.append(
        Sentence(
            ("(x)", "ba_r"),
            xpos=("NN", "VB"),
            entities=(),
            tree=Tree("TOP", (odd,)),
            roles=(),
            text="(x) ba_r",
        )
    )
    writer.write(sentences, tmp_path / name)
    found = read_sentences(tmp_path / name)
    assert len(found) == len(sentences)
    for old, new in zip(sentences, found, strict=True):
        wanted = bare(old, *layers)
        if name == "a.conllu" and old.feats is None:
            wanted["feats"] = ("_",) * len(old)
        assert bare(new, *layers) == wanted


def test_conllu_entities_come_back_by_proper_noun(tmp_path: Path) -> None:
    sentences = [s for s in treebank(80, seed=4) if s.entities]
    conllu.write(sentences, tmp_path / "a.conllu")
    assert [s.entities for s in conllu.read(tmp_path / "a.conllu")] == [s.entities for s in sentences]


tags = st.lists(st.sampled_from(["O", "B-A", "I-A", "B-B", "I-B"]), min_size=1, max_size=12)


def well_formed(sequence: list[str]) -> list[str]:
    """The same with every stray I turned into B."""
    fixed: list[str] = []
    for tag in sequence:
        stray = tag[0] == "I" and (not fixed or fixed[-1][1:] != tag[1:])
        fixed.append(f"B{tag[1:]}" if stray else tag)
    return fixed


@settings(max_examples=80, deadline=None)
@given(tags)
def test_tags_mean_what_seqeval_says_and_survive_every_scheme(sequence: list[str]) -> None:
    fixed = well_formed(sequence)
    spans = spans_from_tags(fixed)
    assert {(label, start, end - 1) for start, end, label in spans} == set(get_entities(fixed))
    assert tags_from_spans(spans, len(fixed)) == fixed
    for scheme in ("bio", "iob1", "bioes"):
        assert spans_from_tags(tags_from_spans(spans, len(fixed), scheme), scheme) == spans
    if fixed != sequence:
        with pytest.raises(HeadwiseError, match="cannot follow"):
            spans_from_tags(sequence)


def test_trees_beside_conllu_are_merged(tmp_path: Path) -> None:
    sentences = treebank(30, seed=6)
    conllu.write([replace(s, tree=None) for s in sentences], tmp_path / "train.conllu")
    brackets.write(sentences, tmp_path / "train.ptb")
    found = read_sentences(tmp_path / "train.conllu")
    assert [s.tree for s in found] == [s.tree for s in sentences]
    tasks = structured(tmp_path, ("pos", "dep", "con"))
    assert [task.kind for task in tasks] == ["tags", "dependencies", "constituents"]
    lines = (tmp_path / "train.ptb").read_text().splitlines()
    (tmp_path / "train.ptb").write_text("\n".join(lines[:-1]))
    with pytest.raises(HeadwiseError, match="30 sentences but 29 trees"):
        read_sentences(tmp_path / "train.conllu")
    assert sum(s.tree is not None for s in read_sentences(tmp_path / "train.conllu", skip_bad=True)) == 29


def test_structured_tasks_use_the_sentences_that_have_the_layer() -> None:
    sentences = treebank(40, seed=1)
    some = [replace(s, roles=None) if i % 4 else s for i, s in enumerate(sentences)]
    pos, srl = structured({"train": some, "test": treebank(8, seed=1, split="test")}, ("pos", "srl"))
    assert len(pos.split("train")) + len(pos.split("validation")) == 40
    assert len(srl.split("train")) + len(srl.split("validation")) == 10
    assert srl.classes[0] == "V"
    with pytest.raises(HeadwiseError, match="no training sentence has the layer 'srl'"):
        structured({"train": [replace(s, roles=None) for s in sentences]}, ("srl",))
    with pytest.raises(HeadwiseError, match="unknown layer 'coref'"):
        structured(sentences, ("coref",))
