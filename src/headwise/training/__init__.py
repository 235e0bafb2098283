"""One multi-task loop, its samplers, and the methods that change what a step updates.

result = train("bert-base-uncased", [task, other], method="iat", alpha=0.3, delta=0.1, out="runs/first")
result.table(), result.predictions, result.model
"""

from typing import TYPE_CHECKING

from headwise.lazy import lazily

if TYPE_CHECKING:
    from headwise.training.api import train as train
    from headwise.training.evaluating import Evaluation as Evaluation
    from headwise.training.evaluating import evaluate as evaluate
    from headwise.training.evaluating import examine as examine
    from headwise.training.methods import METHODS as METHODS
    from headwise.training.methods import Method as Method
    from headwise.training.methods import make_method as make_method
    from headwise.training.methods.distil import shallow as shallow
    from headwise.training.result import TrainingResult as TrainingResult
    from headwise.training.run import Run as Run
    from headwise.training.settings import TrainingSettings as TrainingSettings

# public name -> the module that defines it; torch and transformers are imported when a name is first used
_WHERE = {
    "METHODS": "methods",
    "Evaluation": "evaluating",
    "Method": "methods",
    "Run": "run",
    "TrainingResult": "result",
    "TrainingSettings": "settings",
    "evaluate": "evaluating",
    "examine": "evaluating",
    "make_method": "methods",
    "shallow": "methods.distil",
    "train": "api",
}

__all__ = sorted(_WHERE)

__getattr__ = lazily("headwise.training", _WHERE)
