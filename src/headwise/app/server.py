"""A small web server for one session: this machine only, JSON in and out, limits on size and on waiting work.

The standard library's server is enough: one page, a handful of calls, one user. It never executes what it is
sent; every value is checked in `Session`. Every request gets an answer with a status, and every answer but
the page itself is JSON.
"""

import io
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from headwise._base.names import shown
from headwise._base.parsing import one_line, parse_json, whole_number
from headwise.app.arrival import Arrival, Late
from headwise.app.calls import FULL, HEADERS, JSON, PAGES, calls
from headwise.app.session import Session
from headwise.errors import HeadwiseError

LOCAL = ("localhost", "127.0.0.1", "[::1]")
MAX_BODY = 256 * 1024  # bytes
MAX_PORT = 65535
WAITING = 8  # requests worked on or waiting; more are refused
CONNECTIONS = 256  # at once; others are refused
LINGER = 2  # seconds that a connection is read on after its last answer, so that the answer arrives


class Refused(HeadwiseError):
    """A request that is not answered, and the status that says so."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Server(ThreadingHTTPServer):
    """Serves a session.

    Args:
        session: the model behind the page.
        host: where to listen; this machine alone unless the user asks for more.
        port: Port to listen on; 0 picks a free one.
        hosts: further host names that requests may name (a reverse proxy's, say).

    Raises:
        HeadwiseError: the port is taken or does not exist, or this machine has no such address.
    """

    daemon_threads = True
    request_queue_size = CONNECTIONS  # connections that wait to be taken; of more, some would be reset

    def __init__(
        self, session: Session, host: str = "127.0.0.1", port: int = 0, hosts: tuple[str, ...] = ()
    ) -> None:
        self.calls = calls(session)
        self.allowed = {*LOCAL, *hosts}
        self.room = threading.BoundedSemaphore(WAITING)
        self.connections = threading.BoundedSemaphore(CONNECTIONS)
        if not 0 <= port <= MAX_PORT:
            raise HeadwiseError(
                f"port is {shown(port)}; it must be a whole number from 0 (any free one) to {MAX_PORT}"
            )
        try:
            super().__init__((host, port), Handler)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or one_line(error)
            raise HeadwiseError(
                f"the app cannot listen on {host}, port {port}: {why}; choose another --port (0 takes a free "
                "one) or --host"
            ) from error

    @property
    def url(self) -> str:
        """Where a browser finds the page."""
        return f"http://{self.server_address[0]}:{self.server_address[1]}/"  # type: ignore[str-bytes-safe]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Gives a connection a thread of its own, if there are not too many already."""
        if self.connections.acquire(blocking=False):
            try:
                super().process_request(request, client_address)
            except BaseException:  # no thread could be started
                self.connections.release()
                raise
            return
        with suppress(OSError):
            request.settimeout(0)  # a client with this many connections does not read them all
            request.send(FULL)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Handles one connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """One line for what went wrong between the server and a browser; one that went away is nothing to
        report."""
        error = sys.exception()
        if error is not None and not isinstance(error, ConnectionError | TimeoutError):
            sys.stderr.write(f"headwise app: a request failed: {type(error).__name__}: {one_line(error)}\n")


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    protocol_version = "HTTP/1.1"
    timeout = 30  # seconds that a request may stand still
    most = 60  # seconds in which a request must have arrived
    raw_requestline: bytes
    answered = False  # the present request
    why_late = "its sender has gone"

    def handle_one_request(self) -> None:
        """As the standard library does, which silently hangs up on a client that stops in the middle of a
        request line or of headers."""
        self.requestline, self.command, self.answered = "", "", False
        try:
            begun = bool(self.rfile.peek(1))  # type: ignore[attr-defined]
        except TimeoutError:  # a browser that keeps its connection for later
            begun = False
        if not begun:
            self.close_connection = True
            return
        self.arrival.begin()
        super().handle_one_request()
        if not self.answered:
            self.send_error(408, self._late())
        self.arrival.finish()

    def setup(self) -> None:
        """Reads the connection through an `Arrival`."""
        super().setup()
        self.rfile.close()
        self.arrival = Arrival(self.connection, self.timeout, self.most)
        self.rfile = io.BufferedReader(self.arrival)

    def log_error(self, format: str, *args: Any) -> None:
        """Notes why the standard library gave a request up, for the answer."""
        if args and isinstance(args[0], Late):
            self.why_late = str(args[0])

    def do_GET(self) -> None:
        """The page and its parts."""
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # what follows is not the next request
        self._answer(self._page)

    def do_POST(self) -> None:
        """A call of the page."""
        self._answer(self._called)

    def parse_request(self) -> bool:
        """As the standard library does, but for an empty line, on which it would silently hang up."""
        if not self.raw_requestline.decode("iso-8859-1").split():  # as the standard library reads it
            self.requestline, self.command = "", ""
            self.send_error(400, "the request is empty")
            return False
        return super().parse_request()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """The standard library's own refusals (a broken request line, an unknown method, too many headers),
        as JSON."""
        self.close_connection = True
        self._problem(code, message or self.responses.get(code, ("the request was refused", ""))[0])

    def finish(self) -> None:
        """Lets the answer arrive before the connection ends: closing one with unread bytes would take the
        answer back."""
        with suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_WR)
            end = time.monotonic() + LINGER
            while time.monotonic() < end:
                self.connection.settimeout(max(0.001, end - time.monotonic()))
                if not self.connection.recv(MAX_BODY):
                    break
        super().finish()

    def _answer(self, find: Callable[[], tuple[bytes, str]]) -> None:
        """Sends what `find` gives, or why there is nothing to send."""
        try:
            content, kind = find()
        except Refused as refused:
            self._problem(refused.status, str(refused))
        except HeadwiseError as error:
            self._problem(400, str(error))
        except Late as late:
            self.close_connection, self.why_late = True, str(late)
            self._problem(408, self._late())
        except ConnectionError:
            raise  # the client has gone
        except Exception as error:
            self._problem(500, f"internal error in the app: {type(error).__name__}: {one_line(error)}")
        else:
            self._send(200, content, kind)

    def _page(self) -> tuple[bytes, str]:
        self._check_host()
        if self.path not in PAGES:
            raise Refused(404, "not found")
        name, kind = PAGES[self.path]
        return files("headwise.app").joinpath(name).read_bytes(), kind

    def _called(self) -> tuple[bytes, str]:
        body = self._body()
        self._check_host()
        self._check_origin()
        call = self.server.calls.get(self.path)
        if call is None:
            raise Refused(404, "no such call")
        fields = parse_json(body or b"{}", "the request")
        if not isinstance(fields, dict):
            raise HeadwiseError("a JSON object is expected")
        if not self.server.room.acquire(blocking=False):
            raise Refused(503, "too many requests are waiting; try again in a moment")
        try:
            result = call(fields)
        finally:
            self.server.room.release()
        try:
            return json.dumps(result, allow_nan=False).encode(), JSON
        except ValueError:
            raise Refused(
                500, "the model's answer holds numbers that are not finite: its weights may be damaged"
            ) from None

    def _body(self) -> bytes:
        """What a call sends. A body of unknown length is not read, so the connection ends after such a
        request."""
        lengths = self.headers.get_all("Content-Length", [])
        length = whole_number(lengths[0]) if len(lengths) == 1 else None
        if "Transfer-Encoding" in self.headers:
            self.close_connection = True
            raise Refused(
                411, "chunked requests are not supported: send the whole body with its Content-Length"
            )
        if length is None:
            self.close_connection = True
            if not lengths:
                raise Refused(411, "the request has no Content-Length")
            raise Refused(400, f"the Content-Length is {shown(', '.join(lengths))}, not one whole number")
        if length > MAX_BODY:
            self.close_connection = True
            self.rfile.read(min(length, 16 * MAX_BODY))  # so that the answer can be read
            raise Refused(413, f"a request is limited to {MAX_BODY} bytes")
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            raise Refused(400, f"the request ended after {len(body)} of its {length} bytes")
        return body

    def _check_host(self) -> None:
        """Refuses requests that name another host: a page elsewhere could otherwise reach this one by a name
        of its own."""
        host = (self._only("Host") or "").lower()
        name = host
        if not host.endswith("]"):
            name = host.rpartition(":")[0] or host
        if name not in self.server.allowed:
            raise Refused(403, "this host name is not allowed; start the app with --allow-host to allow it")

    def _check_origin(self) -> None:
        """Refuses what other pages send: browsers say where a call comes from, and whether that is
        elsewhere."""
        origin, site = self._only("Origin"), self._only("Sec-Fetch-Site")
        try:
            same = origin is None or urlsplit(origin).netloc == self.headers.get("Host")
        except ValueError:  # not an address at all
            same = False
        if not same or site not in (None, "same-origin", "none"):
            raise Refused(403, "requests from other pages are refused")

    def _only(self, name: str) -> str | None:
        """A header that may be there once: which of two counts, those who read them disagree."""
        values = self.headers.get_all(name, [])
        if len(values) > 1:
            self.close_connection = True
            raise Refused(400, f"the request has {len(values)} {name} headers; one is allowed")
        return values[0] if values else None

    def _late(self) -> str:
        return f"the request did not arrive in full: {self.why_late}"

    def _problem(self, status: int, message: str) -> None:
        self._send(status, json.dumps({"error": message}).encode(), JSON)

    def _send(self, status: int, content: bytes, kind: str) -> None:
        self.answered = True
        # a broken request line leaves 0.9, whose answers have no status
        self.request_version = self.protocol_version
        self.send_response(status)
        headers = {**HEADERS, "Content-Type": kind, "Content-Length": str(len(content))}
        if self.close_connection:
            headers["Connection"] = "close"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Keeps quiet: what people type is theirs."""
