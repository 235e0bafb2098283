"""One multi-task loop, its samplers, and the methods that change what a step updates.

result = train("bert-base-uncased", [task, other], method="iat", alpha=0.3, delta=0.1, out="runs/first")
result.table(), result.predictions, result.model
"""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.evaluation._api import evaluate as evaluate
    from headwise.evaluation._result import Evaluation as Evaluation
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
    from headwise.training.methods import METHODS as METHODS, Method as Method, make_method as make_method
    from headwise.training.methods.distil import shallow as shallow

__getattr__, __all__ = lazily(__name__)
