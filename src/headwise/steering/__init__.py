"""From finding to use: heads that tell statements apart, steered towards one kind of statement
(inference-time intervention)."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.steering._intervention import steer as steer
    from headwise.steering._result import Steering as Steering

if TYPE_CHECKING:  # for other rooms, not for users
    from headwise.steering._settings import Steer

__getattr__, __all__ = lazily(__name__)
