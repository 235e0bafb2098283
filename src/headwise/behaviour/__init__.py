"""What heads do: induction, copying, sinks, retrieval and other roles, as scores of every head."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.behaviour._logits import direct_logits as direct_logits
    from headwise.behaviour._roles import roles as roles
    from headwise.behaviour._weights import compositions as compositions

if TYPE_CHECKING:  # for other rooms, not for users
    from headwise.behaviour._attention import Watch
    from headwise.behaviour._head_roles import HeadRoles
    from headwise.behaviour._inputs import Reader, Reading
    from headwise.behaviour._patterns import Tokens
    from headwise.behaviour._settings import ROLES, Roles

__getattr__, __all__ = lazily(__name__)
