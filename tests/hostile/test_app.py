"""Every request gets a status and JSON, whatever it holds; the server goes on, and prints nothing but one line where it must."""

import json
import socket
import threading
import time
from collections.abc import Iterator

import oddities
import pytest
import toy

from headwise.app import Server, Session
from headwise.app.server import Handler
from headwise.errors import HeadwiseError

ODD = {name: (sent, allowed) for name, sent, allowed in oddities.odd_requests()}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    task = toy.task("mood")
    server = Server(Session(toy.model([task]), [task], "toy"))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


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


def test_a_connection_that_waits_between_requests_ends_without_an_answer(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handler, "timeout", 0.2)
    with socket.create_connection(server.server_address[:2], timeout=30) as link:  # type: ignore[arg-type]
        assert link.recv(1) == b""


def test_a_browser_that_goes_away_leaves_no_traceback(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    for sent in (b"", b"GET", oddities.posted("/api/predict", b'{"text": "red cat"}')):
        link = socket.create_connection(server.server_address[:2])  # type: ignore[arg-type]
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # closing resets the connection
        link.sendall(sent)
        link.close()
    oddities.raw(server.server_address[:2], oddities.posted("/api/model", b"{}"))  # type: ignore[arg-type]
    assert "Traceback" not in capfd.readouterr().err


def test_a_port_that_is_taken_or_does_not_exist(server: Server) -> None:
    session = server.calls["/api/job"].__closure__[0].cell_contents  # type: ignore[attr-defined]
    with pytest.raises(
        HeadwiseError, match=r"cannot listen on 127.0.0.1, port \d+: Address already in use; choose another --port"
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
