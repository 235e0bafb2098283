"""How much each head matters to a task: one function per estimator, one result type."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.scoring._compare import compare_scores as compare_scores
    from headwise.scoring._estimators import score as score
    from headwise.scoring._files import load_scores, save_scores as save_scores
    from headwise.scoring._scores import HeadScores as HeadScores
    from headwise.scoring._selection import (
        bottom_heads as bottom_heads,
        random_heads as random_heads,
        top_heads as top_heads,
    )
    from headwise.scoring._settings import ESTIMATORS as ESTIMATORS

if TYPE_CHECKING:  # for other rooms, not for users
    from headwise._passes.settings import Reading
    from headwise.scoring import _concrete as concrete
    from headwise.scoring._concrete import CLAIMED_GATE
    from headwise.scoring._estimators import estimate
    from headwise.scoring._files import SCORES_FILE, given_scores, keep_scores
    from headwise.scoring._gradient import gate_gradient
    from headwise.scoring._selection import count_for
    from headwise.scoring._settings import VARIANTS, Estimation, Score, check_options

__getattr__, __all__ = lazily(__name__)
