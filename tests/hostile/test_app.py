"""Every request gets a status and JSON, whatever it holds; the server goes on, and prints nothing but one line where it must."""

import http.client
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import oddities
import pytest
import toy

from headwise.app import Server, Session, server as server_module
from headwise.app.server import CONNECTIONS, Handler
from headwise.errors import HeadwiseError

ODD = {name: (sent, allowed) for name, sent, allowed in oddities.odd_requests()}


@contextmanager
def serving(session: Session) -> Iterator[Server]:
    server = Server(session)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def session() -> Session:
    task = toy.task("mood")
    return Session(toy.model([task]), [task], "toy")


@pytest.fixture(scope="module")
def server(session: Session) -> Iterator[Server]:
    with serving(session) as server:
        yield server


@pytest.mark.parametrize("name", ODD)
def test_an_odd_request_is_answered(server: Server, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    sent, allowed = ODD[name]
    status, headers, content = oddities.raw(server.server_address[:2], sent)  # type: ignore[arg-type]
    answer = json.loads(content)
    assert status in allowed, answer
    assert headers["content-type"] == "application/json"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    if status != 200:
        assert len(answer["error"]) < 400
        assert "\n" not in answer["error"]
    assert capfd.readouterr() == ("", "")


def test_it_still_works_after_all_that(server: Server) -> None:
    body = json.dumps({"text": "red cat", "gates": [[0, 1, 0.5]]}).encode()
    status, _, content = oddities.raw(server.server_address[:2], oddities.posted("/api/predict", body))  # type: ignore[arg-type]
    assert status == 200
    assert json.loads(content)[0]["task"] == "mood"


def test_two_requests_on_one_connection(server: Server) -> None:
    with socket.create_connection(server.server_address[:2], timeout=30) as link:  # type: ignore[arg-type]
        link.sendall(oddities.posted("/api/predict", b"[]") + oddities.posted("/api/model", b"{}"))
        link.shutdown(socket.SHUT_WR)
        found = b""
        while part := link.recv(65536):
            found += part
    assert found.count(b"HTTP/1.1 400") == 1
    assert found.count(b"HTTP/1.1 200") == 1


STALLED = {
    "in the request line": b"POST /api/mo",
    "in the headers": b"POST /api/model HTTP/1.1\r\nHost: local",
    "after a header": b"POST /api/model HTTP/1.1\r\nHost: localhost\r\n",
    "in the body": oddities.posted("/api/model", b"{}")[:-1],
    "in the second request": oddities.posted("/api/model", b"{}") + b"GET / HTTP/1.1\r\n",
}


@pytest.mark.parametrize("where", STALLED)
def test_a_client_that_stalls_is_told(
    server: Server, where: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Handler, "timeout", 0.2)
    with socket.create_connection(server.server_address[:2], timeout=30) as link:  # type: ignore[arg-type]
        link.sendall(STALLED[where])
        found = b""
        while part := link.recv(65536):
            found += part
    *before, last = found.split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in before] == [b"200"] * ("second" in where)
    assert last.startswith(b"408 ")
    assert b"Connection: close" in last
    told = json.loads(last.partition(b"\r\n\r\n")[2])
    assert told == {"error": "the request did not arrive in full: nothing came for 0.2 seconds"}
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("where", ["in the request line", "in the headers", "in the body"])
def test_a_request_that_drips_in_is_told_when_its_time_is_over(
    server: Server, where: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It never stands still for long enough to be called stalled, and would hold its thread for hours."""
    monkeypatch.setattr(Handler, "timeout", 0.4)
    monkeypatch.setattr(Handler, "most", 0.6)
    head = STALLED[where] + (b"X: " if where == "in the headers" else b"")
    if where == "in the body":
        head = oddities.posted("/api/model", b" " * 1000)[:-1000]
    answer = b""
    with socket.create_connection(server.server_address[:2], timeout=30) as link:  # type: ignore[arg-type]
        link.sendall(head)
        link.settimeout(0.05)
        for _ in range(200):  # each waits for the answer for 0.05 seconds
            with suppress(TimeoutError):
                link.sendall(b" ")
                answer = link.recv(65536)
            if answer:
                break
        link.settimeout(30)
        while part := link.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 408 ")
    told = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert told == {"error": "the request did not arrive in full: it took more than 0.6 seconds"}
    assert capfd.readouterr() == ("", "")


def test_the_time_of_a_request_is_its_own(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is kept open may live longer than a request may take."""
    monkeypatch.setattr(Handler, "most", 0.3)
    with socket.create_connection(server.server_address[:2], timeout=30) as link:  # type: ignore[arg-type]
        for _ in range(4):
            link.sendall(oddities.posted("/api/model", b"{}"))
            answer = http.client.HTTPResponse(link)
            answer.begin()
            assert answer.status == 200
            answer.read()
            time.sleep(0.15)


def test_a_client_that_goes_on_sending_after_its_answer_is_left(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "LINGER", 0.3)
    with socket.create_connection(server.server_address[:2], timeout=30) as link:  # type: ignore[arg-type]
        link.sendall(b"BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert link.recv(65536).startswith(b"HTTP/1.1 501")
        with pytest.raises(OSError):  # reset, once nobody reads any more  # noqa: PT012
            for _ in range(500):
                link.sendall(b" ")
                time.sleep(0.02)


def test_three_hundred_connections_at_once_are_all_answered(server: Server) -> None:
    """Each sends its request and half closes; a short backlog resets about a third of them."""
    answers: list[Any] = []

    def ask() -> None:
        try:
            answers.append(
                oddities.raw(server.server_address[:2], b"GET /page.css HTTP/1.1\r\nHost: localhost\r\n\r\n")[
                    0
                ]
            )  # type: ignore[arg-type]
        except OSError as error:
            answers.append(type(error).__name__)

    threads = [threading.Thread(target=ask) for _ in range(300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert Counter(answers).keys() <= {200, 503}
    assert Counter(answers)[200] >= CONNECTIONS


def test_more_connections_than_there_is_room_for_are_told(session: Session) -> None:
    with serving(session) as server:
        server.connections = threading.BoundedSemaphore(2)
        address: Any = server.server_address[:2]
        with socket.create_connection(address) as one, socket.create_connection(address) as two:
            for link in (one, two):
                link.sendall(b"GET / HTTP/1.1\r\n")
            for _ in range(20):
                with socket.create_connection(address, timeout=30) as third:
                    found = third.recv(65536)
                assert found.startswith(b"HTTP/1.1 503 ")
                assert json.loads(found.partition(b"\r\n\r\n")[2]) == {
                    "error": "too many connections are open"
                }
        end, status = time.monotonic() + 10, 0
        while status != 200 and time.monotonic() < end:  # there is room again once they have gone
            with suppress(OSError):
                status = oddities.raw(address, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")[0]
        assert status == 200


def test_a_connection_that_waits_between_requests_ends_without_an_answer(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "timeout", 0.2)
    with socket.create_connection(server.server_address[:2], timeout=30) as link:  # type: ignore[arg-type]
        assert link.recv(1) == b""


def test_a_browser_that_goes_away_leaves_no_traceback(
    server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    for sent in (b"", b"GET", oddities.posted("/api/predict", b'{"text": "red cat"}')):
        link = socket.create_connection(server.server_address[:2])  # type: ignore[arg-type]
        link.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
        )  # closing resets the connection
        link.sendall(sent)
        link.close()
    oddities.raw(server.server_address[:2], oddities.posted("/api/model", b"{}"))  # type: ignore[arg-type]
    assert "Traceback" not in capfd.readouterr().err


def test_a_port_that_is_taken_or_does_not_exist(server: Server, session: Session) -> None:
    with pytest.raises(
        HeadwiseError,
        match=r"cannot listen on 127.0.0.1, port \d+: Address already in use; choose another --port",
    ):
        Server(session, port=server.server_address[1])
    for port in (65536, -1, 10**9):
        with pytest.raises(HeadwiseError, match="it must be a whole number from 0"):
            Server(session, port=port)
    with pytest.raises(HeadwiseError, match=r"cannot listen on no\.such\.host\.invalid"):
        Server(session, host="no.such.host.invalid")


def test_an_evaluation_names_its_metric_as_tables_do() -> None:
    task = toy.task("mood").with_metric("macro-f1")
    session = Session(toy.model([task]), [task], "toy")
    session.evaluate("mood", [], 16)
    while session.job["running"]:
        time.sleep(0.01)
    assert session.job["result"]["metric"] == "macro F1", session.job
