"""What the page may ask of a session, and how its answers are labelled."""

from collections.abc import Callable
from typing import Any

from headwise.app.session import Session

JSON = "application/json"
PAGES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
}
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    b'{"error": "too many connections are open"}'
)


def calls(session: Session) -> dict[str, Callable[[dict[str, Any]], Any]]:
    """What the page may ask, by path; each takes the JSON object that was sent."""
    return {
        "/api/model": lambda given: session.describe(),
        "/api/predict": lambda given: session.predict(
            given.get("text"),
            given.get("second", ""),
            given.get("gates", []),
            given.get("patch"),
            given.get("strength", 0),
        ),
        "/api/attention": lambda given: session.attention(
            given.get("text"),
            given.get("second", ""),
            given.get("layer"),
            given.get("head"),
            given.get("query"),
        ),
        "/api/attentions": lambda given: session.attentions(given.get("text"), given.get("second", "")),
        "/api/examples": lambda given: session.examples(given.get("task")),
        "/api/top": lambda given: session.top(given.get("task"), given.get("fraction", 0.3)),
        "/api/evaluate": lambda given: session.evaluate(
            given.get("task"), given.get("gates", []), given.get("size", 100), given.get("strength", 0)
        ),
        "/api/job": lambda given: session.job,
    }
