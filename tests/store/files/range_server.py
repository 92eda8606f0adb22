"""A server of objects in memory, with ranges, conditions, and faults on demand; it counts what is asked of it."""

from __future__ import annotations

import re
import socket
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Fault", "RangeServer", "range_server"]

_RANGE = re.compile(r"bytes=(\d*)-(\d*)\Z")


@dataclass
class Response:
    """An answer before it is sent; faults change it."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_cut: bool = False  # after half of the body, the connection ends


Fault = Callable[[Response], None]


@dataclass
class RangeServer:
    """Objects by name, the requests for them, and the faults of the next answers; None: a good one."""

    url: str
    objects: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, int, int]] = field(default_factory=list)
    faults: deque[Fault | None] = field(default_factory=deque)
    conditions: list[str] = field(default_factory=list)
    always: Fault | None = None

    def put(self, name: str, data: bytes) -> str:
        """Store an object; its URL."""
        self.objects[name] = data
        return f"{self.url}/{name}"

    def answer(self, name: str, range_header: str | None, if_match: str | None) -> Response:
        """Return what a GET gets."""
        data = self.objects.get(name)
        if data is None:
            return Response(404, {}, b"none")
        etag = f'"{zlib.crc32(data):08x}"'
        if if_match is not None:
            self.conditions.append(if_match)
        if if_match not in (None, etag):
            return Response(412, {}, b"")
        start, stop = _bounds(range_header, len(data))
        self.requests.append((name, start, stop))
        headers = {"ETag": etag}
        if stop > start:
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        response = Response(206 if stop > start else 200, headers, data[start:stop])
        fault = self.faults.popleft() if self.faults else self.always
        if fault is not None:
            fault(response)
        return response


def _bounds(header: str | None, size: int) -> tuple[int, int]:
    match = _RANGE.match(header or "")
    if match is None:
        return 0, size
    if not match[1]:
        return max(0, size - int(match[2])), size
    return int(match[1]), min(size, int(match[2]) + 1 if match[2] else size)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    served: RangeServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Readers that hang up are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_HEAD(self) -> None:
        served: RangeServer = self.server.served  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("ETag", '"head"')
        self.send_header("Content-Length", str(len(served.objects[self.path.lstrip("/")])))
        self.end_headers()

    def do_GET(self) -> None:
        served: RangeServer = self.server.served  # type: ignore[attr-defined]
        response = served.answer(self.path.lstrip("/"), self.headers.get("Range"), self.headers.get("If-Match"))
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        body = response.body
        self.wfile.write(body[: len(body) // 2] if response.is_cut else body)
        if response.is_cut:
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True

    def log_message(self, *args: Any) -> None:
        """Print nothing."""


@contextmanager
def range_server() -> Iterator[RangeServer]:
    """Run a server on a free port of this machine."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.served = RangeServer(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
