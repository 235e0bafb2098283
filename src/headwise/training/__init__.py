"""One multi-task loop, its samplers, and the methods that change what a step updates.

result = train("bert-base-uncased", [task, other], method="iat", alpha=0.3, delta=0.1, out="runs/first")
result.table(), result.predictions, result.model
"""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.evaluation import Evaluation, evaluate as evaluate
    from headwise.training._api import train as train
    from headwise.training._evaluation import examine as examine
    from headwise.training._fewshot import few_shot as few_shot
    from headwise.training._grid import compare as compare
    from headwise.training._loop import TrainingRun as TrainingRun
    from headwise.training._result import TrainingResult as TrainingResult
    from headwise.training._settings import FewShot as FewShot, Train as Train
    from headwise.training._trainer import (
        HeadTrainingCallback as HeadTrainingCallback,
        TrainerData as TrainerData,
        TrainerModel as TrainerModel,
    )
    from headwise.training.methods import METHODS as METHODS, Method as Method, make_method
    from headwise.training.methods.distil import shallow as shallow

if TYPE_CHECKING:  # for other rooms, not for users
    from headwise.training._grid import grid_entries
    from headwise.training._processes import is_first_process
    from headwise.training._result import TRAINING_FILE
    from headwise.training._section import score_chart, training_findings, trainings_section
    from headwise.training._settings import Sampling, Shots, Transfer
    from headwise.training._submission import write_submissions

__getattr__, __all__ = lazily(__name__)
