"""How good a model is on a task: the metric with its interval, and every example's own answer."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.evaluation._api import evaluate as evaluate
    from headwise.evaluation._result import Evaluation as Evaluation, Evaluations as Evaluations

if TYPE_CHECKING:  # for other rooms, not for users
    from headwise.evaluation._asking import answers
    from headwise.evaluation._settings import Evaluating

__getattr__, __all__ = lazily(__name__)
