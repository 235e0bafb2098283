"""Settings of probes, and where probing tasks come from: declared once, without torch."""

from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import field_validator

from headwise.settings import OUT, QUIET, TOKENIZER, TRUST, Settings, option
from headwise.tasks import TaskSource

Source = Literal["senteval", "treebank", "grammar", "tasks"]


Baseline = Literal["random weights", "permuted labels", "fixed offset"]
BASELINES: tuple[Baseline, ...] = get_args(Baseline)


def _without_none(names: Any) -> Any:
    """On the command line `none` stands for an empty list."""
    if not isinstance(names, list | tuple):
        return names
    return tuple(name for name in names if name != "none")


class Generate(Settings):
    """How probing tasks are generated from annotated sentences."""

    per_class: int | None = option(
        None,
        "At most this many training examples per class, and an eighth of that in validation and test; "
        "default: as many as balancing allows.",
        ge=1,
    )
    least: int = option(
        20, "Minimum number of training examples per class; each other split needs one.", ge=1
    )
    words: int = option(1000, "Classes of WordContent at most.", ge=2)
    constituents: int = option(20, "Classes of TopConstituents at most, the last of them OTHER.", ge=2)
    lengths: tuple[tuple[int, int], ...] = option(
        ((5, 8), (9, 12), (13, 16), (17, 20), (21, 25), (26, 28)),
        "The bins of Length, in words; by default SentEval's.",
    )
    seed: int = option(0, "Random seed, also for splits where the source has none.", ge=0)
    fractions: dict[str, float] | None = option(None, "Sizes of those splits; default: 0.8, 0.1 and 0.1.")
    skip_bad: bool = option(False, "Skip and count malformed sentences of a treebank's files.")
    synthetic: bool = option(False, "Mark the tasks as made from generated text.")


class ProbingTasks(TaskSource):
    """Which tasks, and where they come from; without `names`, all there are."""

    source: Source | None = option(
        None,
        "senteval: the ten probing tasks from SentEval's files in the data folder; treebank: the ten "
        "generated from the CoNLL-U or bracketed trees there; grammar: the ten generated from synthetic "
        "sentences; tasks: presets, or tables of the tasks file. Default: tasks if a tasks file or a task "
        "beyond the ten is given, else senteval.",
    )
    size: int = option(6000, "Number of sentences to generate from the grammar.", ge=100)

    @property
    def origin(self) -> str:
        """The source, or its default."""
        if self.source is not None:
            return self.source
        from headwise.probing._senteval import is_known

        return "senteval" if self.file is None and all(map(is_known, self.names)) else "tasks"


class Probe(Settings):
    """How probes are fitted: the `[probing]` table of a recipe."""

    pooling: Literal["cls", "last", "mean"] | None = option(
        None, "Token vectors to use: cls, last (last real token) or mean; default: depends on the model."
    )
    strengths: tuple[float, ...] = option(
        (1e-5, 1e-4, 1e-3, 1e-2, 1e-1), "Candidate L2 strengths λ.", min_length=1
    )
    folds: int | None = option(
        None,
        "Choose by cross-validation on train and validation together; default: by the validation split, and "
        "by five folds of train where a task has no validation split other than its test split.",
        ge=2,
    )
    top: int | None = option(
        None,
        "Number of heads in the top-n embedding; default: heads per layer, the width of a hidden state.",
        ge=1,
    )
    sweep: tuple[int, ...] = option((), "More numbers of heads to try; -1 means 1, 2, 4, … up to all.")
    layers: bool = option(True, "Also probe hidden states.")
    controls: tuple[Literal["labels", "encoder"], ...] = option(
        ("labels",),
        "labels: the same probes on shuffled labels (selectivity); encoder: the same architecture with "
        "random weights; or none.",
    )
    pairs: Literal["compare", "together"] = option(
        "compare",
        "Encode the texts of a pair separately and compare them, [|u-v|; u*v] (compare), or encode them "
        "together (together).",
    )
    estimator: Any = option(
        None,
        "A probe of your own instead of L2-regularised regression: an object with fit(x, y) and predict(x), "
        "as scikit-learn's.",
        live=True,
    )
    examples: int | None = option(None, "At most this many examples per split, drawn at random.", ge=10)
    max_length: int | None = option(
        None,
        "Maximum number of tokens per text; default: as in the model's training, else the tokenizer's limit.",
        ge=1,
    )
    batch_size: int | None = option(
        None, "Examples per batch; the result does not depend on it.", ge=1, decides=False
    )
    dtype: Literal["float16", "float32"] = option(
        "float16", "Precision of recorded vectors; float32 where half precision overflows."
    )
    tolerance: float = option(1e-3, "Convergence tolerance of a fit; see `headwise.probing.fit`.", gt=0)
    seed: int = option(0, "Random seed for samples, folds and controls.", ge=0)
    device: str | None = option(
        None,
        "Device for the model and the fits: cpu, cuda, …; default: the model's device, else a GPU if there "
        "is one.",
        decides=False,
    )
    folder: str | Path | None = option(
        None, "Folder in which recordings are kept and reused; default: none.", live=True
    )
    tokenizer: Any = TOKENIZER
    quiet: bool = QUIET
    trust_remote_code: bool = TRUST

    without_none = field_validator("controls", mode="before")(_without_none)

    @field_validator("estimator")
    @classmethod
    def _fits(cls, estimator: Any) -> Any:
        methods = [getattr(estimator, name, None) for name in ("fit", "predict")]
        if estimator is not None and not all(map(callable, methods)):
            raise ValueError(f"a {type(estimator).__name__} has no fit(x, y) and predict(x)")
        return estimator


class Probing(Probe):
    """Settings of `headwise.probe`: those of a recipe, and where the result is kept."""

    out: Path | None = OUT


class Profiling(Settings):
    """Settings of `headwise.probing.profile`: parameter-free probes of word-level tasks."""

    baselines: tuple[Baseline, ...] = option(
        BASELINES,
        "random weights: the same architecture; permuted labels: the same model; fixed offset: for arcs, a "
        "fixed distance between words. Each chooses its best head (or distance) per label on validation, as "
        "the model does. Or none.",
    )
    examples: int | None = option(None, "At most this many sentences per split, drawn at random.", ge=1)
    batch_size: int = option(
        32, "Sentences per batch; the result does not depend on it.", ge=1, decides=False
    )
    max_length: int | None = option(
        None, "Maximum number of tokens per window; longer sentences are split into windows.", ge=1
    )
    seed: int = option(0, "Random seed for samples, random weights and shuffles.", ge=0)
    tokenizer: Any = TOKENIZER
    quiet: bool = QUIET
    trust_remote_code: bool = TRUST

    without_none = field_validator("baselines", mode="before")(_without_none)
