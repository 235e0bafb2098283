"""EleutherAI's lm-evaluation-harness on a changed model and on the intact one (extra `eval`)."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.harness._result import Evaluation as Evaluation
    from headwise.harness._running import evaluate as evaluate
    from headwise.harness._settings import Evaluate as Evaluate

# public name -> the module that defines it
_WHERE = {"Evaluate": "_settings", "Evaluation": "_result", "evaluate": "_running"}

__all__ = sorted(_WHERE)

__getattr__ = lazily("headwise.harness", _WHERE)
