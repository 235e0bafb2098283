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
    """Fits a probe to every head and every layer for every task: s(h_ij) and s(z_i) of Jo & Myaeng (2020), and their top-n embedding.

    Validation (or cross-validation) chooses each probe's L2 strength, the best layer and the top heads; test is reported. The last
    layer is read after the model's final norm; where that changes it, the row "before the final norm" has it as it was.

    Args:
        model: a folder, hub id, live transformers model, or `MultiTaskModel`.
        tasks: tasks of kind "classes" (logistic regression) or "number" (ridge regression).
    """
    given = as_tasks(tasks)
    if not given:
        raise HeadwiseError("there are no tasks to probe")
    if settings.out is None:
        return _probes(model, given, settings)

    def compute(entry: Entry) -> Probes:
        result = _probes(model, given, settings)
        result.save(entry.folder, **entry.seals())
        return result

    found, notes = kept(settings.out, _decided(model, given, settings), compute)
    return found.noted(notes)


def _decided(model: Any, tasks: Sequence[Task], settings: Probing) -> Decision:
    """What decides probes: known before the model is opened."""
    facts = settings.decides() | {
        "estimator": _contents(settings.estimator),
        "metric given for": [
            task.name for task in tasks if task.metric_given
        ],  # else the metric that the model remembers holds
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
        return [
            f"{kind.__module__}.{kind.__qualname__}",
            {name: _contents(v) for name, v in estimator.get_params(deep=False).items()},
        ]
    if isinstance(estimator, list | tuple):  # steps of a pipeline
        return [_contents(part) for part in estimator]
    try:
        return None if estimator is None else fingerprint(estimator)
    except HeadwiseError:
        raise HeadwiseError(
            f"out= keeps a result by what decides it, and a {type(estimator).__name__} does not say what it is made with: give its class "
            "a get_params() method, as scikit-learn's have, or a fingerprint() method that returns a text; or leave out= away"
        ) from None


def _probes(model: Any, given: Sequence[Task], settings: Probe) -> Probes:
    """Probes that are not there yet."""
    options: dict[str, Any] = {
        "trust_remote_code": settings.trust_remote_code,
        "device": settings.device or "auto",
    }
    encoder = Encoder.of(model, settings.tokenizer, settings.pooling, **options)
    settings = settings.with_changes(device=str(encoder.device))
    seed = settings.seed
    recording: dict[str, Any] = {
        name: getattr(settings, name) for name in ("pairs", "batch_size", "dtype", "quiet")
    }
    random = with_random_weights(encoder, seed) if "encoder" in settings.controls else None
    # once, not for every recording; those that nobody keeps need none
    identities = [
        fingerprint(part.model) if part is not None and settings.folder else NOT_KEPT
        for part in (encoder, random)
    ]
    n_top = settings.top if settings.top is not None else encoder.heads.shape[1]
    parts = []
    for task in as_trained(encoder, given):
        recording["max_length"] = length_of(encoder, task.name, settings.max_length)
        splits = three_splits(task, settings.examples, seed)
        labels = labels_of(task, splits)
        with _recordings(settings.folder, task.name) as place:
            found = {
                name: record(
                    encoder,
                    splits[name],
                    place / name,
                    hidden=settings.layers,
                    identity=identities[0],
                    **recording,
                )
                for name in SPLIT_NAMES
            }
            own = settings.with_changes(folds=FOLDS) if settings.folds is None and carved(task) else settings
            parts.append(_task(task, found, labels, own, n_top, _sizes(settings.sweep, encoder)))
            if random is not None:
                control = {
                    name: record(
                        random,
                        splits[name],
                        place / f"random-{name}",
                        hidden=False,
                        identity=identities[1],
                        **recording,
                    )
                    for name in SPLIT_NAMES
                }
                grid, _ = probe_heads(control, labels, own, f"{task.name}: random weights")
                parts[-1].data["random_encoder"] = (("task", "layer", "head"), grid["test"][None])
    attrs = {
        "model": str(encoder.model.config.name_or_path) or type(encoder.model).__name__,
        "pooling": encoder.pooling,
        **{name: getattr(settings, name) for name in ("pairs", "seed", "tolerance")},
        "strengths": list(settings.strengths),
        "n_top": n_top,
    }
    return Probes.join(parts, attrs)


def labels_of(task: Task, splits: dict[str, Examples]) -> Labels:
    """The labels of three splits."""
    arrays = [np.asarray(splits[name].labels) for name in SPLIT_NAMES]
    return Labels(task.kind, task.metric, len(task.classes), arrays[0], arrays[1], arrays[2])


def probe_heads(
    recordings: dict[str, Recording], labels: Labels, settings: Probe, title: str = "probing heads"
) -> tuple[dict[str, NDArray[np.float64]], NDArray[Any]]:
    """Every head by itself.

    Returns:
        (layers, heads) arrays "test", "validation", "stderr" and "strength", NaN where a layer has no such head; and the predicted
        test labels (layers, heads, examples).
    """
    train = recordings["train"]
    grid = {name: np.full(train.shape, np.nan) for name in ("test", "validation", "stderr", "strength")}
    predictions = np.full(
        (*train.shape, len(labels.test)), -1, dtype=np.float32 if KINDS[labels.kind].numbers else np.int32
    )
    chunks: list[list[tuple[int, int]]] = []
    for dim in sorted(set(train.dims)):
        members = [entry for entry in train.all() if train.dims[entry[0]] == dim]
        size = per_chunk(len(labels.train), dim * train.sides, labels, settings)
        chunks += [members[i : i + size] for i in range(0, len(members), size)]
    for members in track(chunks, title, quiet=settings.quiet):
        choice = choose(_reading(recordings, methodcaller("heads", members)), labels, settings)
        for i, place in enumerate(members):
            grid["validation"][place], grid["strength"][place] = choice.validation[i], choice.strengths[i]
            grid["test"][place], grid["stderr"][place] = judged(choice, labels, i)
            predictions[place] = choice.predictions[i]
    return grid, predictions


def judged(choice: Choice, labels: Labels, number: int = 0) -> tuple[float, float]:
    """The metric of one feature set on test, and its standard error."""
    rows = choice.predictions[number]
    return metrics.score(labels.metric, labels.kind, rows, labels.test), standard_error(rows, labels)


def _task(
    task: Task,
    recordings: dict[str, Recording],
    labels: Labels,
    settings: Probe,
    top: int,
    sweep: Sequence[int],
) -> Probes:
    """All probes of one task."""
    grid, predictions = probe_heads(recordings, labels, settings, f"{task.name}: heads")
    data: dict[str, Any] = dict(grid)
    if "labels" in settings.controls:
        data["control"] = probe_heads(
            recordings, labels.shuffled(settings.seed), settings, f"{task.name}: shuffled labels"
        )[0]["test"]
    rows: list[dict[str, Any]] = []
    if settings.layers:
        reads = [methodcaller("hidden", i) for i in range(recordings["train"].layers - 1)] + [
            methodcaller("output")
        ]
        found = [
            _one(_reading(recordings, read), labels, settings)
            for read in track(reads, f"{task.name}: layers", quiet=settings.quiet)
        ]
        for name in ("test", "validation", "stderr", "strength"):
            data[f"layer_{name}"] = np.array([row[name] for row in found])
        best = int(np.argmax(data["layer_validation"]))
        rows.append({"embedding": "last layer", "layer": len(found) - 1, **found[-1]})
        rows.append({"embedding": "best layer", "layer": best, **found[best]})
    order = ranked_heads(grid["validation"])
    sizes = sorted({min(top, len(order)), *(n for n in sweep if n <= len(order))})
    swept = []
    for n in track(sizes, f"{task.name}: top heads", quiet=settings.quiet):
        chosen = HeadSet(order[:n])
        one = _one(_reading(recordings, methodcaller("embedding", chosen)), labels, settings)
        swept.append({"n": n, **one})
        if n == min(top, len(order)):
            rows.append({"embedding": f"top {n} heads", "heads": chosen.to_json(), "n": n, **one})
    if settings.layers and recordings["train"].normed:
        raw = _one(_reading(recordings, methodcaller("hidden", len(found) - 1)), labels, settings)
        rows.append({"embedding": "before the final norm", "layer": len(found) - 1, **raw})
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


def _one(features: Callable[[str], Tensor], labels: Labels, settings: Probe) -> dict[str, float]:
    """One feature set: its validation score, strength, test score with its standard error and interval, and the number of test examples."""
    choice = choose(features, labels, settings)
    test, error = judged(choice, labels)
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


def _sizes(sweep: Sequence[int], encoder: Encoder) -> list[int]:
    total = encoder.heads.total
    if tuple(sweep) == (-1,):
        return sorted({*(2**i for i in range(total.bit_length()) if 2**i < total), total})
    wrong = [n for n in sweep if not 1 <= n <= total]
    if wrong:
        raise HeadwiseError(
            f"sweep over {wrong[0]} heads: the model has {total}; give numbers from 1 to {total}, or (-1,) for all"
        )
    return list(sweep)


@contextmanager
def _recordings(folder: str | Path | None, name: str) -> Iterator[Path]:
    """Where one task's recordings go; a temporary folder disappears with them."""
    if folder is not None:
        yield Path(folder) / file_name(name)
    else:
        with tempfile.TemporaryDirectory(prefix="headwise-") as temporary:
            yield Path(temporary)
