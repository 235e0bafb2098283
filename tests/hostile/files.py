"""Hostile files: name, content, and what the one line about it must say. Also read by benchmarks/attack.py."""

import gzip
import json
from pathlib import Path
from typing import Any

from headwise.tasks import Task
from headwise.tasks._names import read_toml
from headwise.tasks.readers import read_sentences

DEEP = 100_000
WORD = b"1\tGo\tgo\tVERB\tVB\t_\t0\troot\t_\t_\n\n"
TABLES: dict[str, tuple[str, bytes, str]] = {
    "empty CSV": ("a.csv", b"", "could not be read as csv"),
    "CSV of a header alone": ("a.csv", b"text,label\n", "holds no rows: there is nothing below its header"),
    "CSV that is not UTF-8": ("a.csv", b"text,label\n\xff,1\nb,0\n", "could not be read as UTF-8 text"),
    "CSV with a ragged row": ("a.csv", b"text,label\na,1\nb,2,3\n", "could not be read as csv"),
    "CSV of NULs": ("a.csv", b"\0" * 100, "holds no rows|could not be read|has no column"),
    "CSV with an empty text": ("a.csv", b"text,label\na,1\n,0\n", "row 2: text is empty"),
    "CSV of one class": (
        "a.csv",
        b"text,label\n" + b"a b,1\n" * 40,
        "at least two are needed|all \\d+ training",
    ),
    "TSV that is not UTF-8": ("a.tsv", b"text\tlabel\n\xff\t1\n", "could not be read as UTF-8 text"),
    "JSON lines nested deeply": (
        "a.jsonl",
        b'{"text": ' + b"[" * DEEP + b"]" * DEEP + b"}\n",
        "line 1 is nested too deeply",
    ),
    "JSON nested 500 deep": (
        "a.jsonl",
        b'{"text": ' + b"[" * 500 + b"]" * 500 + b"}\n",
        "line 1 is nested too deeply",
    ),
    "JSON with a huge number": (
        "a.jsonl",
        b'{"text": "a", "label": ' + b"9" * 5000 + b"}\n",
        "line 1 is not valid JSON",
    ),
    "JSON that is not UTF-8": ("a.jsonl", b'{"text": "\xff"}\n', "could not be read as UTF-8 text"),
    "JSON of numbers": ("a.jsonl", b"1\n2\n", "line 1: expected an object"),
    "JSON list of numbers": ("a.json", b"[1, 2]", "row 1: expected an object"),
    "JSON cut off": ("a.json", b'[{"text": "a"', "is not valid JSON"),
    "JSON with half a character": (
        "a.jsonl",
        b'{"text": "\\ud800", "label": 1}\n{"text": "b", "label": 0}\n',
        "half of a character",
    ),
    "JSON label with half a character": (
        "a.jsonl",
        b'{"text": "a", "label": "\\ud800"}\n' * 30,
        "half of a character",
    ),
    "JSON text that is a list": (
        "a.jsonl",
        b"".join(b'{"text": [%d], "label": 1}\n' % i for i in range(20)),
        "not text",
    ),
    "parquet that is none": ("a.parquet", b"PAR1 not really PAR1", "could not be read as parquet"),
    "empty parquet": ("a.parquet", b"", "could not be read as parquet"),
    "gzip that is none": ("a.csv.gz", b"text,label\n", "could not be read as UTF-8 text"),
    "gzip cut off": (
        "a.jsonl.gz",
        gzip.compress(b'{"text": "a", "label": 1}\n' * 100)[:-20],
        "could not be read as UTF-8 text",
    ),
    "xz that is none": ("a.jsonl.xz", b"{}", "could not be read as UTF-8 text"),
    "bz2 that is none": ("a.jsonl.bz2", b"{}", "could not be read as UTF-8 text"),
    "unknown format": ("a.docx", b"PK", "unknown format"),
}
SENTENCES: dict[str, tuple[str, bytes, str]] = {
    "CoNLL-U that is not UTF-8": (
        "a.conllu",
        WORD.replace(b"Go", b"\xff"),
        "could not be read as UTF-8 text",
    ),
    "CoNLL-U head in superscript": (
        "a.conllu",
        WORD.replace(b"\t0\t", "\t²\t".encode()),
        "has the head '²', not a number",
    ),
    "CoNLL-U head of 5,000 digits": (
        "a.conllu",
        WORD.replace(b"\t0\t", b"\t" + b"1" * 5000 + b"\t"),
        "not a number",
    ),
    "CoNLL-U word number of 5,000 digits": ("a.conllu", b"1" * 5000 + WORD[1:], "word number"),
    "CoNLL-U empty word": ("a.conllu", WORD.replace(b"Go", b""), "the word is empty"),
    "CoNLL-U of nothing": ("a.conllu", b"", "holds no sentence"),
    "tree nested deeply": ("a.ptb", b"(S " * DEEP + b"(X a)" + b")" * DEEP, "phrases deep"),
    "tree never closed": ("a.ptb", b"(" * DEEP, "phrases deep"),
    "tree that is not UTF-8": ("a.mrg", b"(S (X \xff))", "could not be read as UTF-8 text"),
    "columns that are not UTF-8": ("a.conll", b"\xff\tO\n", "could not be read as UTF-8 text"),
    "columns with an unknown tag": ("a.conll", b"a\t-X\n", "which bio does not know"),
    "CoNLL-2012 with a deep tree": (
        "a.gold_conll",
        b"d 0 0 Go VB " + b"(S" * 500 + b"*" + b")" * 500 + b" go 01 1 - * (V*) -\n",
        "phrases deep",
    ),
    **{
        f"PropBank with {name}": (
            "a.jsonl",
            json.dumps({"words": ["a", "b"], **given}).encode() + b"\n",
            expected,
        )
        for name, given, expected in [
            ("words as text", {"words": "ab"}, "words must be a list"),
            ("words as numbers", {"words": [1, 2]}, "words must be a list"),
            ("heads as text", {"head": ["0", "1"]}, "head must be a list of whole numbers"),
            ("heads true and false", {"head": [False, True]}, "head must be a list of whole numbers"),
            ("heads as a number", {"head": 3}, "head must be a list"),
            ("tags as numbers", {"upos": [1, 2]}, "upos must be a list of strings"),
            ("entities as null", {"ner": [None, None]}, "ner must be a list of strings"),
            ("a tree as a list", {"parse": ["S"]}, "parse must be text"),
            ("a deep tree", {"parse": "(S " * 5000}, "phrases deep"),
            ("roles as a number", {"srl": 3}, "srl must be a list"),
            ("a role as a number", {"srl": [3]}, r"expected {pred, roleset, args"),
            (
                "a predicate at infinity",
                {"srl": [{"pred": 1e999, "args": []}]},
                r"expected {pred, roleset, args",
            ),
            ("a role of two", {"srl": [{"pred": 0, "args": [[0, 1]]}]}, r"expected {pred, roleset, args"),
            ("half a character", {"words": ["\ud800", "b"]}, "words must be a list"),
        ]
    },
}
TOMLS: dict[str, tuple[str, bytes, str]] = {
    "TOML that is not UTF-8": ("t.toml", b'\xff[a]\npath = "x"', "is not valid TOML"),
    "TOML cut off": ("t.toml", b'[a]\npath = "x', "is not valid TOML"),
    "TOML nested deeply": ("t.toml", b"a = " + b"[" * DEEP + b"]" * DEEP, "nested too deeply"),
    "TOML tables nested deeply": (
        "t.toml",
        b"[" + b".".join([b"a"] * 500) + b"]\npath = 'x'\n",
        "nested too deeply",
    ),
    "TOML with a huge number": ("t.toml", b"a = " + b"9" * 5000, "is not valid TOML"),
    "TOML that is empty": ("t.toml", b"", "defines no task"),
    **{
        f"TOML with {line}": ("t.toml", f'[a]\npath = "x.csv"\n{line}\n'.encode(), expected)
        for line, expected in [
            ("text = 3", "text is 3; expected the name of a column"),
            ("text = [1, 2]", "text is .1, 2.; expected the name of a column"),
            ("label = []", "label is .*; expected text"),
            ("kind = []", "kind is .*; expected text"),
            ("metric = 1.5", "metric is 1.5; expected text"),
            ('classes = "abc"', "classes is 'abc'; expected a list of texts"),
            ("splits = 3", "splits is 3; expected a table of texts"),
            ('fractions = {train = "a"}', "fractions is .*; expected a table of numbers"),
            ('seed = "a"', "seed is 'a'; expected a whole number"),
            ("seed = 99999999999999999999", "expected a whole number of at most 64 bits"),
            ('skip_bad = "yes"', "skip_bad is 'yes'; expected true or false"),
            ("reading = 3", "reading is 3; expected a table"),
            ("reading = {colums = []}", "reading has no option 'colums'"),
            ("hub = 2026-01-01", "expected text"),
            ("size = 3", "only a grammar task has a size"),
        ]
    },
    "TOML with a path of the wrong type": (
        "t.toml",
        b"[a]\npath = 5\n",
        "path is 5; expected a file or folder",
    ),
    "TOML with a preset of the wrong type": ("t.toml", b"[a]\npreset = 5\n", "preset is 5; expected text"),
    "TOML with a grammar task of the wrong type": (
        "t.toml",
        b"[a]\ngrammar = []\n",
        "grammar is .*; expected text",
    ),
    "TOML with a label of a grammar task": (
        "t.toml",
        b'[a]\ngrammar = "topic"\nlabel = "x"\n',
        "a grammar task has size, seed and metric",
    ),
    "TOML with a very long path": ("t.toml", b'[a]\npath = "' + b"x" * 300 + b'"\n', "there is no file"),
}


def use(kind: str, path: Path) -> Any:
    """Reads a file as a user would."""
    if kind == "table":
        return Task("t", path=path).split("train")
    if kind == "sentences":
        return read_sentences(path)
    return [task.splits for task in read_toml(path)]


HOSTILE = {
    name: (kind, *entry)
    for kind, entries in (("table", TABLES), ("sentences", SENTENCES), ("toml", TOMLS))
    for name, entry in entries.items()
}
