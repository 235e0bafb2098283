"""Odd requests to the app: raw bytes, or the body of a call; each with the status that it must get. Also read by benchmarks/attack.py."""

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

CALLS = (
    "/api/model",
    "/api/predict",
    "/api/attention",
    "/api/examples",
    "/api/top",
    "/api/evaluate",
    "/api/job",
)
DEEP = b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
BODIES: dict[str, bytes] = {
    "not UTF-8": b'{"text": "\xff\xfe"}',
    "UTF-16": '{"text": "a"}'.encode("utf-16"),
    "nested deeply": DEEP,
    "nested objects": b'{"a":' * 30_000 + b"1" + b"}" * 30_000,
    "huge integer": b'{"layer": ' + b"9" * 5000 + b"}",
    "not JSON": b"{text: 1}",
    "cut off": b'{"text": "a',
    "a list": b"[1, 2]",
    "a number": b"3",
    "null": b"null",
    "a string": b'"text"',
    "two values": b"{} {}",
    "NUL": b"\0\0\0",
}
WRONG: list[Any] = [
    None,
    True,
    3,
    -1,
    1e308,
    float("nan"),
    "x" * 3000,
    "\ud800",
    "",
    [],
    [[]],
    {},
    {"a": 1},
    10**400,
]
FIELDS = {
    "/api/predict": {"text": "red cat", "second": "", "gates": []},
    "/api/attention": {"text": "red cat", "second": "", "layer": 0, "head": 0},
    "/api/examples": {"task": "mood"},
    "/api/top": {"task": "mood", "fraction": 0.3},
    "/api/evaluate": {"task": "mood", "gates": [], "size": 10},
}
GATES = [
    [[0]],
    [[0, 0, 2]],
    [[0, 0, "1"]],
    [[99, 0, 1]],
    [[0, -1, 1]],
    [[True, 0, 1]],
    [[0.5, 0, 1]],
    [[0, 0, None]],
    [[0, 0, 1]] * 999,
    ["a"],
]
LINES: dict[str, tuple[bytes, int]] = {
    "origin that is no address": (
        b"POST /api/model HTTP/1.1\r\nHost: localhost\r\nOrigin: http://[\r\nContent-Length: 2\r\n\r\n{}",
        403,
    ),
    "origin null": (
        b"POST /api/model HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\nContent-Length: 2\r\n\r\n{}",
        403,
    ),
    "another origin": (
        b"POST /api/model HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\nContent-Length: 2\r\n\r\n{}",
        403,
    ),
    "an empty origin": (
        b"POST /api/model HTTP/1.1\r\nHost: localhost\r\nOrigin:\r\nContent-Length: 2\r\n\r\n{}",
        403,
    ),
    "an empty origin from elsewhere": (
        b"POST /api/model HTTP/1.1\r\nHost: localhost\r\nOrigin: \r\nSec-Fetch-Site: cross-site\r\nContent-Length: 2\r\n\r\n{}",
        403,
    ),
    "no origin from elsewhere": (
        b"POST /api/model HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\nContent-Length: 2\r\n\r\n{}",
        403,
    ),
    "the page itself": (
        b"POST /api/model HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nSec-Fetch-Site: same-origin\r\n"
        b"Content-Length: 2\r\n\r\n{}",
        200,
    ),
    "two origins": (
        b"POST /api/model HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nOrigin: http://evil.example\r\n"
        b"Content-Length: 2\r\n\r\n{}",
        400,
    ),
    "two hosts": (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400),
    "two hosts of a call": (
        b"POST /api/model HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}",
        400,
    ),
    "length in superscript": (
        b"POST /api/model HTTP/1.1\r\nHost: localhost\r\nContent-Length: \xb2\r\n\r\n{}",
        400,
    ),
    "negative length": (b"POST /api/model HTTP/1.1\r\nHost: localhost\r\nContent-Length: -2\r\n\r\n{}", 400),
    "length of 5,000 digits": (
        b"POST /api/model HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"1" * 5000 + b"\r\n\r\n{}",
        400,
    ),
    "two lengths": (
        b"POST /api/model HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        400,
    ),
    "no length": (b"POST /api/model HTTP/1.1\r\nHost: localhost\r\n\r\n{}", 411),
    "chunks": (
        b"POST /api/model HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        411,
    ),
    "too long": (
        b"POST /api/model HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000\r\n\r\n" + b" " * 300_000,
        413,
    ),
    "fewer bytes than said": (
        b"POST /api/model HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{}",
        400,
    ),
    "another host": (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 403),
    "no such page": (b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
    "no such call": (b"POST /api/shutdown HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", 404),
    "unknown method": (b"BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n", 501),
    "unknown version": (b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", 505),
    "version in superscript": (b"GET / HTTP/1.\xb2\r\nHost: localhost\r\n\r\n", 400),
    "no request line": (b"\r\n", 400),
    "a line of separators": (b"\x1c\r\n", 400),
    "noise": (bytes(range(128, 256)) + b"\r\n\r\n", 400),
    "a line of 70,000 bytes": (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
    "a header of 70,000 bytes": (
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
        431,
    ),
    "200 headers": (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431),
}


def raw(address: tuple[str, int], sent: bytes) -> tuple[int, dict[str, str], bytes]:
    """Sends bytes, ends the sending, and reads the first answer: (status, headers, content)."""
    with socket.create_connection(address, timeout=60) as link:
        link.sendall(sent)
        link.shutdown(socket.SHUT_WR)
        answer = http.client.HTTPResponse(link)
        answer.begin()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


def posted(path: str, body: bytes) -> bytes:
    """A call of the page as bytes."""
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def odd_requests() -> Iterator[tuple[str, bytes, tuple[int, ...]]]:
    """(what it is, its bytes, the statuses it may get)"""
    for name, (sent, status) in LINES.items():
        yield name, sent, (status,)
    for name, body in BODIES.items():
        yield name, posted("/api/predict", body), (400,)
    for path, fields in FIELDS.items():
        for field in fields:
            for wrong in WRONG:
                fine = field == "second" and wrong == ""
                content = json.dumps({**fields, field: wrong}).encode()
                allowed = (200, 400) if fine or wrong in ([], 3) else (400,)
                yield f"{path} with {field} = {str(wrong)[:30]}", posted(path, content), allowed
    for gates in GATES:
        yield (
            f"gates {str(gates)[:30]}",
            posted("/api/predict", json.dumps({"text": "red cat", "gates": gates}).encode()),
            (400,),
        )
