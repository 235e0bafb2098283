"""Metrics: from a table with one row per example to one number, so that any resample of the rows can be
scored.

What a row holds (`predictions`), by kind of task:

| kind | predictions | default metric |
|---|---|---|
| classes, minimal-pairs | (n,) class number | accuracy |
| number | (n,) float | spearman |
| tags, spans, constituents, roles | (n, 3) counts: correct, predicted, gold | count-accuracy (tags), count-f1
| | dependencies | (n, 4) counts: correct arcs with label, words, words, correct arcs | las |
| contrast | (n,) float: logit of the right answer minus that of the wrong one | logit-difference |
| next-token, masked-token | (n, 4): tokens right, tokens, their summed nll (nats), their bytes |
token-accuracy |

All are on a scale where 1 is perfect and higher is better, except `perplexity`, `bits-per-byte` and
`logit-difference` (any number; 0 where the two answers are as likely).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from headwise._base.lazy import Registry
from headwise.errors import HeadwiseError, did_you_mean
from headwise.tasks._kinds import KINDS

Array = NDArray[Any]


def accuracy(predictions: Array, labels: Array) -> float:
    """Share of class numbers that agree."""
    return float(np.mean(predictions == labels))


def f1(predictions: Array, labels: Array) -> float:
    """F1 of class 1 (MRPC, QQP); 0 where there is no true positive."""
    right = np.sum((predictions == 1) & (labels == 1))
    return _ratio(2 * right, np.sum(predictions == 1) + np.sum(labels == 1))


def macro_f1(predictions: Array, labels: Array) -> float:
    """Unweighted mean of the F1 of every class that occurs in either."""
    return float(_macro_f1_of(_confusion(predictions, labels)))


def matthews(predictions: Array, labels: Array) -> float:
    """Matthews correlation, for any number of classes (CoLA); 0 where either side is constant."""
    return float(_matthews_of(_confusion(predictions, labels)))


def pearson(predictions: Array, labels: Array) -> float:
    """Pearson correlation; 0 where either side is constant."""
    if np.ptp(predictions) == 0 or np.ptp(labels) == 0:
        return 0.0
    x, y = predictions - predictions.mean(), labels - labels.mean()
    return float((x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum()))


def spearman(predictions: Array, labels: Array) -> float:
    """Spearman correlation with average ranks (STS-B)."""
    return pearson(scipy.stats.rankdata(predictions), scipy.stats.rankdata(labels))


def count_accuracy(predictions: Array, labels: Array) -> float:
    """Correct words over all words, from counts (correct, predicted, gold)."""
    return _ratio(predictions[:, 0].sum(), predictions[:, 2].sum())


def count_f1(predictions: Array, labels: Array) -> float:
    """Micro F1 from counts: 2 correct ÷ (predicted + gold); 1 where there is nothing to find and nothing was
    found.
    """
    correct, predicted, gold = predictions[:, :3].sum(0)
    return _ratio(2 * correct, predicted + gold, empty=1.0)


def las(predictions: Array, labels: Array) -> float:
    """Labelled attachment: words with the right head and relation over the words counted."""
    return _ratio(predictions[:, 0].sum(), predictions[:, 2].sum())


def uas(predictions: Array, labels: Array) -> float:
    """Unlabelled attachment: words with the right head over the words counted."""
    return _ratio(predictions[:, 3].sum(), predictions[:, 2].sum())


def token_accuracy(predictions: Array, labels: Array) -> float:
    """Tokens whose most probable prediction is right, over all predicted tokens."""
    return _ratio(predictions[:, 0].sum(), predictions[:, 1].sum())


def perplexity(predictions: Array, labels: Array) -> float:
    """exp of the mean negative log-likelihood per token; lower is better."""
    return float(np.exp(_ratio(predictions[:, 2].sum(), predictions[:, 1].sum())))


def bits_per_byte(predictions: Array, labels: Array) -> float:
    """Summed negative log-likelihood in bits over the UTF-8 bytes that the predicted tokens stand for; lower
    is better.

    Unlike perplexity it compares models whose tokens differ.

    Raises:
        HeadwiseError: the bytes are not known.
    """
    if not predictions[:, 3].sum():
        raise HeadwiseError(
            "bits-per-byte needs to know the bytes of each token: the texts must be read by a fast tokenizer"
        )
    return float(predictions[:, 2].sum() / np.log(2) / predictions[:, 3].sum())


def logit_difference(predictions: Array, labels: Array) -> float:
    """Mean difference of the logits of the right answer and the wrong one."""
    return float(np.mean(predictions))


def _ratio(count: float, total: float, empty: float = 0.0) -> float:
    """The share of a count in a total; `empty` where there is none."""
    return float(count / total) if total else empty


def _confusion(predictions: Array, labels: Array) -> NDArray[np.float64]:
    """Counts (true class, predicted class)."""
    cells, size = _cells(predictions, labels)
    return np.bincount(cells, minlength=size * size).reshape(size, size).astype(np.float64)


def _cells(predictions: Array, labels: Array) -> tuple[NDArray[np.int64], int]:
    """Each example's cell in the flat table (true class, predicted class), and the number of classes."""
    guess, true = predictions.astype(np.int64), labels.astype(np.int64)
    size = int(max(guess.max(initial=0), true.max(initial=0))) + 1
    return true * size + guess, size


