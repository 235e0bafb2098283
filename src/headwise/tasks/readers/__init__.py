"""Readers and writers of annotated sentences: CoNLL-U, bracketed trees, CoNLL columns, CoNLL-2012, PropBank JSON lines.

Each module has `read(path, skip_bad=False) -> list[Sentence]` and `write(sentences, path)`. A malformed sentence raises an error with
file, line and sentence; `skip_bad=True` leaves it out and counts it.
"""

from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError
from headwise.tasks._sentence import Sentence
from headwise.tasks._tables import open_text, suffix
from headwise.tasks.readers import brackets, columns, conllu, ontonotes, propbank
from headwise.tasks.readers.tags import spans_from_tags, tags_from_spans

__all__ = [
    "brackets",
    "columns",
    "conllu",
    "merge",
    "ontonotes",
    "propbank",
    "read_sentences",
    "spans_from_tags",
    "tags_from_spans",
]

READERS = {
    ".conllu": conllu.read,
    ".ptb": brackets.read,
    ".mrg": brackets.read,
    ".trees": brackets.read,
    ".jsonl": propbank.read,
}
READERS |= {".gold_conll": ontonotes.read, ".v4_gold_conll": ontonotes.read}


def read_sentences(path: str | Path, **options: Any) -> list[Sentence]:
    """Reads annotated sentences in the format its name tells: .conllu, .ptb/.mrg/.trees, .jsonl, .gold_conll; else CoNLL columns
    (CoNLL-2012 if the file begins with "#begin document"). Compressed files too. A .conllu file with a .ptb file of the same name
    beside it gets its trees from there.

    Args:
        path: the file.
        options: passed on to the reader: `skip_bad`, and for columns `columns` and `scheme`, for CoNLL-U `mentions`.
    """
    where = Path(path)
    reader = READERS.get(suffix(where))
    if reader is None:
        with open_text(where) as handle:
            reader = ontonotes.read if handle.readline().startswith("#begin document") else columns.read
    sentences: list[Sentence] = reader(where, **options)
    if suffix(where) == ".conllu":
        base = where.name.split(".conllu")[0]
        beside = [
            file
            for file in sorted(where.parent.glob(f"{base}.*"))
            if suffix(file) in (".ptb", ".mrg", ".trees")
        ]
        if beside:
            return merge(
                sentences,
                brackets.read(beside[0], skip_bad=bool(options.get("skip_bad"))),
                skip_bad=bool(options.get("skip_bad")),
            )
    return sentences


def merge(sentences: list[Sentence], trees: list[Sentence], *, skip_bad: bool = False) -> list[Sentence]:
    """Puts the trees of one file on the sentences of another: both in the same order, and with `skip_bad` some may be missing
    from either. Matching goes by words, so that a tree never lands on another sentence.

    Raises:
        HeadwiseError: without `skip_bad`, the numbers or the words differ.
    """
    from dataclasses import replace

    if not skip_bad:
        if len(sentences) != len(trees):
            raise HeadwiseError(
                f"{len(sentences)} sentences but {len(trees)} trees ({sentences[0].source}; {trees[0].source})"
            )
        return [_with_tree(sentence, tree) for sentence, tree in zip(sentences, trees, strict=True)]
    waiting: dict[str, list[Sentence]] = {}
    for tree in reversed(trees):
        waiting.setdefault(_letters(tree), []).append(tree)
    found = []
    for sentence in sentences:
        matches = waiting.get(_letters(sentence))
        try:
            found.append(_with_tree(sentence, matches.pop()) if matches else replace(sentence, tree=None))
        except HeadwiseError:
            found.append(replace(sentence, tree=None))
    return found


def _letters(sentence: Sentence) -> str:
    return "".join(char for word in sentence.words for char in word if char.isalnum())


def _with_tree(sentence: Sentence, other: Sentence) -> Sentence:
    from dataclasses import replace

    assert other.tree is not None
    return replace(sentence, tree=propbank.with_words(other.tree, sentence.words, other.source))
