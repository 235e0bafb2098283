"""A small web server for one session: this machine only, JSON in and out, limits on size and on waiting work.

The standard library's server is enough: one page, a handful of calls, one user. It never executes what it is sent; every value is
checked in `Session`.
"""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from headwise.app.session import Session
from headwise.errors import HeadwiseError

LOCAL = ("localhost", "127.0.0.1", "[::1]")
MAX_BODY = 256 * 1024  # bytes
WAITING = 8  # requests worked on or waiting; more are refused
PAGES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src data:",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
}


def calls(session: Session) -> dict[str, Callable[[dict[str, Any]], Any]]:
    """What the page may ask, by path; each takes the JSON object that was sent."""
    return {
        "/api/model": lambda given: session.describe(),
        "/api/predict": lambda given: session.predict(given.get("text"), given.get("second", ""), given.get("gates", [])),
        "/api/attention": lambda given: session.attention(
            given.get("text"), given.get("second", ""), given.get("layer"), given.get("head")
        ),
        "/api/examples": lambda given: session.examples(given.get("task")),
        "/api/top": lambda given: session.top(given.get("task"), given.get("fraction", 0.3)),
        "/api/evaluate": lambda given: session.evaluate(given.get("task"), given.get("gates", []), given.get("size", 100)),
        "/api/job": lambda given: session.job,
    }


class Server(ThreadingHTTPServer):
    """Serves a session.

    Args:
        session: the model behind the page.
        host: where to listen; this machine alone unless the user asks for more.
        port: 0 takes a free one.
        hosts: further host names that requests may name (a reverse proxy's, say).
    """

    daemon_threads = True

    def __init__(self, session: Session, host: str = "127.0.0.1", port: int = 0, hosts: tuple[str, ...] = ()) -> None:
        self.calls = calls(session)
        self.allowed = {*LOCAL, *hosts}
        self.room = threading.BoundedSemaphore(WAITING)
        super().__init__((host, port), Handler)

    @property
    def url(self) -> str:
        """Where a browser finds the page."""
        return f"http://{self.server_address[0]}:{self.server_address[1]}/"  # type: ignore[str-bytes-safe]


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self) -> None:
        """The page and its parts."""
        if not self._welcome():
            return
        if self.path not in PAGES:
            self._problem(404, "there is nothing here")
            return
        name, kind = PAGES[self.path]
        self._send(200, files("headwise.app").joinpath(name).read_bytes(), kind)

    def do_POST(self) -> None:
        """A call of the page."""
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > MAX_BODY:
            self.close_connection = True
            self.rfile.read(min(int(length) if length.isdigit() else 0, 16 * MAX_BODY))  # so that the answer can be read
            self._problem(413, f"a request may hold {MAX_BODY} bytes")
            return
        body = self.rfile.read(int(length))
        if not self._welcome():
            return
        origin = self.headers.get("Origin")
        if origin and urlsplit(origin).netloc != self.headers.get("Host"):
            self._problem(403, "requests from other pages are refused")
            return
        call = self.server.calls.get(self.path)
        if call is None:
            self._problem(404, "there is no such call")
            return
        if not self.server.room.acquire(blocking=False):
            self._problem(503, "too much is waiting already; try again in a moment")
            return
        try:
            given = json.loads(body or b"{}")
            if not isinstance(given, dict):
                raise HeadwiseError("a JSON object is expected")
            self._send(200, json.dumps(call(given)).encode(), "application/json")
        except (HeadwiseError, json.JSONDecodeError) as error:
            self._problem(400, str(error))
        finally:
            self.server.room.release()

    def _welcome(self) -> bool:
        """Refuses requests that name another host: a page elsewhere could otherwise reach this one by a name of its own."""
        if self._known_host():
            return True
        self._problem(403, "this host name is not served; start the app with --allow-host if it should be")
        return False

    def _known_host(self) -> bool:
        host = (self.headers.get("Host") or "").lower()
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        return name in self.server.allowed

    def _problem(self, status: int, message: str) -> None:
        self._send(status, json.dumps({"error": message}).encode(), "application/json")

    def _send(self, status: int, content: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Keeps quiet: what people type is theirs."""