def _f1_of(table: NDArray[np.float64]) -> NDArray[np.float64]:
    if table.shape[-1] < 2:
        return np.zeros(table.shape[:-2])
    total = table[..., 1, :].sum(-1) + table[..., :, 1].sum(-1)
    return np.asarray(np.divide(2 * table[..., 1, 1], total, out=np.zeros_like(total), where=total > 0))


def _macro_f1_of(table: NDArray[np.float64]) -> NDArray[np.float64]:
    total = table.sum(-1) + table.sum(-2)  # (..., classes)
    right = np.diagonal(table, axis1=-2, axis2=-1)
    scores = np.divide(2 * right, total, out=np.zeros_like(total), where=total > 0)
    return np.asarray(scores.sum(-1) / (total > 0).sum(-1))


def _matthews_of(table: NDArray[np.float64]) -> NDArray[np.float64]:
    size, right = table.sum((-2, -1)), np.trace(table, axis1=-2, axis2=-1)
    guessed, true = table.sum(-2), table.sum(-1)
    spread = (size**2 - (guessed**2).sum(-1)) * (size**2 - (true**2).sum(-1))
    above = right * size - (guessed * true).sum(-1)
    root = np.sqrt(np.maximum(spread, 0))
    return np.asarray(np.divide(above, root, out=np.zeros_like(above), where=spread > 0))


MOST_CLASSES = 32  # whose counts are made for many resamples at once


class Metric(NamedTuple):
    """A metric of predictions and labels.

    Attributes:
        function: called with (predictions, labels), one row an example.
        columns: of the predictions that it needs; 0: they are a plain (n,) array.
        label: what tables and sentences call it; "": its name.
        higher_is_better: False for perplexity and bits per byte.
        share: at most 1, and shown in percent.
        lowest: the smallest value that a share can have.
        most_classes: it is not defined for tasks with more; None: for any.
        kinds: kinds of task that it fits, beside those whose entry in `KINDS` names it.
        of_counts: the same from counts of (true class, predicted class), (..., classes, classes) -> (...);
            None: they are not enough.
    """

    function: Callable[[Array, Array], float]
    columns: int = 0
    label: str = ""
    higher_is_better: bool = True
    share: bool = True
    lowest: float = 0.0
    most_classes: int | None = None
    kinds: tuple[str, ...] = ()
    of_counts: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None


