"""How much each head matters to a task: one function per estimator, one result type."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise._passes.settings import Reading as Reading
    from headwise.scoring._compare import compare_scores as compare_scores
    from headwise.scoring._estimators import ESTIMATORS as ESTIMATORS
    from headwise.scoring._estimators import score as score
    from headwise.scoring._files import load_scores as load_scores
    from headwise.scoring._files import save_scores as save_scores
    from headwise.scoring._gradient import gate_gradient as gate_gradient
    from headwise.scoring._selection import random_heads as random_heads
    from headwise.scoring._selection import top_heads as top_heads
    from headwise.scoring._settings import Score as Score

# public name -> the module that defines it
_WHERE = {
    "ESTIMATORS": "_estimators",
    "Reading": "headwise._passes.settings",
    "Score": "_settings",
    "compare_scores": "_compare",
    "gate_gradient": "_gradient",
    "load_scores": "_files",
    "random_heads": "_selection",
    "save_scores": "_files",
    "score": "_estimators",
    "top_heads": "_selection",
}

__all__ = sorted(_WHERE)

__getattr__ = lazily("headwise.scoring", _WHERE)
