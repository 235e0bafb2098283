"""JSON lines with PropBank roles and up to four more layers: words, upos, xpos, head, deprel, ner, parse, srl.

head is 1-based with 0 for the root; ner holds BIO tags; parse is a bracketed tree;
srl is a list of {"pred": word, "roleset": sense, "args": [[first, last (inclusive), role], ...]}, word numbers from 0.
Layers may be missing or null.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError
from headwise.tasks.files import open_text
from headwise.tasks.readers import brackets
from headwise.tasks.readers.blocks import check_heads, check_roles, gather
from headwise.tasks.readers.tags import spans_from_tags, tags_from_spans
from headwise.tasks.sentence import Predicate, Sentence, Span, Tree


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
    try:
        row = json.loads(line)
        words = tuple(row["words"])
    except (ValueError, KeyError, TypeError) as error:
        raise HeadwiseError(f"{where}: expected a JSON object with words: {error!r}") from error
    if not words or not all(isinstance(word, str) and word for word in words):
        raise HeadwiseError(f"{where}: words must be a list of non-empty strings, got {list(words)!r}")
    layers: dict[str, Any] = {}
    for name in ("upos", "xpos", "head", "deprel", "ner", "lemma", "feats"):
        layers[name] = row.get(name)
        if layers[name] is not None and len(layers[name]) != len(words):
            raise HeadwiseError(f"{where}: {len(words)} words but {len(layers[name])} values of {name}")
    if layers["head"] is not None:
        check_heads(layers["head"], where)
    roles = None if row.get("srl") is None else tuple(_predicate(entry, where) for entry in row["srl"])
    check_roles(roles or (), len(words), where)
    return Sentence(
        words,
        **{name: None if layers[key] is None else tuple(layers[key]) for name, key in _KEYS.items()},  # type: ignore[arg-type]
        entities=None if layers["ner"] is None else tuple(spans_from_tags(layers["ner"], "bio", where)),
        tree=None if row.get("parse") is None else with_words(brackets.parse(row["parse"], where), words, where),
        roles=roles,
        text=row.get("text") or "",
        id=str(row.get("id") or ""),
        source=where,
    )


_KEYS = {"upos": "upos", "xpos": "xpos", "heads": "head", "deprels": "deprel", "lemmas": "lemma", "feats": "feats"}


def _predicate(entry: Any, where: str) -> Predicate:
    try:
        spans = (Span(int(first), int(last) + 1, str(role)) for first, last, role in entry["args"])
        kept = tuple(span for span in spans if span.label not in ("V", "C-V"))
        return Predicate(int(entry["pred"]), entry.get("roleset"), kept)
    except (KeyError, TypeError, ValueError) as error:
        raise HeadwiseError(f"{where}: expected {{pred, roleset, args: [[first, last, role]]}}, got {entry!r}") from error


def with_words(tree: Tree, words: tuple[str, ...], where: str) -> Tree:
    """The tree over `words`, which may differ from its own in the way brackets and quotes are written, but not in number."""
    plain = brackets.without_traces(tree)
    own = () if plain is None else plain.words()
    if plain is None or len(own) != len(words):
        raise HeadwiseError(f"{where}: the tree has {len(own)} words, the sentence {len(words)}")
    different = [(a, b) for a, b in zip(own, words, strict=True) if a != b and a.replace("\\", "") != b and not _quotes(a, b)]
    if different:
        raise HeadwiseError(f"{where}: the tree has the word {different[0][0]!r} where the sentence has {different[0][1]!r}")
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
    with open(path, "w", encoding="utf-8") as handle:
        for sentence in sentences:
            row: dict[str, Any] = {"id": sentence.id, "text": str(sentence), "words": sentence.words}
            row |= {key: getattr(sentence, name) for name, key in _KEYS.items() if getattr(sentence, name) is not None}
            if sentence.entities is not None:
                row["ner"] = tags_from_spans(sentence.entities, len(sentence))
            if sentence.tree is not None:
                row["parse"] = brackets.bracketed(sentence.tree)
            if sentence.roles is not None:
                row["srl"] = [_entry(predicate) for predicate in sentence.roles]
            handle.write(json.dumps(row, ensure_ascii=False) + "\n")


def _entry(predicate: Predicate) -> dict[str, Any]:
    spans = sorted([Span(predicate.index, predicate.index + 1, "V"), *predicate.arguments])
    return {"pred": predicate.index, "roleset": predicate.sense, "args": [[a, b - 1, role] for a, b, role in spans]}