METRICS: Registry[Metric] = Registry(
    "metric",
    {
        "accuracy": Metric(accuracy),
        "f1": Metric(f1, label="F1", most_classes=2, of_counts=_f1_of),
        "macro-f1": Metric(macro_f1, label="macro F1", of_counts=_macro_f1_of),
        "matthews": Metric(matthews, label="Matthews correlation", lowest=-1.0, of_counts=_matthews_of),
        "pearson": Metric(pearson, label="Pearson correlation", lowest=-1.0),
        "spearman": Metric(spearman, label="Spearman correlation", lowest=-1.0),
        "count-accuracy": Metric(count_accuracy, 3, "accuracy"),
        "count-f1": Metric(count_f1, 3, "F1"),
        "las": Metric(las, 3, "LAS"),
        "uas": Metric(uas, 4, "UAS"),
        "logit-difference": Metric(logit_difference, label="logit difference", share=False),
        "token-accuracy": Metric(token_accuracy, 3, "token accuracy"),
        "perplexity": Metric(perplexity, 3, higher_is_better=False, share=False),
        "bits-per-byte": Metric(bits_per_byte, 4, "bits per byte", higher_is_better=False, share=False),
    },
)


def resampled(
    metric: str, predictions: Array, labels: Array, counts: NDArray[np.int64]
) -> NDArray[np.float64] | None:
    """A metric on many resamples at once; None where counts are not enough for the metric, and where there
    are many classes.

    Args:
        metric: its name.
        predictions, labels: (examples,) class numbers.
        counts: (resamples, examples): how often each example occurs in each.

    Returns:
        (resamples,).
    """
    of_counts = METRICS[metric].of_counts
    if of_counts is None:
        return None
    cells, size = _cells(predictions, labels)
    if size > MOST_CLASSES or min(predictions.min(initial=0), labels.min(initial=0)) < 0:
        return None
    one_hot = np.eye(size * size)[cells]  # (examples, classes²)
    return of_counts((counts @ one_hot).reshape(len(counts), size, size))


def metric_label(name: str) -> str:
    """A metric's name as tables and sentences show it."""
    if name not in METRICS:
        return name
    return METRICS[name].label or name


def metrics_of_kind(kind: str) -> tuple[str, ...]:
    """The metrics that fit tasks of a kind, its default first."""
    added = tuple(name for name, metric in METRICS.items() if kind in metric.kinds)
    if kind not in KINDS:
        return added
    return (*KINDS[kind].metrics, *added)


def find(name: str, kind: str) -> Metric:
    """The metric called `name`, checked to fit tasks of `kind`.

    Raises:
        HeadwiseError: no such metric, or it does not fit the kind.
    """
    if name not in metrics_of_kind(kind):
        raise HeadwiseError(
            f"metric {name!r} does not fit a task of kind {kind!r}; choose from: "
            f"{', '.join(metrics_of_kind(kind))}"
        )
    return METRICS[name]


def check_known(name: str | None, task: str) -> None:
    """Raises where a task asks for a metric that there is not."""
    if name is not None and name not in METRICS:
        raise HeadwiseError(
            f"task {task!r}: unknown metric {name!r}{did_you_mean(name, METRICS)}; there are "
            f"{', '.join(METRICS)}"
        )


def check_classes(name: str | None, task: str, classes: Sequence[str]) -> None:
    """F1 is that of one class of two: a task with more needs another metric."""
    if name is None:
        return
    most = METRICS[name].most_classes
    if most is not None and len(classes) > most:
        raise HeadwiseError(
            f"task {task!r} has {len(classes)} classes, and {name} is of {most}: choose macro-f1 or accuracy"
        )


