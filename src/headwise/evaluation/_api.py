"""`headwise.evaluate`: how good a model is on a task."""

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from headwise._passes.decision import asked
from headwise.errors import HeadwiseError
from headwise.evaluation._settings import Evaluating
from headwise.settings import operation
from headwise.store import kept
from headwise.tasks import Task, as_tasks


@operation(Evaluating)
def evaluate(model: Any, task: Task | Sequence[Task], settings: Evaluating) -> Any:
    """Asks a model every example of a split, and judges its answers by the task's metric.

        found = hw.evaluate("my-classifier", task)
        found.score, found.interval, found.table()

    Inside a block that silences, gates or steers the heads of a live model it is the changed model that answers.

    Args:
        model: a multi-task model, a plain transformers model with a head (classifier, tagger, causal or masked language model),
            or a folder that headwise saved.
        task: the task, or several that the model answers.

    Returns:
        an `Evaluation`: `.score` with its `.interval`, `.metrics`, every example's answer in `.predictions` and `.table()`, `.notes`. Of
        several tasks, `Evaluations` by name. A model that is at chance is warned of.
    """
    several = not isinstance(task, Task)
    tasks = as_tasks(task)
    if not tasks:
        raise HeadwiseError("there is no task to evaluate the model on")
    found, notes = _kept(model, tasks, several, settings)
    for note in [*(one for one in found.notes if "at chance" in one), *notes]:
        warnings.warn(note, stacklevel=3)
    return found


def _kept(model: Any, tasks: list[Task], several: bool, settings: Evaluating) -> tuple[Any, list[str]]:
    """An evaluation as it is kept in `out`, or run; and what a reader of a kept one must know."""

    def run() -> Any:
        found = _evaluated(model, tasks, settings)
        from headwise.evaluation._result import Evaluations

        return Evaluations(found) if several else next(iter(found.values()))

    if settings.out is None:
        return run(), []
    decided = asked("evaluate", model, tasks, settings, settings.split, together=several)

    def compute(entry: Any) -> Any:
        found = run()
        found.save(entry.folder, **entry.seals())
        return found

    return kept(settings.out, decided, compute)


def _evaluated(model: Any, tasks: list[Task], settings: Evaluating) -> dict[str, Any]:
    """An evaluation of each task, by its name."""
    from headwise._base.opener import identity
    from headwise._passes.subject import drawn, opened, weights_type
    from headwise.evaluation._asking import answers
    from headwise.evaluation._result import Evaluation
    from headwise.heads import Heads, HeadSet
    from headwise.models import as_trained, order_notes

    answering = opened(model, tasks, settings)
    name, revision = identity(answering.encoder.config)
    noted = {one: getattr(settings, one) for one in ("examples", "seed", "precision", "bootstrap", "level")}
    silenced = HeadSet(settings.silenced or ())
    found = {}
    for task in as_trained(answering, tasks):
        encoded = drawn(answering, task, settings)
        with (settings.heads or Heads(answering.encoder)).silenced(silenced) if silenced else nullcontext():
            given = answers(
                answering,
                task.name,
                encoded,
                batch_size=settings.batch_size,
                precision=settings.precision,
                description=f"evaluating {task.name}",
                quiet=settings.quiet,
            )
        facts = {
            **noted,
            "max_length": encoded.max_length,
            "model": name,
            "revision": revision,
            "silenced": sorted(silenced),
        }
        facts |= {**weights_type(answering), **order_notes(answering, [task])}
        found[task.name] = Evaluation.of(task, encoded.examples, given, settings.split, facts)
    return found
