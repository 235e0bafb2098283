"""The errors of this room."""

from headwise.errors import HeadwiseError


class UnsupportedModel(HeadwiseError):
    """The heads of a model cannot be found, or not all of them; the message says what was looked for and what
    was found."""


class HeadsDidNotFire(HeadwiseError):
    """A pass that should have gone through the gated heads did not reach them, so its result would be
    silently ungated."""
