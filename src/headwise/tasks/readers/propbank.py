"""JSON lines with PropBank roles and up to four more layers: words, upos, xpos, head, deprel, ner, parse, srl.

head is 1-based with 0 for the root; ner holds BIO tags; parse is a bracketed tree;
srl is a list of {"pred": word, "roleset": sense, "args": [[first, last (inclusive), role], ...]}, word numbers from 0.
Layers may be missing or null.
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
    """Reads a JSON-lines file; arguments labelled V or C-V, which mark the predicate itself, become its word alone.

    Raises:
        HeadwiseError: not JSON, layers of another length than the words, two roots, a cycle, spans outside the sentence, a tree over
            other words; by file, line and sentence.
    """
    where = Path(path)
    return gather(_lines(where), _sentence, skip_bad, where)


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    number = 0
    with open_text(path) as handle:
        for place, line in enumerate(handle, 1):
            if line.strip():
                number += 1
                yield f"{path}, line {place} (sentence {number})", line


def _sentence(item: tuple[str, str]) -> Sentence:
    where, line = item
    row = parse_json(line, f"{where}: the line")
    if not isinstance(row, dict) or "words" not in row:
        raise HeadwiseError(f"{where}: expected a JSON object with words, got {shown(row)}")
    words = _strings(row["words"])
    if not words or not all(words):
        raise HeadwiseError(f"{where}: words must be a list of non-empty strings, got {shown(row['words'])}")
    layers: dict[str, Any] = {}
    for name in ("upos", "xpos", "head", "deprel", "ner", "lemma", "feats"):
        given = row.get(name)
        layers[name] = given if given is None else _whole(given) if name == "head" else _strings(given)
        if given is not None and layers[name] is None:
            wanted = "whole numbers" if name == "head" else "strings"
            raise HeadwiseError(f"{where}: {name} must be a list of {wanted}, got {shown(given)}")
        if given is not None and len(given) != len(words):
            raise HeadwiseError(f"{where}: {len(words)} words but {len(given)} values of {name}")
    for name, kind in (("parse", str), ("text", str), ("srl", list)):
        if row.get(name) is not None and (
            not isinstance(row[name], kind) or (kind is str and not writable(row[name]))
        ):
            raise HeadwiseError(
                f"{where}: {name} must be {'text' if kind is str else 'a list'}, got {shown(row[name])}"
            )
    if layers["head"] is not None:
        check_heads(layers["head"], where)
    roles = None if row.get("srl") is None else tuple(_predicate(entry, where) for entry in row["srl"])
    check_roles(roles or (), len(words), where)
    return Sentence(
        words,
        **{name: layers[key] for name, key in _KEYS.items()},
        entities=None if layers["ner"] is None else tuple(spans_from_tags(layers["ner"], "bio", where)),
        tree=None
        if row.get("parse") is None
        else with_words(brackets.parse(row["parse"], where), words, where),
        roles=roles,
        text=row.get("text") or "",
        id=str(row.get("id") or ""),
        source=where,
    )


def _strings(given: Any) -> tuple[str, ...] | None:
    fine = isinstance(given, list) and all(isinstance(one, str) and writable(one) for one in given)
    return tuple(given) if fine else None


def _whole(given: Any) -> tuple[int, ...] | None:
    return tuple(given) if isinstance(given, list) and all(type(one) is int for one in given) else None


_KEYS = {
    "upos": "upos",
    "xpos": "xpos",
    "heads": "head",
    "deprels": "deprel",
    "lemmas": "lemma",
    "feats": "feats",
}


def _predicate(entry: Any, where: str) -> Predicate:
    try:
        numbers = _whole(
            [entry["pred"], *(number for first, last, _ in entry["args"] for number in (first, last))]
        )
        texts = _strings([entry.get("roleset") or "", *(role for _, _, role in entry["args"])])
    except (KeyError, TypeError, ValueError):
        numbers = texts = None
    if numbers is None or texts is None:
        raise HeadwiseError(
            f"{where}: expected {{pred, roleset, args: [[first, last, role]]}}, got {shown(entry)}"
        )
    spans = (Span(first, last + 1, role) for first, last, role in entry["args"])
    return Predicate(
        numbers[0], texts[0] or None, tuple(span for span in spans if span.label not in ("V", "C-V"))
    )


def with_words(tree: Tree, words: tuple[str, ...], where: str) -> Tree:
    """The tree over `words`, which may differ from its own in the way brackets and quotes are written, but not in number."""
    plain = brackets.without_traces(tree)
    own = () if plain is None else plain.words()
    if plain is None or len(own) != len(words):
        raise HeadwiseError(f"{where}: the tree has {len(own)} words, the sentence {len(words)}")
    different = [
        (a, b)
        for a, b in zip(own, words, strict=True)
        if a != b and a.replace("\\", "") != b and not _quotes(a, b)
    ]
    if different:
        raise HeadwiseError(
            f"{where}: the tree has the word {different[0][0]!r} where the sentence has {different[0][1]!r}"
        )
    left = iter(words)

    def renew(node: Tree) -> Tree:
        if not node.children:
            return Tree(node.label, (), next(left))
        return Tree(node.label, tuple(renew(child) for child in node.children))

    return renew(plain)


def _quotes(one: str, other: str) -> bool:
    return set(one + other) <= set("\"'`“”‘’")


def write(sentences: Iterable[Sentence], path: str | Path) -> None:
    """Writes JSON lines that `read` gives back."""
    with new_text(path) as handle:
        for sentence in sentences:
            row: dict[str, Any] = {"id": sentence.id, "text": str(sentence), "words": sentence.words}
            row |= {
                key: getattr(sentence, name)
                for name, key in _KEYS.items()
                if getattr(sentence, name) is not None
            }
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
