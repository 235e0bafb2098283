"""Models and results for others: the hub, model cards, policies of key/value caches."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.sharing._card import Card as Card
    from headwise.sharing._card import card as card
    from headwise.sharing._hub import from_pretrained as from_pretrained
    from headwise.sharing._hub import push_to_hub as push_to_hub
    from headwise.sharing._policies import save_cache_policy as save_cache_policy

# public name -> the module that defines it
_WHERE = {
    "Card": "_card",
    "card": "_card",
    "from_pretrained": "_hub",
    "push_to_hub": "_hub",
    "save_cache_policy": "_policies",
}

__all__ = sorted(_WHERE)

__getattr__ = lazily("headwise.sharing", _WHERE)
