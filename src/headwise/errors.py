"""The errors headwise raises on purpose: each message names the value that was wrong, what was expected, and
a remedy."""

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST = 4000  # characters of a message


class HeadwiseError(Exception):
    """Base of every error that a user can cause and fix; the command line prints it as one line, without a
    traceback.

    A message that quotes what a file or a call holds may be of any length: of a long one the beginning and
    the end are kept, which say what is wrong and what to do.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(bounded(value) if isinstance(value, str) else value for value in args))


class Interrupted(HeadwiseError):
    """Ctrl-C: finished work is kept, and the message says how to resume. The command line exits with status
    130."""


class MissingExtra(HeadwiseError):
    """An optional library is needed and not installed.

    Args:
        library: the module that could not be imported.
        extra: the headwise extra that installs it; pip takes the installed headwise for it, so none need be
            on an index.
    """

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(f"{library} is not installed; install it with: pip install 'headwise[{extra}]'")


def bounded(message: str) -> str:
    """A message of at most `LONGEST` characters and a few: of a longer one its beginning and its end."""
    if len(message) <= LONGEST:
        return message
    return f"{message[: LONGEST * 3 // 4]}… ({len(message):,} characters in all) …{message[-LONGEST // 4 :]}"


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """ " (did you mean 'sst2'?)" where a choice is spelt like the name, else nothing."""
    if len(name) >= 200:  # comparing long texts takes too long
        return ""
    near = get_close_matches(name, [choice for choice in choices if len(choice) < 200], 1)
    return f" (did you mean {near[0]!r}?)" if near else ""
