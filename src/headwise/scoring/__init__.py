"""How much each head matters to a task: one function per estimator, one result type."""

from typing import TYPE_CHECKING

from headwise.lazy import lazily

if TYPE_CHECKING:
    from headwise.passes.settings import Reading as Reading
    from headwise.scoring.compare import compare_scores as compare_scores
    from headwise.scoring.estimators import METHODS as METHODS
    from headwise.scoring.estimators import score as score
    from headwise.scoring.gradient import gate_gradient as gate_gradient
    from headwise.scoring.selection import random_heads as random_heads
    from headwise.scoring.selection import top_heads as top_heads
    from headwise.scoring.settings import Score as Score

# public name -> the module that defines it
_WHERE = {
    "METHODS": "estimators",
    "Reading": "headwise.passes.settings",
    "Score": "settings",
    "compare_scores": "compare",
    "gate_gradient": "gradient",
    "random_heads": "selection",
    "score": "estimators",
    "top_heads": "selection",
}

__all__ = sorted(_WHERE)

__getattr__ = lazily("headwise.scoring", _WHERE)
