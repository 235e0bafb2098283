"""The five structured tasks of one annotated source: POS, NER, DEP, CON, SRL."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError
from headwise.tasks._builders import word_level
from headwise.tasks._sentence import Sentence, has_layer
from headwise.tasks._splits import VALIDATION_SHARE, by_fraction, text_key
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
        source: a file or folder of annotated sentences (see `tasks.readers`), {split: file}, {split:
            sentences}, or sentences (divided 80/10/10 by seed).
        layers: which of pos, xpos, ner, dep, tree-dep, con, srl; they name the tasks. "pos" is the universal
            parts of speech, and the treebank's own (xpos) where the training sentences have no others, as in
            CoNLL-2012 files; "tree-dep" makes dependencies of constituency trees (`with_dependencies`).
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
    train = splits.get("train", [])
    for layer in layers:
        kind, attributes, metric = LAYERS[layer]
        annotated = [name for name in attributes if has_layer(train, name)]
        if not annotated:
            remedy = "leave it out of layers="
            if layer == "dep" and has_layer(train, "tree"):
                remedy = "'tree-dep' makes dependencies of their constituency trees"
            raise HeadwiseError(
                f"no training sentence has the layer {layer!r} ({', '.join(attributes)}); {remedy}"
            )
        examples = word_level(splits, kind, annotated[0], None)
        tasks.append(Task.from_examples(layer, examples, metric=metric, synthetic=synthetic))
    return tasks


def _sentences(source: Any, *, seed: int, **options: Any) -> dict[str, list[Sentence]]:
    """The sentences of a source by split; where it has no validation, a tenth of train, the same for every
    layer.
    """
    paths = source.values() if isinstance(source, Mapping) else [source]
    if all(isinstance(path, str | Path) for path in paths):
        options["path"] = source
    else:
        options["data"] = source
    reader = Task("structured", text="words", kind="tags", seed=seed, **options)
    if isinstance(source, str | Path):
        reader.name = str(source)  # in messages
    sentences = {}
    for split, table in reader._read().items():
        if table.sentences is None:
            raise HeadwiseError(
                f"{table.origin} holds no annotated sentences; "
                "expected CoNLL-U, CoNLL columns, brackets, JSON lines, or Sentences"
            )
        sentences[split] = table.sentences
    if "train" in sentences and "validation" not in sentences:
        train = sentences["train"]
        keys = (text_key([" ".join(sentence.words)]) for sentence in train)
        for split, rows in by_fraction(keys, VALIDATION_SHARE, seed).items():
            sentences[split] = [train[i] for i in rows]
    return sentences
