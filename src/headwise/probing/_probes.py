"""`probe`: what every head and every layer of a model knows about tasks."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from headwise._base.names import file_name
from headwise._base.progress import track
from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.models import as_trained, length_of
from headwise.probing._encoder import Encoder, with_random_weights
from headwise.probing._errors import score_interval, standard_error
from headwise.probing._fits import SPLIT_NAMES, Choice, Labels, choose, per_chunk
from headwise.probing._recorded import Recording
from headwise.probing._recording import NOT_KEPT, record
from headwise.probing._results import Probes, ranked_heads
from headwise.probing._settings import Probe, Probing
from headwise.probing._splits import carved, three_splits
from headwise.settings import operation
from headwise.store import Decision, Entry, decision, fingerprint, kept
from headwise.tasks import KINDS, Examples, Task, as_tasks, metrics

FOLDS = 5  # of train, where no split is left to choose on (appendix A.2)


@operation(Probing)
def probe(model: Any, tasks: Task | Iterable[Task], settings: Probing) -> Probes:
    """Fits a probe to every head and every layer for every task: s(h_ij) and s(z_i) of Jo & Myaeng (2020),
    and their top-n embedding.

    Validation (or cross-validation) chooses each probe's L2 strength, the best layer and the top heads; test
    is reported. The last layer is read after the model's final norm; where that changes it, the row "before
    the final norm" has it as it was.

    Args:
        model: a folder, hub id, live transformers model, or `MultiTaskModel`.
        tasks: tasks of kind "classes" (logistic regression) or "number" (ridge regression).
    """
    tasks = as_tasks(tasks)
    if not tasks:
        raise HeadwiseError("there are no tasks to probe")
    out = settings.out
    if out is None:
        return _probes(model, tasks, settings)

    def compute(entry: Entry) -> Probes:
        result = _probes(model, tasks, settings)
        result.save(entry.folder, **entry.seals())
        return result

    probes, notes = kept(out, _decided(model, tasks, settings), compute)
    return probes.with_notes(notes)


def _decided(model: Any, tasks: Sequence[Task], settings: Probing) -> Decision:
    """What decides probes: known before the model is opened."""
    facts = settings.decides() | {
        "estimator": _contents(settings.estimator),
        # of the others the metric that the model remembers holds
        "metric given for": [task.name for task in tasks if task.metric_given],
        "chosen by folds": [task.name for task in tasks if carved(task)],
        "synthetic": [task.name for task in tasks if task.synthetic],
    }
    tokenizer = settings.tokenizer
    if isinstance(model, Encoder):
        facts["pooling"] = settings.pooling or model.pooling
        facts["trained on"] = fingerprint(dict(model.tasks))
        model, tokenizer = model.model, tokenizer or model.tokenizer
    return decision("probe", facts, model=model, tokenizer=tokenizer, tasks=tasks, splits=SPLIT_NAMES)


def _contents(estimator: Any) -> Any:
    """What a user's estimator is, by its class and what it was made with, as scikit-learn's say it."""
    if callable(getattr(estimator, "get_params", None)) and not isinstance(estimator, type):
        kind = type(estimator)
        parameters = {name: _contents(v) for name, v in estimator.get_params(deep=False).items()}
        return [f"{kind.__module__}.{kind.__qualname__}", parameters]
    if isinstance(estimator, list | tuple):  # steps of a pipeline
        return [*map(_contents, estimator)]
    try:
        return None if estimator is None else fingerprint(estimator)
    except HeadwiseError:
        raise HeadwiseError(
            f"out= keeps a result by what decides it, and a {type(estimator).__name__} does not say what it "
            "is made with: give its class a get_params() method, as scikit-learn's have, or a fingerprint() "
            "method that returns a text; or leave out= away"
        ) from None


def _probes(model: Any, tasks: Sequence[Task], settings: Probe) -> Probes:
    encoder = Encoder.of(
        model,
        settings.tokenizer,
        settings.pooling,
        trust_remote_code=settings.trust_remote_code,
        device=settings.device or "auto",
    )
    settings = settings.with_changes(device=str(encoder.device))
    random = with_random_weights(encoder, settings.seed) if "encoder" in settings.controls else None
    # once, not for every recording; those that nobody keeps need none
    identity = random_identity = NOT_KEPT
    if settings.folder:
        identity = fingerprint(encoder.model)
        random_identity = fingerprint(random.model) if random is not None else NOT_KEPT
    n_top = settings.top if settings.top is not None else encoder.heads.shape[1]
    sweep = _sweep_sizes(settings.sweep, encoder)
    results = []
    for task in as_trained(encoder, tasks):
        options: dict[str, Any] = {"max_length": length_of(encoder, task.name, settings.max_length)}
        options |= {name: getattr(settings, name) for name in ("pairs", "batch_size", "dtype", "quiet")}
        splits = three_splits(task, settings.examples, settings.seed)
        labels = labels_of(task, splits)
        task_settings = settings
        if settings.folds is None and carved(task):
            task_settings = settings.with_changes(folds=FOLDS)
        with _recording_folder(settings.folder, task.name) as folder:
            recordings = {}
            for name in SPLIT_NAMES:
                recordings[name] = record(
                    encoder, splits[name], folder / name, hidden=settings.layers, identity=identity, **options
                )
            result = _probes_of_task(task, recordings, labels, task_settings, n_top, sweep)
            if random is not None:
                for name in SPLIT_NAMES:
                    recordings[name] = record(
                        random,
                        splits[name],
                        folder / f"random-{name}",
                        hidden=False,
                        identity=random_identity,
                        **options,
                    )
                grid, _ = probe_heads(recordings, labels, task_settings, f"{task.name}: random weights")
                result.data["random_encoder"] = (("task", "layer", "head"), grid["test"][None])
        results.append(result)
    attrs = {
        "model": str(encoder.model.config.name_or_path) or type(encoder.model).__name__,
        "pooling": encoder.pooling,
        **{name: getattr(settings, name) for name in ("pairs", "seed", "tolerance")},
        "strengths": list(settings.strengths),
        "n_top": n_top,
    }
    return Probes.join(results, attrs)


def labels_of(task: Task, splits: dict[str, Examples]) -> Labels:
    """The labels of three splits."""
    arrays = [np.asarray(splits[name].labels) for name in SPLIT_NAMES]
    return Labels(task.kind, task.metric, len(task.classes), arrays[0], arrays[1], arrays[2])


def probe_heads(
    recordings: dict[str, Recording], labels: Labels, settings: Probe, title: str = "probing heads"
) -> tuple[dict[str, NDArray[np.float64]], NDArray[Any]]:
    """Every head by itself.

    Returns:
        (layers, heads) arrays "test", "validation", "stderr" and "strength", NaN where a layer has no such
        head; and the predicted test labels (layers, heads, examples).
    """
    train = recordings["train"]
    grid = {name: np.full(train.shape, np.nan) for name in ("test", "validation", "stderr", "strength")}
    dtype = np.float32 if KINDS[labels.kind].numbers else np.int32
    predictions = np.full((*train.shape, len(labels.test)), -1, dtype=dtype)
    chunks: list[list[tuple[int, int]]] = []
    for dim in sorted(set(train.dims)):
        heads = [(layer, head) for layer, head in train.all() if train.dims[layer] == dim]
        size = per_chunk(len(labels.train), dim * train.sides, labels, settings)
        chunks += [heads[start : start + size] for start in range(0, len(heads), size)]
    for heads in track(chunks, title, quiet=settings.quiet):
        choice = choose(_reading(recordings, methodcaller("heads", heads)), labels, settings)
        for number, head in enumerate(heads):
            grid["validation"][head] = choice.validation[number]
            grid["strength"][head] = choice.strengths[number]
            grid["test"][head], grid["stderr"][head] = score_on_test(choice, labels, number)
            predictions[head] = choice.predictions[number]
    return grid, predictions


def score_on_test(choice: Choice, labels: Labels, number: int = 0) -> tuple[float, float]:
    """The metric of one feature set on test, and its standard error."""
    rows = choice.predictions[number]
    return metrics.score(labels.metric, labels.kind, rows, labels.test), standard_error(rows, labels)


def _probes_of_task(
    task: Task,
    recordings: dict[str, Recording],
    labels: Labels,
    settings: Probe,
    top: int,
    sweep: Sequence[int],
) -> Probes:
    grid, predictions = probe_heads(recordings, labels, settings, f"{task.name}: heads")
    data: dict[str, Any] = dict(grid)
    if "labels" in settings.controls:
        shuffled, title = labels.shuffled(settings.seed), f"{task.name}: shuffled labels"
        data["control"] = probe_heads(recordings, shuffled, settings, title)[0]["test"]

    def scores(*read: Any) -> dict[str, float]:
        return _scores(_reading(recordings, methodcaller(*read)), labels, settings)

    last = recordings["train"].layers - 1
    rows: list[dict[str, Any]] = []
    if settings.layers:
        reads = [*(("hidden", layer) for layer in range(last)), ("output",)]
        by_layer = [scores(*read) for read in track(reads, f"{task.name}: layers", quiet=settings.quiet)]
        for name in ("test", "validation", "stderr", "strength"):
            data[f"layer_{name}"] = np.array([of_layer[name] for of_layer in by_layer])
        best = int(np.argmax(data["layer_validation"]))
        rows.append({"embedding": "last layer", "layer": last, **by_layer[last]})
        rows.append({"embedding": "best layer", "layer": best, **by_layer[best]})
    order = ranked_heads(grid["validation"])
    top = min(top, len(order))
    swept = []
    sizes = sorted({top, *(n for n in sweep if n <= len(order))})
    for n in track(sizes, f"{task.name}: top heads", quiet=settings.quiet):
        heads = HeadSet(order[:n])
        of_heads = scores("embedding", heads)
        swept.append({"n": n, **of_heads})
        if n == top:
            rows.append({"embedding": f"top {n} heads", "heads": heads.to_json(), "n": n, **of_heads})
    if settings.layers and recordings["train"].normed:
        rows.append({"embedding": "before the final norm", "layer": last, **scores("hidden", last)})
    majority = task_majority(labels)
    return Probes.of_task(
        task.name,
        task.metric,
        data,
        predictions,
        labels.test,
        majority,
        pd.DataFrame(rows),
        pd.DataFrame(swept),
        len(labels.train),
        settings.folds or 0,
        task.synthetic,
    )


def task_majority(labels: Labels) -> float:
    """The metric of always answering the commonest class of train; 0 for numbers."""
    if KINDS[labels.kind].numbers:
        return 0.0
    commonest = np.bincount(labels.train.astype(np.int64)).argmax()
    return metrics.score(labels.metric, labels.kind, np.full(len(labels.test), commonest), labels.test)


def _reading(
    recordings: Mapping[str, Recording], read: Callable[[Recording], Tensor]
) -> Callable[[str], Tensor]:
    return lambda split: read(recordings[split])


def _scores(features: Callable[[str], Tensor], labels: Labels, settings: Probe) -> dict[str, float]:
    """One feature set: its validation score, strength, test score with its standard error and interval, and
    the number of test examples."""
    choice = choose(features, labels, settings)
    test, error = score_on_test(choice, labels)
    low, high = score_interval(test, error, len(labels.test), labels.metric)
    return {
        "validation": float(choice.validation[0]),
        "test": test,
        "stderr": error,
        "low": low,
        "high": high,
        "examples": len(labels.test),
        "strength": float(choice.strengths[0]),
    }


def _sweep_sizes(sweep: Sequence[int], encoder: Encoder) -> list[int]:
    total = encoder.heads.total
    if tuple(sweep) == (-1,):
        return [*(2**i for i in range((total - 1).bit_length())), total]
    wrong = [n for n in sweep if not 1 <= n <= total]
    if wrong:
        raise HeadwiseError(
            f"sweep over {wrong[0]} heads: the model has {total}; give numbers from 1 to {total}, or (-1,) "
            "for all"
        )
    return list(sweep)


@contextmanager
def _recording_folder(folder: str | Path | None, name: str) -> Iterator[Path]:
    """Where one task's recordings go; a temporary folder disappears with them."""
    if folder is not None:
        yield Path(folder) / file_name(name)
    else:
        with tempfile.TemporaryDirectory(prefix="headwise-") as temporary:
            yield Path(temporary)
