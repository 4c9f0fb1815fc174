"""The server in front of an object store, with a server in place of the store."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from benchmarks.chaos.store_proxy import Proxy


class Behind:
    """The proxy with its mode, and what the server behind it has stored."""

    def __init__(self, folder: Path) -> None:
        self.stored = stored = []
        self.mode = folder / "mode"
        self.mode.write_text("pass")

        class Upstream(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                stored.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.do_GET()

            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"hello")

            def log_message(self, *arguments: object) -> None:
                """Print nothing."""

        self.upstream = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
        self.proxy = Proxy(0, self.upstream.server_port, self.mode)
        for server in (self.upstream, self.proxy):
            threading.Thread(target=server.serve_forever, args=(0.01,)).start()

    def request(self, method: str, body: bytes | None = None) -> tuple[int, bytes]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.proxy.server_port, timeout=10)) as connection:
            connection.request(method, "/object", body=body)
            response = connection.getresponse()
            return response.status, response.read()


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[Behind]:
    servers = Behind(tmp_path)
    yield servers
    for server in (servers.upstream, servers.proxy):
        server.shutdown()
        server.server_close()


def test_requests_pass_and_a_failure_is_an_answer_of_500(behind: Behind) -> None:
    assert behind.request("PUT", b"content") == behind.request("GET") == (200, b"hello")
    behind.mode.write_text("500")
    status, body = behind.request("PUT", b"more")
    assert status == 500
    assert b"InternalError" in body
    assert behind.stored == [b"content"]


def test_an_upload_is_cut_before_or_after_it_is_stored_and_other_requests_pass(behind: Behind) -> None:
    behind.mode.write_text("cut")
    for content in (b"first", b"second"):
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            behind.request("PUT", content)
    assert behind.stored == [b"second"]
    assert behind.request("GET") == (200, b"hello")


def test_a_silent_store_answers_no_request_until_the_mode_changes(behind: Behind) -> None:
    behind.mode.write_text("silent")
    began = time.monotonic()
    threading.Timer(0.3, behind.mode.write_text, args=("pass",)).start()
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        behind.request("PUT", b"content")
    assert time.monotonic() - began >= 0.3
    assert behind.stored == []
