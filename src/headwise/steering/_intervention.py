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
from headwise.steering._directions import best_directions
from headwise.steering._result import Steering
from headwise.steering._settings import Steer
from headwise.steering._strengths import judge
from headwise.store import Entry, decision, kept
from headwise.tasks import KINDS, Examples, Task, as_tasks, by_fraction, text_key

CHOOSE, REPORT = "validation", "test"
SETTINGS_SHOWN = ("directions", "max_kl", "bootstrap", "level", "seed", "max_length")


@operation(Steer)
def steer(model: Any, tasks: Task | Iterable[Task], settings: Steer) -> Steering:
    """Inference-time intervention (Li et al. 2023): probes every head, and adds α·σ·direction to the outputs
    of the best at all tokens.

    Probes are fitted on the training statements. The validation statements choose the heads, the validation
    pairs (else statements) the strength α: that with the largest effect among those within `max_kl`. The test
    split is only reported. The effect is

    - of pairs: the mean of log p(good) − log p(bad);
    - without pairs: the mean log-probability per token of statements of the target class, minus that of the
      other statements.

    Args:
        model: a left-to-right language model: a folder, a hub id, a live transformers model.
        tasks: labelled statements (kind "classes", one text each), and optionally pairs, of kind
            "minimal-pairs", whose first text steering should make more probable.

    Returns:
        heads, directions, the chosen strength, and the table of strengths: see `Steering`.
    """
    statements, pairs = _statements_and_pairs(tasks)
    if settings.target is not None and settings.target not in statements.classes:
        raise HeadwiseError(
            f"target is {settings.target!r}{did_you_mean(settings.target, statements.classes)}; "
            f"task {statements.name!r} has the classes {', '.join(statements.classes)}"
        )
    out = settings.out
    if out is None:
        return _steer(model, statements, pairs, settings)[0]
    decided = decision(
        "steer",
        settings,
        model=model,
        tokenizer=settings.tokenizer,
        tasks=[statements] if pairs is None else [statements, pairs],
        splits=("train", CHOOSE, REPORT),
    )

    def compute(entry: Entry) -> Steering:
        result, heads, tokenizer = _steer(model, statements, pairs, settings)
        result.save(entry.folder, heads if settings.bake else None, tokenizer, **entry.seals())
        return result

    result, notes = kept(out, decided, compute)
    result.notes.extend(notes)
    return result


def _statements_and_pairs(tasks: Task | Iterable[Task]) -> tuple[Task, Task | None]:
    tasks = as_tasks(tasks)
    statements = [task for task in tasks if KINDS[task.kind].one_class and not task.pairs]
    pairs = [task for task in tasks if KINDS[task.kind].reads == "pair"]
    if len(statements) != 1 or len(pairs) > 1 or len(tasks) > 2:
        named = [f"{task.name} ({task.kind}{', two texts' * task.pairs})" for task in tasks]
        raise HeadwiseError(
            "steering needs one task of labelled statements (kind classes, one text each), and at most one "
            f"of minimal-pairs; got {', '.join(named) or 'none'}"
        )
    return statements[0], pairs[0] if pairs else None


def _steer(model: Any, statements: Task, pairs: Task | None, settings: Steer) -> tuple[Steering, Heads, Any]:
    """The result, the heads of the model, and its tokenizer."""
    model, tokenizer = open_with_tokenizer(model, settings, settings.tokenizer)
    model_name = str(model.config.name_or_path) or type(model).__name__
    heads, encoder = Heads(model), Encoder.of(model, tokenizer, "last")
    if encoder.heads.shape != heads.shape:
        raise HeadwiseError(
            f"{type(model).__name__} has heads outside its text model: steering reads left-to-right models"
        )
    target = statements.classes.index(settings.target or statements.classes[-1])
    splits = three_splits(statements, settings.examples, settings.seed)
    of_target = {}
    if pairs is None:
        judged = SavedTask(statements.name, "next-token", (), "token-accuracy")
        judging = {name: _as_text(splits[name]) for name in (CHOOSE, REPORT)}
        of_target = {name: np.asarray(splits[name].labels) == target for name in judging}
    else:
        judged = SavedTask(pairs.name, "minimal-pairs", (), "accuracy")
        judging = _judging_pairs(pairs, settings)
    directions = best_directions(encoder, splits, target, settings)
    tables = []
    with twinned(as_task_model(model, tokenizer, judged), heads) as (twin, twin_heads):
        for name, examples in judging.items():
            effects = judge(
                twin, twin_heads, judged.name, examples, directions.vectors, settings, of_target.get(name)
            )
            table = effects.table((0.0, *settings.strengths), settings)
            table.insert(0, "split", name)
            tables.append(table)
    allowed = tables[0][tables[0]["kl"] <= settings.max_kl]
    strength = float(allowed["strength"].to_numpy()[allowed["effect"].to_numpy().argmax()])
    notes = []
    if not strength:
        notes.append(
            "no strength raised the effect on the validation split within the limit on KL: strength is 0"
        )
    elif strength == max(settings.strengths):
        notes.append(
            f"the strongest of the strengths tried was chosen ({strength:g}): a stronger one may do more, "
            "see strengths="
        )
    facts = {
        "task": statements.name,
        "pairs": pairs.name if pairs else None,
        "target": statements.classes[target],
        "model": model_name,
        "heads_total": heads.total,
        **{name: getattr(settings, name) for name in SETTINGS_SHOWN},
    }
    table = pd.concat(tables, ignore_index=True)
    result = Steering(table, directions.heads, directions.vectors, strength, facts, notes)
    return result, heads, tokenizer


def _as_text(statements: Examples) -> Examples:
    """Statements as running text, whose tokens are predicted."""
    labels = np.zeros(len(statements), np.int64)
    return replace(statements, labels=labels, kind="next-token", classes=())


def _judging_pairs(pairs: Task, settings: Steer) -> dict[str, Examples]:
    """The pairs that choose the strength, and those that are reported."""
    splits = {name: pairs.split(name) for name in (CHOOSE, REPORT) if name in pairs.splits}
    if len(splits) < 2:  # one split is divided, so that nothing is chosen on what is reported
        undivided = pairs.split(next(iter(splits), pairs.splits[0]))
        keys = (text_key(text) for text in undivided.texts)
        rows = by_fraction(keys, {CHOOSE: 0.5, REPORT: 0.5}, settings.seed)
        splits = {name: undivided.subset(rows[name]) for name in (CHOOSE, REPORT)}
    if settings.examples is not None:
        splits = {
            name: examples.sample(settings.examples, settings.seed) for name, examples in splits.items()
        }
    for name, examples in splits.items():
        if not len(examples):
            raise HeadwiseError(f"task {pairs.name!r} has too few pairs: none is left for the {name} split")
    return splits
