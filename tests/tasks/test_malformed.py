"""Malformed files: the error names file, line and sentence; `skip_bad` leaves the sentence out and counts it."""

from pathlib import Path

import pytest

from headwise.errors import HeadwiseError
from headwise.tasks import structured
from headwise.tasks.readers import read_sentences
from headwise.tasks.readers.blocks import check_heads

FINE_U = "1\tGo\tgo\tVERB\tVB\t_\t0\troot\t_\t_\n2\t.\t.\tPUNCT\t.\t_\t1\tpunct\t_\t_\n\n"
FINE_C = "Anna\tB-PER\nran\tO\n\n"
FINE_T = "(S (NP (NN dog)) (VP (VBD ran)))\n"
FINE_J = '{"words": ["Go", "."], "head": [0, 1], "deprel": ["root", "punct"]}\n'
FINE_O = "d 0 0 Go VB (S(VP*)) go 01 1 - * (V*) -\n\n"


def word(number: str, head: str, columns: int = 10) -> str:
    return "\t".join([number, "w", "w", "X", "X", "_", head, "dep", "_", "_", "_"][:columns]) + "\n"


@pytest.mark.parametrize(
    ("name", "fine", "bad", "line", "message"),
    [
        ("a.conllu", FINE_U, word("1", "0", 9), 4, "CoNLL-U has 10 columns, found 9"),
        ("a.conllu", FINE_U, word("1", "0") + word("3", "1"), 5, "word number '3', expected 2"),
        (
            "a.conllu",
            FINE_U,
            word("1", "0") + word("2", "0"),
            4,
            "there must be one root, found 2: words 1, 2",
        ),
        ("a.conllu", FINE_U, word("1", "2") + word("2", "1"), 4, "there must be one root, found 0"),
        (
            "a.conllu",
            FINE_U,
            word("1", "0") + word("2", "3") + word("3", "2"),
            4,
            "the heads of words 2, 3 run in a cycle",
        ),
        (
            "a.conllu",
            FINE_U,
            word("1", "0") + word("2", "7"),
            4,
            "word 2 has the head 7, outside the sentence of 2 words",
        ),
        ("a.conllu", FINE_U, word("1", "0") + word("2", "x"), 4, "word 2 has the head 'x', not a number"),
        (
            "a.conll",
            FINE_C,
            "Anna\tO\nran\tI-PER\n",
            4,
            "word 2 has the tag 'I-PER', which cannot follow 'O' in bio",
        ),
        ("a.conll", FINE_C, "Anna\tB-PER\nran\tI-LOC\n", 4, "'I-LOC', which cannot follow 'B-PER'"),
        ("a.conll", FINE_C, "Anna\tX\n", 4, "the tag 'X', which bio does not know"),
        ("a.conll", FINE_C, "Anna\tO\nran O\n", 5, "expected 2 columns"),
        ("a.ptb", FINE_T, "(S (NP (NN dog)) (VP (VBD ran))\n", 2, "1 brackets are never closed"),
        ("a.ptb", FINE_T, "(S (NP (NN dog))))\n", 2, r"after the end of the tree"),
        (
            "a.ptb",
            FINE_T,
            "(S (NP dog cat))\n",
            2,
            r"\(NP dog cat\) is neither a phrase nor a part of speech over one word",
        ),
        ("a.ptb", FINE_T, "(S (NP) (NN dog))\n", 2, "is neither a phrase"),
        ("a.jsonl", FINE_J, '{"words": ["a", "b"], "head": [0, 0]}\n', 2, "there must be one root, found 2"),
        ("a.jsonl", FINE_J, '{"words": ["a"], "upos": ["X", "Y"]}\n', 2, "1 words but 2 values of upos"),
        (
            "a.jsonl",
            FINE_J,
            '{"words": ["a"], "srl": [{"pred": 0, "args": [[0, 3, "ARG0"]]}]}\n',
            2,
            r"the span 0-3 \(ARG0\) is empty or outside",
        ),
        (
            "a.jsonl",
            FINE_J,
            '{"words": ["a"], "srl": [{"pred": 4, "args": []}]}\n',
            2,
            "the predicate 4 is outside",
        ),
        ("a.jsonl", FINE_J, '{"words": ["a"], "srl": [{"args": []}]}\n', 2, "expected {pred, roleset, args"),
        (
            "a.jsonl",
            FINE_J,
            '{"words": ["a"], "ner": ["I-X"]}\n',
            2,
            "'I-X', which cannot follow 'the beginning'",
        ),
        (
            "a.jsonl",
            FINE_J,
            '{"words": ["a"], "parse": "(S (X b))"}\n',
            2,
            "the tree has the word 'b' where the sentence has 'a'",
        ),
        (
            "a.jsonl",
            FINE_J,
            '{"words": ["a"], "parse": "(S (X a) (X b))"}\n',
            2,
            "the tree has 2 words, the sentence 1",
        ),
        ("a.jsonl", FINE_J, '{"words": [\n', 2, "the line is not valid JSON"),
        ("a.jsonl", FINE_J, '{"words": []}\n', 2, "words must be a list of non-empty strings"),
        (
            "a.gold_conll",
            FINE_O,
            "d 0 0 Go VB (S(VP*)) go 01 1 - * (V* -\n\n",
            3,
            r"the span \(V opened at word 1 is never closed",
        ),
        (
            "a.gold_conll",
            FINE_O,
            "d 0 0 Go VB (S(VP*)) go 01 1 - *) (V*) -\n\n",
            3,
            "closes a span that is not open",
        ),
        (
            "a.gold_conll",
            FINE_O,
            "d 0 0 Go VB (S(VP*) go 01 1 - * (V*) -\n\n",
            3,
            "1 brackets are never closed",
        ),
        ("a.gold_conll", FINE_O, "d 0 0 Go VB (S(VP*)) go 01 1 - * (ARG0*) -\n\n", 3, "0 predicates"),
        ("a.gold_conll", FINE_O, "d 0 0 Go VB (S*\nd 0 1 . . *)\n\n", 3, "expected 12 columns, found 6"),
    ],
)
def test_errors_name_file_line_and_sentence(
    tmp_path: Path, name: str, fine: str, bad: str, line: int, message: str
) -> None:
    path = tmp_path / name
    path.write_text(fine + bad + ("\n" if name.endswith(("u", "l")) else "") + fine)
    with pytest.raises(HeadwiseError, match=rf"{name}, line {line} \(sentence 2\): .*{message}"):
        read_sentences(path)
    with pytest.warns(
        UserWarning, match=rf"{name}: skipped 1 malformed of 3 sentences; the first: .*{message}"
    ):
        assert len(read_sentences(path, skip_bad=True)) == 2


