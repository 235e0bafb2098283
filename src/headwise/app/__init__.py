"""The live page for lesion studies by hand."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.app.server import Server
    from headwise.app.session import Session, open_session

__getattr__, __all__ = lazily(__name__)
