"""Readers and writers of annotated sentences: CoNLL-U, bracketed trees, CoNLL columns, CoNLL-2012, PropBank
JSON lines.

Each module has `read(path, skip_bad=False) -> list[Sentence]` and `write(sentences, path)`. A malformed
sentence raises an error with file, line and sentence; `skip_bad=True` leaves it out and counts it.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from headwise._base.lazy import Registry
from headwise.errors import HeadwiseError
from headwise.tasks._sentence import Sentence
from headwise.tasks._tables import open_text, suffix
from headwise.tasks.readers import brackets, columns, conllu, ontonotes, propbank
from headwise.tasks.readers.tags import spans_from_tags as spans_from_tags

__all__ = ["READERS", "brackets", "columns", "conllu", "ontonotes", "propbank", "read_sentences"]


def _read_columns(path: Path, **options: Any) -> list[Sentence]:
    """CoNLL columns, CoNLL-2012 if the file begins with "#begin document"."""
    with open_text(path) as handle:
        is_ontonotes = handle.readline().startswith("#begin document")
    if is_ontonotes:
        return ontonotes.read(path, **options)
    return columns.read(path, **options)


READERS: Registry[Callable[..., list[Sentence]]] = Registry(
    "format of annotated sentences, by the ending of its files,",
    {
        ".conllu": conllu.read,
        **dict.fromkeys((".ptb", ".mrg", ".trees"), brackets.read),
        **dict.fromkeys((".conll", ".conll2003", ".bio", ".iob", ".iob2"), _read_columns),
        **dict.fromkeys((".gold_conll", ".v4_gold_conll"), ontonotes.read),
        ".jsonl": propbank.read,  # of tasks about words; else a table
    },
)


def read_sentences(path: str | Path, **options: Any) -> list[Sentence]:
    """Reads annotated sentences in the format its name tells: .conllu, .ptb/.mrg/.trees, .jsonl, .gold_conll;
    else CoNLL columns (CoNLL-2012 if the file begins with "#begin document"). Compressed files too. A .conllu
    file with a .ptb file of the same name beside it gets its trees from there.

    Args:
        path: the file.
        options: passed on to the reader: `skip_bad`, and for columns `columns` and `scheme`, for CoNLL-U
            `mentions`.
    """
    path = Path(path)
    reader: Callable[..., list[Sentence]] = READERS.get(suffix(path), _read_columns)
    sentences = reader(path, **options)
    if suffix(path) == ".conllu":
        base = path.name.split(".conllu")[0]
        beside = [file for file in sorted(path.parent.glob(f"{base}.*")) if holds_trees(file)]
        if beside:
            skip_bad = bool(options.get("skip_bad"))
            return merge(sentences, brackets.read(beside[0], skip_bad=skip_bad), skip_bad=skip_bad)
    return sentences


def holds_trees(path: Path) -> bool:
    """Whether a file holds bracketed trees, which may stand beside a .conllu file of the same sentences."""
    return READERS.get(suffix(path)) is brackets.read


def merge(sentences: list[Sentence], trees: list[Sentence], *, skip_bad: bool = False) -> list[Sentence]:
    """Puts the trees of one file on the sentences of another: both in the same order, and with `skip_bad`
    some may be missing from either. Matching goes by words, so that a tree never lands on another sentence.

    Raises:
        HeadwiseError: without `skip_bad`, the numbers or the words differ.
    """
    if not skip_bad:
        if len(sentences) != len(trees):
            raise HeadwiseError(
                f"{len(sentences)} sentences but {len(trees)} trees ({sentences[0].source}; "
                f"{trees[0].source})"
            )
        return [_with_tree(sentence, tree) for sentence, tree in zip(sentences, trees, strict=True)]
    waiting: dict[str, list[Sentence]] = {}
    for tree in reversed(trees):
        waiting.setdefault(_letters(tree), []).append(tree)
    merged = []
    for sentence in sentences:
        matches = waiting.get(_letters(sentence))
        without_tree = replace(sentence, tree=None)
        try:
            merged.append(_with_tree(sentence, matches.pop()) if matches else without_tree)
        except HeadwiseError:
            merged.append(without_tree)
    return merged


def _letters(sentence: Sentence) -> str:
    return "".join(filter(str.isalnum, "".join(sentence.words)))


def _with_tree(sentence: Sentence, parsed: Sentence) -> Sentence:
    assert parsed.tree is not None
    return replace(sentence, tree=propbank.with_words(parsed.tree, sentence.words, parsed.source))
