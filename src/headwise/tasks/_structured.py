"""The five structured tasks of one annotated source: POS, NER, DEP, CON, SRL."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headwise.errors import HeadwiseError
from headwise.tasks._builders import word_level
from headwise.tasks._sentence import Sentence
from headwise.tasks._splits import by_fraction, text_key
from headwise.tasks._task import Task

# layer -> kind, layers of Sentence, the first of which that training sentences have is read, metric
LAYERS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "pos": ("tags", ("upos", "xpos"), "count-accuracy"),
    "xpos": ("tags", ("xpos",), "count-accuracy"),
    "ner": ("spans", ("entities",), "count-f1"),
    "dep": ("dependencies", ("heads",), "las"),
    "tree-dep": ("dependencies", ("tree",), "las"),
    "con": ("constituents", ("tree",), "count-f1"),
    "srl": ("roles", ("roles",), "count-f1"),
}


def structured(
    source: str | Path | Mapping[str, Any] | Sequence[Sentence],
    layers: Sequence[str] = ("pos", "ner", "dep", "con", "srl"),
    *,
    skip_bad: bool = False,
    seed: int = 0,
    synthetic: bool = False,
    **reading: Any,
) -> list[Task]:
    """One task per layer, read once. Each task has the sentences that carry its layer.

    Args:
        source: a file or folder of annotated sentences (see `tasks.readers`), {split: file}, {split: sentences}, or sentences
            (divided 80/10/10 by seed).
        layers: which of pos, xpos, ner, dep, tree-dep, con, srl; they name the tasks. "pos" is the universal parts of speech, and the
            treebank's own (xpos) where the training sentences have no others, as in CoNLL-2012 files; "tree-dep" makes dependencies of
            constituency trees (`with_dependencies`).
        skip_bad: leave out malformed sentences and count them.
        seed: of the division, where the source has no splits.
        synthetic: whether the text was generated.
        reading: further options of the readers (`columns`, `scheme`, `mentions`).

    Raises:
        HeadwiseError: an unknown layer, or one that no sentence has.
    """
    unknown = [layer for layer in layers if layer not in LAYERS]
    if unknown:
        raise HeadwiseError(f"unknown layer {unknown[0]!r}; expected some of {', '.join(LAYERS)}")
    splits = _sentences(source, seed=seed, skip_bad=skip_bad, reading=reading)
    tasks = []
    for layer in layers:
        kind, attributes, metric = LAYERS[layer]
        train = splits.get("train", [])
        attribute = next(
            (name for name in attributes if any(getattr(s, name) is not None for s in train)), None
        )
        if attribute is None:
            trees = layer == "dep" and any(sentence.tree is not None for sentence in train)
            remedy = (
                "'tree-dep' makes dependencies of their constituency trees"
                if trees
                else "leave it out of layers="
            )
            raise HeadwiseError(
                f"no training sentence has the layer {layer!r} ({', '.join(attributes)}); {remedy}"
            )
        found = word_level(splits, kind, attribute, None)
        tasks.append(Task.of(layer, found, metric=metric, synthetic=synthetic))
    return tasks


def _sentences(source: Any, **given: Any) -> dict[str, list[Sentence]]:
    """The sentences of a source by split; where it has no validation, a tenth of train, the same for every layer."""
    files = isinstance(source, str | Path) or (
        isinstance(source, Mapping) and all(isinstance(one, str | Path) for one in source.values())
    )
    reader = Task("structured", **{"path" if files else "data": source}, text="words", kind="tags", **given)
    reader.name = str(source) if isinstance(source, str | Path) else reader.name  # in messages
    raw = reader._read()
    bad = [part.origin for part in raw.values() if part.sentences is None]
    if bad:
        raise HeadwiseError(
            f"{bad[0]} holds no annotated sentences; expected CoNLL-U, CoNLL columns, brackets, JSON lines, or Sentences"
        )
    found = {split: part.sentences or [] for split, part in raw.items()}
    if "train" in found and "validation" not in found:
        every = found["train"]
        parts = by_fraction(
            [text_key([" ".join(s.words)]) for s in every], {"train": 0.9, "validation": 0.1}, given["seed"]
        )
        found |= {split: [every[i] for i in np.sort(rows)] for split, rows in parts.items()}
    return found
