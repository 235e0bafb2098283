"""The command line that is being carried out, so that what it makes can say how to make it again."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_command: ContextVar[str] = ContextVar("headwise_command", default="")


def given() -> str:
    """The command as it was typed; "" where headwise is called from Python."""
    return _command.get()


@contextmanager
def carrying_out(command: str) -> Iterator[None]:
    """Until it is left, results are made by `command`; "" stands for none."""
    token = _command.set(command)
    try:
        yield
    finally:
        _command.reset(token)
