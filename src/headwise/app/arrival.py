"""What arrives over a connection, within limits: on how long it stands still, and on how long a whole request takes."""

import io
import socket
import time
from typing import Any


class Late(TimeoutError):
    """A request that did not arrive in time; says which limit it broke."""


class Arrival(io.RawIOBase):
    """The bytes of a connection, as a file.

    Args:
        connection: from which they come.
        still: seconds that may pass without a byte.
        whole: seconds that a request may take, however steadily its bytes drip.

    Attributes:
        end: when the present request must have arrived; None between requests.
    """

    def __init__(self, connection: socket.socket, still: float, whole: float) -> None:
        self.connection, self.still, self.whole = connection, still, whole
        self.end: float | None = None

    def begin(self) -> None:
        """A request begins to arrive."""
        self.end = time.monotonic() + self.whole

    def finish(self) -> None:
        """It has arrived."""
        self.end = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self.still if self.end is None else self.end - time.monotonic()
        if left <= 0:
            raise Late(f"it took more than {self.whole:g} seconds")
        self.connection.settimeout(min(left, self.still))
        try:
            return self.connection.recv_into(buffer)
        except TimeoutError:
            if left < self.still:
                raise Late(f"it took more than {self.whole:g} seconds") from None
            raise Late(f"nothing came for {self.still:g} seconds") from None
        finally:
            self.connection.settimeout(self.still)  # answers have it all
