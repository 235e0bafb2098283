"""JSON lines with PropBank roles and up to four more layers: words, upos, xpos, head, deprel, ner, parse,
srl.

head is 1-based with 0 for the root; ner holds BIO tags; parse is a bracketed tree;
srl is a list of {"pred": word, "roleset": sense, "args": [[first, last (inclusive), role], ...]}, word
numbers from 0. Layers may be missing or null.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from headwise._base.names import shown, writable
from headwise._base.parsing import parse_json
from headwise._base.writing import new_text
from headwise.errors import HeadwiseError
from headwise.tasks._sentence import Predicate, Sentence, Span, Tree
from headwise.tasks._tables import open_text
from headwise.tasks.readers import brackets
from headwise.tasks.readers.blocks import check_heads, check_roles, gather
from headwise.tasks.readers.tags import spans_from_tags, tags_from_spans


def read(path: str | Path, *, skip_bad: bool = False) -> list[Sentence]:
    """Reads a JSON-lines file; arguments labelled V or C-V, which mark the predicate itself, become its word
    alone.

    Raises:
        HeadwiseError: not JSON, layers of another length than the words, two roots, a cycle, spans outside
            the sentence, a tree over other words; by file, line and sentence.
    """
    path = Path(path)
    return gather(_lines(path), _sentence, skip_bad, path)


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    number = 0
    with open_text(path) as handle:
        for line_number, line in enumerate(handle, 1):
            if line.strip():
                number += 1
                yield f"{path}, line {line_number} (sentence {number})", line


def _sentence(source: tuple[str, str]) -> Sentence:
    where, line = source
    row = parse_json(line, f"{where}: the line")
    if not isinstance(row, dict) or "words" not in row:
        raise HeadwiseError(f"{where}: expected a JSON object with words, got {shown(row)}")
    words = _strings(row["words"])
    if not words or not all(words):
        raise HeadwiseError(f"{where}: words must be a list of non-empty strings, got {shown(row['words'])}")
    layers: dict[str, Any] = {}
    for layer, key in _KEYS.items():
        layers[layer] = _layer(row, key, len(words), where)
    tags = _layer(row, "ner", len(words), where)
    for key in ("parse", "text"):
        if row.get(key) is not None and not (isinstance(row[key], str) and writable(row[key])):
            raise HeadwiseError(f"{where}: {key} must be text, got {shown(row[key])}")
    if not isinstance(row.get("srl"), list | None):
        raise HeadwiseError(f"{where}: srl must be a list, got {shown(row['srl'])}")
    if layers["heads"] is not None:
        check_heads(layers["heads"], where)
    if row.get("srl") is not None:
        layers["roles"] = tuple(_predicate(entry, where) for entry in row["srl"])
        check_roles(layers["roles"], len(words), where)
    if tags is not None:
        layers["entities"] = tuple(spans_from_tags(tags, "bio", where))
    if row.get("parse") is not None:
        layers["tree"] = with_words(brackets.parse(row["parse"], where), words, where)
    return Sentence(words, **layers, text=row.get("text") or "", id=str(row.get("id") or ""), source=where)


def _layer(row: dict[str, Any], key: str, size: int, where: str) -> tuple[Any, ...] | None:
    """The values of a layer, one a word; None where the sentence has none."""
    values = row.get(key)
    if values is None:
        return None
    layer: tuple[Any, ...] | None
    if key == "head":
        layer, expected = _whole_numbers(values), "whole numbers"
    else:
        layer, expected = _strings(values), "strings"
    if layer is None:
        raise HeadwiseError(f"{where}: {key} must be a list of {expected}, got {shown(values)}")
    if len(layer) != size:
        raise HeadwiseError(f"{where}: {size} words but {len(layer)} values of {key}")
    return layer


def _strings(values: Any) -> tuple[str, ...] | None:
    """A list as strings; None where it is anything else."""
    if not isinstance(values, list) or not all(
        isinstance(value, str) and writable(value) for value in values
    ):
        return None
    return tuple(values)


def _whole_numbers(values: Any) -> tuple[int, ...] | None:
    """A list as whole numbers; None where it is anything else."""
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        return None
    return tuple(values)


_KEYS = {  # layer -> its key in a row
    "upos": "upos",
    "xpos": "xpos",
    "heads": "head",
    "deprels": "deprel",
    "lemmas": "lemma",
    "feats": "feats",
}


def _predicate(entry: Any, where: str) -> Predicate:
    try:
        index, sense = entry["pred"], entry.get("roleset") or ""
        spans = [(first, last, role) for first, last, role in entry["args"]]
    except (KeyError, TypeError, ValueError):
        index, sense, spans = None, "", []
    numbers, texts = [index], [sense]
    for first, last, role in spans:
        numbers += [first, last]
        texts.append(role)
    if _whole_numbers(numbers) is None or _strings(texts) is None:
        raise HeadwiseError(
            f"{where}: expected {{pred, roleset, args: [[first, last, role]]}}, got {shown(entry)}"
        )
    arguments = (Span(first, last + 1, role) for first, last, role in spans if role not in ("V", "C-V"))
    return Predicate(index, sense or None, tuple(arguments))


def with_words(tree: Tree, words: tuple[str, ...], where: str) -> Tree:
    """The tree over `words`, which may differ from the tree's in the way brackets and quotes are written, but
    not in number.
    """
    plain = brackets.without_traces(tree)
    tree_words = () if plain is None else plain.words()
    if plain is None or len(tree_words) != len(words):
        raise HeadwiseError(f"{where}: the tree has {len(tree_words)} words, the sentence {len(words)}")
    for tree_word, word in zip(tree_words, words, strict=True):
        are_quotes = set(tree_word + word) <= set("\"'`“”‘’")
        if word not in (tree_word, tree_word.replace("\\", "")) and not are_quotes:
            raise HeadwiseError(
                f"{where}: the tree has the word {tree_word!r} where the sentence has {word!r}"
            )
    next_word = iter(words).__next__

    def renew(node: Tree) -> Tree:
        if not node.children:
            return Tree(node.label, (), next_word())
        return Tree(node.label, tuple(renew(child) for child in node.children))

    return renew(plain)


def write(sentences: Iterable[Sentence], path: str | Path) -> None:
    """Writes JSON lines that `read` gives back."""
    with new_text(path) as handle:
        for sentence in sentences:
            row: dict[str, Any] = {"id": sentence.id, "text": str(sentence), "words": sentence.words}
            for layer, key in _KEYS.items():
                if getattr(sentence, layer) is not None:
                    row[key] = getattr(sentence, layer)
            if sentence.entities is not None:
                row["ner"] = tags_from_spans(sentence.entities, len(sentence))
            if sentence.tree is not None:
                row["parse"] = brackets.bracketed(sentence.tree)
            if sentence.roles is not None:
                row["srl"] = [_entry(predicate) for predicate in sentence.roles]
            handle.write(json.dumps(row, ensure_ascii=False) + "\n")


def _entry(predicate: Predicate) -> dict[str, Any]:
    spans = sorted([Span(predicate.index, predicate.index + 1, "V"), *predicate.arguments])
    return {
        "pred": predicate.index,
        "roleset": predicate.sense,
        "args": [[a, b - 1, role] for a, b, role in spans],
    }
