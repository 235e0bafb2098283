"""`headwise.steer`: inference-time intervention."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from headwise.errors import HeadwiseError, did_you_mean
from headwise.heads import Heads, twinned
from headwise.models import SavedTask, as_task_model, open_with_tokenizer
from headwise.probing import Encoder, three_splits
from headwise.settings import operation
from headwise.steering._finding import find
from headwise.steering._measuring import Judged, judge
from headwise.steering._result import Steering
from headwise.steering._settings import Steer
from headwise.store import Entry, decision, kept
from headwise.tasks import KINDS, Examples, Task, as_tasks, by_fraction, text_key

CHOOSE, REPORT = "validation", "test"


@operation(Steer)
def steer(model: Any, tasks: Task | Iterable[Task], settings: Steer) -> Steering:
    """Inference-time intervention (Li et al. 2023): probes every head, and adds α·σ·direction to the outputs of the best at all tokens.

    Probes are fitted on the training statements. The validation statements choose the heads, the validation pairs (else statements) the
    strength α: that with the largest effect among those within `max_kl`. The test split is only reported. The effect is

    - of pairs: the mean of log p(good) − log p(bad);
    - without pairs: the mean log-probability per token of statements of the target class, minus that of the other statements.

    Args:
        model: a left-to-right language model: a folder, a hub id, a live transformers model.
        tasks: labelled statements (kind "classes", one text each), and optionally pairs, of kind "minimal-pairs", whose first text
            steering should make more probable.

    Returns:
        heads, directions, the chosen strength, and the table of strengths: see `Steering`.
    """
    statements, pairs = _asked(tasks)
    if settings.target is not None and settings.target not in statements.classes:
        raise HeadwiseError(
            f"target is {settings.target!r}{did_you_mean(settings.target, statements.classes)}; "
            f"task {statements.name!r} has the classes {', '.join(statements.classes)}"
        )
    if settings.out is None:
        return _steer(model, statements, pairs, settings)[0]
    given = [task for task in (statements, pairs) if task is not None]
    decided = decision(
        "steer",
        settings,
        model=model,
        tokenizer=settings.tokenizer,
        tasks=given,
        splits=("train", CHOOSE, REPORT),
    )

    def compute(entry: Entry) -> Steering:
        result, heads, tokenizer = _steer(model, statements, pairs, settings)
        result.save(entry.folder, heads if settings.bake else None, tokenizer, **entry.seals())
        return result

    found, notes = kept(settings.out, decided, compute)
    found.notes.extend(notes)
    return found


def _asked(tasks: Task | Iterable[Task]) -> tuple[Task, Task | None]:
    given = as_tasks(tasks)
    statements = [task for task in given if KINDS[task.kind].one_class and not task.pairs]
    pairs = [task for task in given if KINDS[task.kind].reads == "pair"]
    if len(statements) != 1 or len(pairs) > 1 or len(given) > 2:
        said = ", ".join(f"{task.name} ({task.kind}{', two texts' * task.pairs})" for task in given) or "none"
        raise HeadwiseError(
            f"steering needs one task of labelled statements (kind classes, one text each), and at most one of minimal-pairs; got {said}"
        )
    return statements[0], pairs[0] if pairs else None


def _steer(model: Any, statements: Task, pairs: Task | None, settings: Steer) -> tuple[Steering, Heads, Any]:
    """A result that is not there yet, the heads of the model, and its tokenizer."""
    live, tokenizer = open_with_tokenizer(model, settings, settings.tokenizer)
    judged = (
        SavedTask(pairs.name, "minimal-pairs", (), "accuracy")
        if pairs
        else SavedTask(statements.name, "next-token", (), "token-accuracy")
    )
    answering = as_task_model(live, tokenizer, judged)
    heads, encoder = Heads(live), Encoder.of(live, tokenizer, "last")
    if encoder.heads.shape != heads.shape:
        raise HeadwiseError(
            f"{type(live).__name__} has heads outside its text model: steering reads left-to-right models"
        )
    target = statements.classes.index(settings.target) if settings.target else len(statements.classes) - 1
    splits = three_splits(statements, settings.examples, settings.seed)
    found = find(encoder, splits, target, settings)
    tables = []
    with twinned(answering, heads) as (model, twin):
        for name, (examples, of_target) in _judging(splits, pairs, target, settings).items():
            one: Judged = judge(model, twin, judged.name, examples, found.vectors, settings, of_target)
            table = one.table((0.0, *settings.strengths), settings)
            table.insert(0, "split", name)
            tables.append(table)
    allowed = tables[0][tables[0]["kl"] <= settings.max_kl]
    strength = float(allowed["strength"].to_numpy()[allowed["effect"].to_numpy().argmax()])
    noted = ("directions", "max_kl", "bootstrap", "level", "seed", "max_length")
    facts = {
        "task": statements.name,
        "pairs": pairs.name if pairs else None,
        "target": statements.classes[target],
        "model": str(live.config.name_or_path) or type(live).__name__,
        "heads_total": heads.total,
        **{name: getattr(settings, name) for name in noted},
    }
    notes = (
        []
        if strength
        else ["no strength raised the effect on the validation split within the limit on KL: strength is 0"]
    )
    if strength and strength == max(settings.strengths):
        notes.append(
            f"the strongest of the strengths tried was chosen ({strength:g}): a stronger one may do more, see strengths="
        )
    result = Steering(
        pd.concat(tables, ignore_index=True), found.heads, found.vectors, strength, facts, notes
    )
    return result, heads, tokenizer


def _judging(
    splits: dict[str, Examples], pairs: Task | None, target: int, settings: Steer
) -> dict[str, tuple[Examples, Any]]:
    """What chooses the strength and what is reported; of statements also which are of the target class."""
    if pairs is None:
        found = {}
        for name in (CHOOSE, REPORT):
            labels = np.asarray(splits[name].labels)
            running = replace(
                splits[name], labels=np.zeros(len(labels), np.int64), kind="next-token", classes=()
            )
            found[name] = (running, labels == target)
        return found
    held = {name: pairs.split(name) for name in (CHOOSE, REPORT) if name in pairs.splits}
    if len(held) < 2:  # one split is divided, so that nothing is chosen on what is reported
        whole = next(iter(held.values()), pairs.split(pairs.splits[0]))
        rows = by_fraction(
            (text_key(text) for text in whole.texts), {CHOOSE: 0.5, REPORT: 0.5}, settings.seed
        )
        held = {name: whole.subset(rows[name]) for name in (CHOOSE, REPORT)}
    if settings.examples is not None:
        held = {name: one.sample(settings.examples, settings.seed) for name, one in held.items()}
    empty = [name for name, one in held.items() if not len(one)]
    if empty:
        raise HeadwiseError(f"task {pairs.name!r} has too few pairs: none is left for the {empty[0]} split")
    return {name: (one, None) for name, one in held.items()}
