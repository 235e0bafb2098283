"""The errors headwise raises on purpose: each message names the value that was wrong, what was expected, and a remedy."""

from collections.abc import Iterable
from difflib import get_close_matches


class HeadwiseError(Exception):
    """Base of every error that a user can cause and fix; the command line prints it as one line, without a traceback."""


class Interrupted(HeadwiseError):
    """Ctrl-C: finished work is kept, and the message says how to resume. The command line exits with status 130."""


class MissingExtra(HeadwiseError):
    """An optional library is needed and not installed.

    Args:
        library: the module that could not be imported.
        extra: the headwise extra that installs it; pip takes the installed headwise for it, so none need be on an index.
    """

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(f"{library} is not installed; install it with: pip install 'headwise[{extra}]'")


def did_you_mean(given: str, choices: Iterable[str]) -> str:
    """ "; did you mean 'sst2'?" where a choice is spelt like what was given, else nothing."""
    near = get_close_matches(given, list(choices), 1)
    return f" (did you mean {near[0]!r}?)" if near else ""
