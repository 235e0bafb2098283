"""Models and results for others: the hub, model cards, policies of key/value caches."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.sharing._card import card as card
    from headwise.sharing._hub import from_pretrained as from_pretrained, push_to_hub as push_to_hub
    from headwise.sharing._policies import save_cache_policy as save_cache_policy

__getattr__, __all__ = lazily(__name__)
