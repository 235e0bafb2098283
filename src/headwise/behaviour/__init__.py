"""What heads do: induction, copying, sinks, retrieval and other roles, as scores of every head."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.behaviour._logits import direct_logits as direct_logits
    from headwise.behaviour._measuring import roles as roles
    from headwise.behaviour._settings import ROLES as ROLES
    from headwise.behaviour._settings import Roles as Roles
    from headwise.behaviour._weights import compositions as compositions

# public name -> the module that defines it
_WHERE = {
    "ROLES": "_settings",
    "Roles": "_settings",
    "compositions": "_weights",
    "direct_logits": "_logits",
    "roles": "_measuring",
}

__all__ = sorted(_WHERE)

__getattr__ = lazily("headwise.behaviour", _WHERE)