def test_a_file_of_nothing_but_bad_sentences_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("Anna\tI-PER\n")
    with (
        pytest.warns(UserWarning, match="skipped 1"),
        pytest.raises(HeadwiseError, match="holds no well-formed sentence"),
    ):
        read_sentences(tmp_path / "a.conll", skip_bad=True)
    (tmp_path / "b.conll").write_text("\n\n")
    with pytest.raises(HeadwiseError, match=r"b.conll holds no sentence"):
        read_sentences(tmp_path / "b.conll")
    with pytest.raises(HeadwiseError, match="there is no file"):
        read_sentences(tmp_path / "c.conll")


def test_skip_bad_reaches_the_readers_through_tasks(tmp_path: Path) -> None:
    (tmp_path / "train.conll").write_text(
        FINE_C + "Anna\tI-PER\n\n" + "".join(FINE_C.replace("ran", f"ran{i}") for i in range(40))
    )
    with pytest.raises(HeadwiseError, match="sentence 2"):
        structured(tmp_path, ("ner",))
    with pytest.warns(UserWarning, match="skipped 1 malformed of 42"):
        (task,) = structured(tmp_path, ("ner",), skip_bad=True)
    assert sum(len(task.split(split)) for split in task.splits) == 41


@pytest.mark.parametrize("heads", [[0], [2, 0], [2, 3, 0, 3], [0, 1, 2, 3, 4]])
def test_trees_pass(heads: list[int]) -> None:
    check_heads(heads, "here")


def test_entities_left_open_or_without_type(tmp_path: Path) -> None:
    head = "# global.Entity = eid-etype\n"
    for cell, message in (
        ("Entity=(1-person", "'1' is never closed"),
        ("Entity=1)", "closes the entity '1'"),
        ("Entity=(1", "without its type"),
    ):
        (tmp_path / "a.conllu").write_text(head + f"1\tw\tw\tX\tX\t_\t0\troot\t_\t{cell}\n")
        with pytest.raises(HeadwiseError, match=message):
            read_sentences(tmp_path / "a.conllu")


def test_bioes_is_strict(tmp_path: Path) -> None:
    (tmp_path / "a.bio").write_text("a\tS-X\nb\tB-X\nc\tI-X\nd\tE-X\n")
    assert [tuple(span) for span in read_sentences(tmp_path / "a.bio", scheme="bioes")[0].entities or ()] == [
        (0, 1, "X"),
        (1, 4, "X"),
    ]
    for text, message in (
        ("a\tB-X\nb\tO\n", "before an E-X ended"),
        ("a\tB-X\n", "ends before an E-X"),
        ("a\tE-X\n", "cannot follow"),
    ):
        (tmp_path / "a.bio").write_text(text)
        with pytest.raises(HeadwiseError, match=message):
            read_sentences(tmp_path / "a.bio", scheme="bioes")
    with pytest.raises(HeadwiseError, match="unknown tag scheme 'bilou'"):
        read_sentences(tmp_path / "a.bio", scheme="bilou")
    with pytest.raises(HeadwiseError, match="each column is one of"):
        read_sentences(tmp_path / "a.bio", columns=("word", "ner"))
