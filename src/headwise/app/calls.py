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
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; "
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
        "/api/model": lambda body: session.describe(),
        "/api/predict": lambda body: session.predict(
            body.get("text"),
            body.get("second", ""),
            body.get("gates", []),
            body.get("patch"),
            body.get("strength", 0),
        ),
        "/api/attention": lambda body: session.attention(
            body.get("text"),
            body.get("second", ""),
            body.get("layer"),
            body.get("head"),
            body.get("query"),
        ),
        "/api/attentions": lambda body: session.attentions(body.get("text"), body.get("second", "")),
        "/api/examples": lambda body: session.examples(body.get("task")),
        "/api/top": lambda body: session.top(body.get("task"), body.get("fraction", 0.3)),
        "/api/evaluate": lambda body: session.evaluate(
            body.get("task"), body.get("gates", []), body.get("size", 100), body.get("strength", 0)
        ),
        "/api/job": lambda body: session.job,
    }
