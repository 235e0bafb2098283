"""`headwise.evaluate`: how good a model is on a task."""

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from headwise._passes.decision import decision_of
from headwise.errors import HeadwiseError
from headwise.evaluation._settings import Evaluating
from headwise.settings import operation
from headwise.store import Entry, kept
from headwise.tasks import Task, as_tasks


@operation(Evaluating)
def evaluate(model: Any, task: Task | Sequence[Task], settings: Evaluating) -> Any:
    """Asks a model every example of a split, and judges its answers by the task's metric.

        found = hw.evaluate("my-classifier", task)
        found.score, found.interval, found.table()

    Inside a block that silences, gates or steers the heads of a live model it is the changed model that
    answers.

    Args:
        model: a multi-task model, a plain transformers model with a head (classifier, tagger, causal or
            masked language model), or a folder that headwise saved.
        task: the task, or several that the model answers.

    Returns:
        an `Evaluation`: `.score` with its `.interval`, `.metrics`, every example's answer in `.predictions`
        and `.table()`, `.notes`. Of several tasks, `Evaluations` by name. A model that is at chance is warned
        of.
    """
    several = not isinstance(task, Task)
    tasks = as_tasks(task)
    if not tasks:
        raise HeadwiseError("there is no task to evaluate the model on")
    result, notes = _finished(model, tasks, several, settings)
    for note in [*(note for note in result.notes if "at chance" in note), *notes]:
        warnings.warn(note, stacklevel=3)
    return result


def _finished(model: Any, tasks: list[Task], several: bool, settings: Evaluating) -> tuple[Any, list[str]]:
    """An evaluation as it is kept in `out`, or run; and what a reader of a kept one must know."""

    def run() -> Any:
        from headwise.evaluation._result import Evaluations

        by_task = _evaluations(model, tasks, settings)
        if several:
            return Evaluations(by_task)
        return by_task[tasks[0].name]

    def compute(entry: Entry) -> Any:
        result = run()
        result.save(entry.folder, **entry.seals())
        return result

    if settings.out is None:
        return run(), []
    decided = decision_of("evaluate", model, tasks, settings, settings.split, together=several)
    return kept(settings.out, decided, compute)


def _evaluations(model: Any, tasks: list[Task], settings: Evaluating) -> dict[str, Any]:
    """An evaluation of each task, by its name."""
    from headwise._base.opener import identity
    from headwise._passes.subject import drawn, open_subject, weights_type
    from headwise.evaluation._asking import answers
    from headwise.evaluation._result import Evaluation
    from headwise.heads import HeadSet
    from headwise.models import as_trained, order_notes

    subject = open_subject(model, tasks, settings)
    answering = subject.model
    name, revision = identity(answering.encoder.config)
    silenced = HeadSet(settings.silenced or ())
    reading = {
        name: getattr(settings, name) for name in ("examples", "seed", "precision", "bootstrap", "level")
    }
    facts = {
        "model": name,
        "revision": revision,
        "silenced": sorted(silenced),
        **weights_type(answering),
    }
    by_task = {}
    for task in as_trained(answering, tasks):
        encoded = drawn(answering, task, settings)
        with subject.heads.silenced(silenced) if silenced else nullcontext():
            predictions_and_losses = answers(
                answering,
                task.name,
                encoded,
                batch_size=settings.batch_size,
                precision=settings.precision,
                description=f"evaluating {task.name}",
                quiet=settings.quiet,
            )
        of_task = {**reading, "max_length": encoded.max_length, **facts, **order_notes(answering, [task])}
        by_task[task.name] = Evaluation.from_answers(
            task, encoded.examples, predictions_and_losses, settings.split, of_task
        )
    return by_task
