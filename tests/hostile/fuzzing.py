"""What a fuzz test draws: sound files with bytes changed, cut and put in, and JSON values of any shape in the place of others."""

import bz2
import gzip
import json
import lzma
import os
import time
from collections.abc import Callable
from typing import Any

import pandas as pd
from hypothesis import HealthCheck, given, seed, settings, strategies as st

from headwise.errors import HeadwiseError

NASTY = [
    b"\xff",
    b"\0",
    "²".encode(),
    "٣".encode(),
    b"-1",
    b"9" * 5000,
    b"1e999",
    b"NaN",
    b"null",
    b"[[[",
    b"{",
    b'"',
    b"\\ud800",
    b"../",
    b"\t",
]
NASTY += [
    b"\n",
    b"\n\n",
    b"\r",
    b"(",
    b")",
    b"*",
    b"=",
    b"#",
    "\ufeff".encode(),
    b"[" * 2000,
    b"(S " * 2000,
    b"a." * 2000,
]
SCALARS = [
    None,
    True,
    False,
    0,
    1,
    -1,
    3,
    2**63,
    10**400,
    0.5,
    -0.0,
    1e308,
    float("inf"),
    float("nan"),
    "",
    "x",
    "²",
    "\ud800",
    "../x",
    "a\0b",
    "x" * 3000,
]
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(SCALARS) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def mutated(draw: Callable[..., Any], sample: bytes) -> bytes:
    """The sample with one to four places changed, or bytes of no origin."""
    if draw(st.integers(0, 19)) == 0:
        return bytes(draw(st.binary(max_size=60)))
    data = sample
    for _ in range(draw(st.integers(1, 4))):
        at, size = draw(st.integers(0, len(data))), draw(st.integers(0, 12))
        what = draw(st.sampled_from(("put in", "replace", "cut", "double", "end")))
        nasty = draw(st.sampled_from(NASTY) | st.binary(min_size=1, max_size=3))
        if what == "put in":
            data = data[:at] + nasty + data[at:]
        elif what == "replace":
            data = data[:at] + nasty + data[at + len(nasty) :]
        elif what == "cut":
            data = data[:at] + data[at + size :]
        elif what == "double":
            data = data[:at] + data[at : at + size] * 2 + data[at + size :]
        else:
            data = data[:at]
    return data


@st.composite
def changed(draw: Callable[..., Any], sample: Any) -> Any:
    """A JSON value with one to three of its inner values exchanged, dropped, or put under another key."""
    value = json.loads(json.dumps(sample))
    for _ in range(draw(st.integers(1, 3))):
        place, key = value, None
        parents = []
        while isinstance(place, dict | list) and place and draw(st.integers(0, 2)):
            key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
            parents.append((place, key))
            place = place[key]
        if not parents:
            continue
        parent, key = parents[-1]
        if isinstance(parent, dict) and draw(st.integers(0, 4)) == 0:
            del parent[key]
        else:
            parent[key] = draw(VALUES)
    return value


SECONDS = float(os.environ.get("HEADWISE_FUZZ_SECONDS", "0"))
ROWS = [
    {"text": f"word {i}", "label": f"c{i % 2}", "split": "train" if i % 3 else "validation"}
    for i in range(12)
]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
CONLLU = (
    b"# global.Entity = eid-etype-identity\n# text = Anna ran .\n"
    b"1\tAnna\tAnna\tPROPN\tNNP\tNumber=Sing\t2\tnsubj\t_\tEntity=(1-person-x)\n"
    b"2\tran\trun\tVERB\tVBD\t_\t0\troot\t_\t_\n3\t.\t.\tPUNCT\t.\t_\t2\tpunct\t_\t_\n\n"
) * 2
PROPBANK = {
    "words": ["Anna", "ran"], "upos": ["PROPN", "VERB"], "head": [2, 0], "deprel": ["nsubj", "root"], "ner": ["B-X", "O"],
    "parse": "(S (NP (NNP Anna)) (VP (VBD ran)))", "srl": [{"pred": 1, "roleset": "run.01", "args": [[0, 0, "ARG0"]]}],
}  # fmt: skip
FILES: dict[str, tuple[str, bytes]] = {
    "csv": ("a.csv", pd.DataFrame(ROWS).to_csv(index=False).encode()),
    "tsv": ("a.tsv", pd.DataFrame(ROWS).to_csv(index=False, sep="\t").encode()),
    "jsonl": ("a.jsonl", LINES),
    "json": ("a.json", json.dumps(ROWS).encode()),
    "gz": ("a.jsonl.gz", gzip.compress(LINES, mtime=0)),
    "xz": ("a.jsonl.xz", lzma.compress(LINES)),
    "bz2": ("a.jsonl.bz2", bz2.compress(LINES)),
    "conllu": ("a.conllu", CONLLU),
    "brackets": ("a.ptb", b"(TOP (S (NP-SBJ (NN dog)) (VP (VBD ran) (-NONE- *))))\n" * 2),
    "columns": ("a.conll", b"-DOCSTART- O\n\nAnna B-PER\nran O\n\n" * 2),
    "ontonotes": (
        "a.gold_conll",
        b"#begin document (d); part 000\nd 0 0 Go VB (S(VP*)) go 01 1 - (X) (V*) -\n\n",
    ),
    "propbank": ("p.jsonl", json.dumps(PROPBANK).encode() + b"\n"),
    "senteval": ("s.txt", b"tr\tA\tone two\nva\tB\tthree\nte\tA\tfour\n"),
}
TASKS = {
    "a": {
        "path": "a.csv",
        "text": "text",
        "label": "label",
        "kind": "classes",
        "metric": "accuracy",
        "seed": 1,
        "classes": ["c0", "c1"],
    }
}


def drawn(strategy: Any, check: Callable[[Any], None], count: int, share: float = 1.0) -> None:
    """Draws `count` examples, the same each time; or goes on with new ones for this test's share of the seconds asked for."""

    def body(value: Any) -> None:
        try:
            check(value)
        except HeadwiseError as error:
            str(error).encode()  # it can be printed

    quiet = settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[*HealthCheck],
    )
    end, round_ = time.monotonic() + SECONDS * share, 0
    while True:
        seed(round_)(quiet(given(strategy)(body)))()
        round_ += 1
        if time.monotonic() >= end:
            return