def score(name: str, kind: str, predictions: ArrayLike, labels: ArrayLike | None = None) -> float:
    """The metric of a prediction table (see the table in this module's docstring).

    Args:
        name: the metric.
        kind: the kind of task.
        predictions: one row per example.
        labels: (n,) gold labels; not needed where predictions are counts.

    Raises:
        HeadwiseError: shapes do not fit, a value is NaN, or there are no examples.
    """
    metric = find(name, kind)
    table = np.asarray(predictions)
    if metric.columns:
        fits, shape = table.ndim == 2 and table.shape[1] >= metric.columns, f"(examples, {metric.columns})"
    else:
        fits, shape = table.ndim == 1, "(examples,)"
    if not fits:
        raise HeadwiseError(f"metric {name!r} needs predictions of shape {shape}, got {table.shape}")
    if len(table) == 0:
        raise HeadwiseError(f"metric {name!r} of no examples is undefined: give at least one prediction")
    if np.isnan(table).any():
        first = int(np.argwhere(np.isnan(table))[0][0])
        raise HeadwiseError(f"predictions hold NaN, first at example {first}")
    if metric.columns:
        return metric.function(table, table)
    gold = np.asarray(labels)
    if gold.shape != table.shape:
        raise HeadwiseError(
            f"{table.shape[0]} predictions and labels of shape {gold.shape}: the numbers must match"
        )
    return metric.function(table, gold)


def every(
    kind: str, predictions: ArrayLike, labels: ArrayLike | None = None, classes: int = 2
) -> dict[str, float]:
    """All metrics of a kind by name; bits per byte only where the bytes are known, F1 only where there are
    two classes.
    """
    table = np.asarray(predictions)
    bytes_known = table.ndim == 2 and table.shape[1] >= 4 and table[:, 3].any()
    scores = {}
    for name in metrics_of_kind(kind):
        fits = classes <= (METRICS[name].most_classes or classes)
        if fits and (name != "bits-per-byte" or bytes_known):
            scores[name] = score(name, kind, table, labels)
    return scores


def chance_level(name: str, kind: str, labels: Any) -> float:
    """The metric of the best guess that ignores the text, for gold labels as in `Examples.labels`.

    Kinds say how (`Kind.chance`): for classes the best constant answer, for tags the commonest one, for
    minimal pairs 0.5, for other kinds 0; perplexity and bits per byte: infinity.
    """
    if not len(labels):
        raise HeadwiseError(f"chance of metric {name!r} is undefined without examples: the split is empty")
    if not METRICS[name].higher_is_better:
        return float("inf")
    level = KINDS[kind].chance
    if callable(level):
        return level(lambda guess: score(name, kind, guess, labels), labels)
    return level


PERMUTATIONS = 199
CHANCE_MEANING = (
    "at chance: not shown to be better than a guess that ignores the text (permutation test over the "
    "examples, p > 0.05, or a score no higher "
    "than the guess's)"
)


def at_chance(
    metric: str, kind: str, predictions: NDArray[Any], labels: NDArray[Any] | None, chance: float
) -> bool:
    """Whether nothing shows that the text was used: the score is no higher than `chance`, or a permutation
    test of independence between predictions and labels (199 permutations of the examples) has p > 0.05. Kinds
    that keep counts have the first alone.

    Args:
        metric, kind: of the task.
        predictions: (examples,), or (examples, counts).
        labels: (examples,); None where predictions are counts.
        chance: the metric of the best guess that ignores the text; NaN where there is none, and then nothing
            is at chance.
    """
    if not np.isfinite(chance):
        return False
    reached = score(metric, kind, predictions, labels)
    if reached <= chance:
        return True
    if labels is None or predictions.ndim > 1:
        return False
    if KINDS[kind].compares:  # every label is 0: the guess is a coin for each pair
        right = predictions == 0
        if KINDS[kind].numbers:
            right = predictions > 0
        return bool(scipy.stats.binom.sf(np.sum(right) - 1, len(labels), 0.5) > 0.05)
    rng = np.random.default_rng(0)
    as_good = sum(
        score(metric, kind, predictions, rng.permutation(labels)) >= reached for _ in range(PERMUTATIONS)
    )
    return bool((1 + as_good) / (1 + PERMUTATIONS) > 0.05)


def chance_note(task: str, score: float, chance: float, so: str) -> str:
    """What must be said of a model that is at chance on a task; `so` is what follows for the result."""
    verdict = "is at chance"
    if score > chance:
        verdict += " as far as these examples show"
    scores = f"{score:.3g}; a guess that ignores the text: {chance:.3g}"
    return f"{task}: the intact model {verdict} ({scores}), so {so}"
