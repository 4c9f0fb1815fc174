"""The server in front of an object store, with a server in place of the store."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from benchmarks.chaos.store_proxy import Proxy


class Upstream(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stored: list[bytes]

    def do_PUT(self) -> None:
        self.stored.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("ETag", "x")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""


class Behind:
    """The proxy with its mode, and what the server behind it has stored."""

    def __init__(self, folder: Path) -> None:
        self.stored: list[bytes] = []
        self._mode_file = folder / "mode"
        self.mode("pass")
        handler = type("Handler", (Upstream,), {"stored": self.stored})
        self.upstream = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.proxy = Proxy(0, self.upstream.server_port, self._mode_file)
        for server in (self.upstream, self.proxy):
            threading.Thread(target=server.serve_forever, args=(0.01,)).start()

    def mode(self, mode: str) -> None:
        self._mode_file.write_text(mode)

    def request(self, method: str, body: bytes | None = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.proxy.server_port, timeout=10)
        try:
            connection.request(method, "/object", body=body)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def close(self) -> None:
        for server in (self.upstream, self.proxy):
            server.shutdown()
            server.server_close()


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[Behind]:
    servers = Behind(tmp_path)
    yield servers
    servers.close()


def test_requests_pass_and_a_failure_is_an_answer_of_500(behind: Behind) -> None:
    assert behind.request("PUT", b"content") == (200, b"")
    assert behind.request("GET") == (200, b"hello")
    behind.mode("500")
    status, body = behind.request("PUT", b"more")
    assert status == 500
    assert b"InternalError" in body
    assert behind.stored == [b"content"]


def test_an_upload_is_cut_before_or_after_it_is_stored_and_other_requests_pass(behind: Behind) -> None:
    behind.mode("cut")
    for content in (b"first", b"second"):
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            behind.request("PUT", content)
    assert behind.stored == [b"second"]
    assert behind.request("GET") == (200, b"hello")


def test_a_silent_store_answers_no_request_until_the_mode_changes(behind: Behind) -> None:
    behind.mode("silent")
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            behind.request("PUT", b"content")
        except (ConnectionError, http.client.HTTPException) as error:
            failed.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    asking.join(0.3)
    assert asking.is_alive()
    behind.mode("pass")
    asking.join(10)
    assert len(failed) == 1
    assert behind.stored == []
