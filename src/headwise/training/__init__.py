"""One multi-task loop, its samplers, and the methods that change what a step updates.

result = train("bert-base-uncased", [task, other], method="iat", alpha=0.3, delta=0.1, out="runs/first")
result.table(), result.predictions, result.model
"""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.training._api import train as train
    from headwise.training._evaluation import Evaluation as Evaluation
    from headwise.training._evaluation import evaluate as evaluate
    from headwise.training._evaluation import examine as examine
    from headwise.training._fewshot import few_shot as few_shot
    from headwise.training._grid import compare as compare
    from headwise.training._loop import TrainingRun as TrainingRun
    from headwise.training._result import TrainingResult as TrainingResult
    from headwise.training._settings import FewShot as FewShot
    from headwise.training._settings import Train as Train
    from headwise.training._trainer import HeadTrainingCallback as HeadTrainingCallback
    from headwise.training._trainer import TrainerData as TrainerData
    from headwise.training._trainer import TrainerModel as TrainerModel
    from headwise.training.methods import METHODS as METHODS
    from headwise.training.methods import Method as Method
    from headwise.training.methods import make_method as make_method
    from headwise.training.methods.distil import shallow as shallow

# public name -> the module that defines it; torch and transformers are imported when a name is first used
_WHERE = {
    "METHODS": "methods",
    "Evaluation": "_evaluation",
    "FewShot": "_settings",
    "HeadTrainingCallback": "_trainer",
    "Method": "methods",
    "Train": "_settings",
    "TrainerData": "_trainer",
    "TrainerModel": "_trainer",
    "TrainingResult": "_result",
    "TrainingRun": "_loop",
    "compare": "_grid",
    "evaluate": "_evaluation",
    "examine": "_evaluation",
    "few_shot": "_fewshot",
    "make_method": "methods",
    "shallow": "methods.distil",
    "train": "_api",
}

__all__ = sorted(_WHERE)

__getattr__ = lazily("headwise.training", _WHERE)
