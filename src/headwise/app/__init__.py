"""The live page for lesion studies by hand."""

from headwise.app.server import Server
from headwise.app.session import Session, open_session

__all__ = ["Server", "Session", "open_session"]
