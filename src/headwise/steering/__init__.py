"""From finding to use: heads that tell statements apart, steered towards one kind of statement (inference-time intervention)."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.steering._intervention import steer as steer
    from headwise.steering._result import Steering as Steering
    from headwise.steering._settings import Steer as Steer

# public name -> the module that defines it
_WHERE = {"Steer": "_settings", "Steering": "_result", "steer": "_intervention"}

__all__ = sorted(_WHERE)

__getattr__ = lazily("headwise.steering", _WHERE)
