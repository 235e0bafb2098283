"""Ticket-Share (Liang et al. 2021): each task trains under a mask of heads taken from its own fine-tuned
model."""

import json
from contextlib import AbstractContextManager
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from headwise._base.parsing import read_json
from headwise.heads import HeadSet
from headwise.settings import option
from headwise.store import write_text
from headwise.tasks import Task
from headwise.training._masks import from_json, restore_masks, set_masks, to_json
from headwise.training.methods.base import Method, Scoring

if TYPE_CHECKING:
    from headwise.training._loop import TrainingRun


class TicketShare(Method):
    """Fine-tune each task alone, score its heads, mask the least important, rewind, and train all tasks under
    their masks.

    The share to mask is chosen for each task on a part of its training data that its own fine-tuning does not
    see, so that the split which is reported plays no part in it. Masks act in the forward passes of a task's
    batches, in training and after it.
    """

    name: ClassVar[str] = "ticket-share"
    steps_alike: ClassVar[bool] = True

    class Options(Scoring, Method.Options):
        ratios: tuple[Annotated[float, Field(ge=0, le=1)], ...] = option(
            (0.1, 0.2, 0.3, 0.5), "Shares of heads to try masking; 0 (no mask) is always tried."
        )
        held_out: float = option(0.1, "Share of the training data that chooses among them.", ge=0, le=1)

    options: Options

    @classmethod
    def restore(cls, model: Any, record: Any, folder: Path) -> None:
        restore_masks(model, cls.name, record)

    def prepare(self, run: "TrainingRun") -> None:
        file = run.folder / "tickets.json" if run.folder else None
        if file is not None and file.is_file():
            self.heads = from_json(read_json(file))
        else:
            self.heads = {task.name: self._ticket(run, task) for task in run.tasks}
            if file is not None and run.accelerator.is_main_process:
                file.parent.mkdir(parents=True, exist_ok=True)
                write_text(file, json.dumps(to_json(self.heads)))
        set_masks(run.model, self.name, self.heads, run.heads)

    def _ticket(self, run: "TrainingRun", task: Task) -> HeadSet:
        """The heads that `task` does best without, found on a copy of the model."""
        from headwise.scoring import bottom_heads
        from headwise.training._evaluation import evaluate
        from headwise.training._loop import TrainingRun as Inner

        train = run.encoded[run.names.index(task.name)].examples  # less what early stopping chooses on
        order = np.random.default_rng(run.settings.seed).permutation(len(train))
        aside = max(1, int(self.options.held_out * len(train)))
        tuned = task.with_splits(
            train=train.subset(np.sort(order[aside:])), validation=train.subset(np.sort(order[:aside]))
        )
        settings = run.settings.with_changes(
            sampling="proportional", trackers=(), evaluate="end", early_stopping=None, max_examples=None
        )
        folder = run.folder / "tickets" / task.name if run.folder else None
        inner = Inner(deepcopy(run.model), [tuned], Method(), settings, folder=folder)
        inner.train()
        scores = inner.score_tasks(self.options.examples, self.options.variant)[task.name]
        best: tuple[float, HeadSet] = (-np.inf, HeadSet())
        for ratio in sorted({0.0, *self.options.ratios}):
            silent = bottom_heads(scores, fraction=ratio)
            with inner.heads.silenced(silent):
                options: Any = {
                    "max_length": settings.max_length,
                    "accelerator": inner.accelerator,
                    "quiet": True,
                }
                score = evaluate(inner.model, tuned, **options).score
            if not task.higher_is_better:
                score = -score
            if score >= best[0]:  # equals go to the sparser ticket
                best = (score, silent)
        return best[1]

    def around_step(self, run: "TrainingRun", task: str) -> AbstractContextManager[Any]:
        # around the backward pass too: checkpointed activations are recomputed
        return run.model.contexts[task]()
