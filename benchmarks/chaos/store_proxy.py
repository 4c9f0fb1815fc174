"""A server in front of an object store that can fail.

`python -m benchmarks.chaos.store_proxy PORT PORT_OF_THE_STORE MODE_FILE` starts it. The file contains the mode, which
each request reads: `pass`; `500` answers so; `silent` takes a request and does not answer before the mode changes;
`cut` ends the connection of every upload, in turns before the store has it and after the store has it.
"""

from __future__ import annotations

import http.client
import itertools
import socket
import struct
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_SKIPPED_HEADERS = ("expect", "connection", "transfer-encoding", "content-length")
_ERROR = b"<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>"


class Proxy(ThreadingHTTPServer):
    """The server; one thread per connection."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, upstream_port: int, mode_file: Path) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.upstream_port, self._mode_file = upstream_port, mode_file
        self.cuts = itertools.count()

    @property
    def mode(self) -> str:
        """The present mode."""
        return self._mode_file.read_text().strip()


class Handler(BaseHTTPRequestHandler):
    """The requests of one connection."""

    protocol_version = "HTTP/1.1"
    server: Proxy

    def handle_request(self) -> None:
        """Forward a request, or fail as the mode says."""
        mode = self.server.mode
        body = self._read_body()
        if mode == "500":
            self._answer(500, "Internal Server Error", [("Content-Type", "application/xml")], _ERROR)
            return
        if mode == "silent":
            while self.server.mode == "silent":
                time.sleep(0.05)
            self._reset()
            return
        is_cut = mode == "cut" and self.command in ("PUT", "POST") and body
        if is_cut and next(self.server.cuts) % 2 == 0:
            self._reset()
            return
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.upstream_port, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _SKIPPED_HEADERS}
        upstream.request(
            self.command, self.path, body=body or None, headers=headers | {"Content-Length": str(len(body))}
        )
        response = upstream.getresponse()
        content = response.read()
        upstream.close()
        if is_cut:
            self._reset()
            return
        self._answer(response.status, response.reason, response.getheaders(), content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_request

    def _read_body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            continue
        return b"".join(parts)

    def _answer(self, status: int, reason: str, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response_only(status, reason)
        sent = {name.lower() for name, _ in headers}
        for name, value in headers:
            # A HEAD has the length of what a GET would return.
            if name.lower() not in _SKIPPED_HEADERS or (self.command == "HEAD" and name.lower() == "content-length"):
                self.send_header(name, value)
        if self.command != "HEAD" or "content-length" not in sent:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _reset(self) -> None:
        """End the connection with an error at the other end."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""


if __name__ == "__main__":
    port, upstream, file = sys.argv[1:]
    Proxy(int(port), int(upstream), Path(file)).serve_forever()
