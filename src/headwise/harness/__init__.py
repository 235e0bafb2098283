"""EleutherAI's lm-evaluation-harness on a changed model and on the intact one (extra `eval`)."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.harness._running import run_harness as run_harness

if TYPE_CHECKING:  # for other rooms, not for users
    from headwise.harness._result import HarnessResult
    from headwise.harness._settings import Evaluate

__getattr__, __all__ = lazily(__name__)
