"""What arrives over a connection, within limits: on how long it stands still, and on how long a most request
takes."""

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
        most: seconds that a request may take, however steadily its bytes drip.

    Attributes:
        end: when the present request must have arrived; None between requests.
    """

    def __init__(self, connection: socket.socket, still: float, most: float) -> None:
        self.connection, self.still, self.most = connection, still, most
        self.end: float | None = None

    def begin(self) -> None:
        """A request begins to arrive."""
        self.end = time.monotonic() + self.most

    def finish(self) -> None:
        """It has arrived."""
        self.end = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        seconds = self.still
        if self.end is not None:
            seconds = self.end - time.monotonic()
        if seconds <= 0:
            raise Late(f"it took more than {self.most:g} seconds")
        self.connection.settimeout(min(seconds, self.still))
        try:
            return self.connection.recv_into(buffer)
        except TimeoutError:
            if seconds < self.still:
                raise Late(f"it took more than {self.most:g} seconds") from None
            raise Late(f"nothing came for {self.still:g} seconds") from None
        finally:
            self.connection.settimeout(self.still)  # answers have it all
