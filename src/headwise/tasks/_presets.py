"""The papers' data sets by name: columns, classes, metric, and where they are, on the hub or in a folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError, did_you_mean
from headwise.tasks._ag_pair import ag_pair
from headwise.tasks._kinds import KINDS
from headwise.tasks._sources import folder_files
from headwise.tasks._task import Task

# the hub's own conversion of data sets that come as a script, which is never run
PARQUET = "refs/convert/parquet"


@dataclass(frozen=True)
class Preset:
    """A data set: where it is, and what its columns mean. "a|b" is the first of two columns that is there."""

    hub: str
    text: str | tuple[str, str]
    subset: str | None = None
    label: str = "label"
    kind: str = "classes"
    classes: tuple[str, ...] | None = None
    metric: str | None = None
    folder: str | None = None
    revision: str | None = None
    splits: Mapping[str, str] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


GLUE = "nyu-mll/glue"
NLI = ("entailment", "neutral", "contradiction")
PAIR = ("sentence1", "sentence2")
MATCHED = {"train": "train", "validation": "validation_matched", "test": "test_matched"}
MISMATCHED = {"train": "train", "validation": "validation_mismatched", "test": "test_mismatched"}
HALVES = {"train": 0.4, "validation": 0.1, "test": 0.5}

PRESETS: dict[str, Preset] = {
    "cola": Preset(GLUE, "sentence", "cola", classes=("unacceptable", "acceptable"), metric="matthews"),
    "sst2": Preset(GLUE, "sentence", "sst2", classes=("negative", "positive")),
    "mrpc": Preset(GLUE, PAIR, "mrpc", classes=("not equivalent", "equivalent"), metric="f1"),
    "stsb": Preset(GLUE, PAIR, "stsb", label="score|label", kind="number", metric="spearman"),
    "qqp": Preset(
        GLUE, ("question1", "question2"), "qqp", classes=("not duplicate", "duplicate"), metric="f1"
    ),
    "mnli": Preset(GLUE, ("premise", "hypothesis"), "mnli", classes=NLI, splits=MATCHED),
    "mnli_mm": Preset(GLUE, ("premise", "hypothesis"), "mnli", classes=NLI, splits=MISMATCHED, folder="mnli"),
    "qnli": Preset(GLUE, ("question", "sentence"), "qnli", classes=("entailment", "not entailment")),
    "rte": Preset(GLUE, PAIR, "rte", classes=("entailment", "not entailment")),
    "wnli": Preset(GLUE, PAIR, "wnli", classes=("not entailment", "entailment")),
    "ax": Preset(GLUE, ("premise", "hypothesis"), "ax", classes=NLI),
    "ag_news": Preset("fancyzhx/ag_news", "text", classes=("World", "Sports", "Business", "Sci/Tech")),
    "imdb": Preset(
        "stanfordnlp/imdb",
        "text",
        classes=("negative", "positive"),
        splits={"train": "train", "test": "test"},
    ),
    "snli": Preset(
        "stanfordnlp/snli", ("premise", "hypothesis"), classes=NLI, options={"skip_unlabelled": True}
    ),
    "scitail": Preset(
        "allenai/scitail", ("premise", "hypothesis"), "tsv_format", classes=("entails", "neutral")
    ),
    "sick": Preset("RobZamp/sick", ("sentence_A", "sentence_B"), classes=NLI, revision=PARQUET),
    "sick_relatedness": Preset(
        "RobZamp/sick",
        ("sentence_A", "sentence_B"),
        label="relatedness|relatedness_score",
        kind="number",
        metric="pearson",
        folder="sick",
        revision=PARQUET,
    ),
    "sst5": Preset(
        "SetFit/sst5",
        "sentence|text",
        classes=("very negative", "negative", "neutral", "positive", "very positive"),
    ),
    "blimp": Preset(
        "nyu-mll/blimp",
        ("good|sentence_good", "bad|sentence_bad"),
        "*",
        kind="minimal-pairs",
        options={"group": "phenomenon|UID", "fractions": HALVES},
    ),
    "wnut17": Preset("leondz/wnut_17", "tokens", label="ner_tags|entities", kind="spans", revision=PARQUET),
}
NAMES = (*PRESETS, "ag_pair")
ALIASES = {
    "sst_2": "sst2",
    "sts_b": "stsb",
    "mnli_m": "mnli",
    "ag": "ag_news",
    "agnews": "ag_news",
    "agpair": "ag_pair",
    "sst_5": "sst5",
}
ALIASES |= {"wnut": "wnut17", "wnut_17": "wnut17", "sick_r": "sick_relatedness"}


def preset(
    name: str, path: str | Path | None = None, *, metric: str | None = None, seed: int = 0, **options: Any
) -> Task:
    """A data set of the papers as a task.

    GLUE's metrics are the defaults (CoLA Matthews, MRPC and QQP F1, STS-B Spearman, the others accuracy).

    Args:
        name: one of `tasks.PRESETS` or "ag_pair"; "SST-2", "mnli-mm" and the like are understood.
        path: a folder that holds the set, or a folder of such folders; default: the hub, which needs the
            extra `data`.
        metric: another metric, e.g. "accuracy" as Eq. 5 of the first paper has it.
        seed: of a validation split made from train where the set has none, and of AG-Pair's pairs.
        options: further arguments of `Task`, e.g. `splits` or `revision`.

    Raises:
        HeadwiseError: no such preset, or no such folder.
    """
    key = _key(name)
    if key == "ag_pair":
        return _ag_pair(path, metric, seed)
    if key not in PRESETS:
        raise HeadwiseError(f"no preset {name!r}{did_you_mean(key, NAMES)}; there are: {', '.join(NAMES)}")
    source = PRESETS[key]
    settings: dict[str, Any] = {**source.options, "splits": source.splits}
    if path is None:
        settings |= {"hub": source.hub, "subset": source.subset, "revision": source.revision}
    else:
        folder = find_folder(Path(path), source.folder or key)
        settings |= {"path": folder, "splits": _folder_splits(folder, source.splits)}
    if KINDS[source.kind].labels is not None:
        settings["label"] = source.label
    elif KINDS[source.kind].reads == "words" and path is None:
        settings["label"] = source.label  # on the hub tags are a column; a CoNLL file has its own layer
    settings |= {
        "text": source.text,
        "kind": source.kind,
        "classes": source.classes,
        "metric": metric or source.metric,
        "seed": seed,
    }
    task = Task(key, **{**settings, **options})
    task.metric_given = metric is not None
    return task


def _key(name: str) -> str:
    key = name.lower().replace("-", "_").replace("/", "_").replace("'s", "").replace(" ", "_")
    return ALIASES.get(key, key)


def own_folders(name: str, path: Path) -> dict[str, Path] | None:
    """The folders below `path` that a preset reads, by their names; None if `name` is not a preset or reads
    `path` itself.
    """
    key = _key(name)
    if key == "ag_pair":
        names = ["ag_news", "ag_pair"] if (path / "ag_pair").is_dir() else ["ag_news"]
    elif key in PRESETS:
        names = [PRESETS[key].folder or key]
    else:
        return None
    if not all((path / folder).is_dir() for folder in names):
        return None
    return {folder: path / folder for folder in names}


def presets(path: str | Path | None, names: Sequence[str], **options: Any) -> list[Task]:
    """Several presets from one folder of folders (None: from the hub); `options` as for `preset`."""
    return [preset(name, path, **options) for name in names]


def find_folder(path: Path, name: str) -> Path:
    """`path`/`name` if it is there, else `path` itself if it holds data files."""
    if (path / name).is_dir():
        return path / name
    if path.is_dir() and path.name == name:
        return path
    try:
        folder_files(path)
    except (HeadwiseError, OSError):
        raise HeadwiseError(
            f"no folder {path / name}, and no data files in {path} itself; see the page on data for the "
            "layout"
        ) from None
    return path


def _folder_splits(folder: Path, splits: Mapping[str, str] | None) -> dict[str, str] | None:
    """The splits of a preset that a folder has; files may carry our names (validation) or the hub's
    (validation_matched).
    """
    if splits is None or all(ours == theirs for ours, theirs in splits.items()):
        return None  # what lies in a folder is meant
    files = folder_files(folder)
    present = {ours: theirs for ours, theirs in splits.items() if theirs in files}
    # plain files are the matched ones; from train alone, as for any set, a tenth becomes validation
    plain = all(theirs.endswith("_matched") or theirs == ours for ours, theirs in splits.items())
    if plain:
        present |= {ours: ours for ours in splits if ours in files and ours not in present}
    lacks_validation = "validation" in splits and "validation" not in present
    if lacks_validation and not (plain and files.keys() == {"train"}):
        raise HeadwiseError(f"{folder} has no {splits['validation']} file, only: {', '.join(files)}")
    return present


def _ag_pair(path: str | Path | None, metric: str | None, seed: int) -> Task:
    """AG-Pair from AG's News: pairs are made inside each split; a test file of pairs is used where there is
    one.
    """
    root = None if path is None else Path(path)
    if root is not None and root.name in ("ag_pair", "ag_news"):
        root = root.parent
    news = preset("ag_news", root, seed=seed)
    splits = {split: ag_pair(news.split(split), seed=seed + i) for i, split in enumerate(news.splits)}
    if root is not None and (root / "ag_pair").is_dir() and "test" in folder_files(root / "ag_pair"):
        classes = splits["train"].classes
        file = folder_files(root / "ag_pair")["test"]
        splits["test"] = Task(
            "ag_pair", path={"test": file}, text=("text1", "text2"), kind="classes", classes=classes
        ).split("test")
    return Task.from_examples("ag_pair", splits, metric=metric)
