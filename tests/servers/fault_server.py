"""FaultServer: nginx with Lua, which serves a folder or stands before another server, and misbehaves as it is told."""

from __future__ import annotations

import http.client
import json
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlencode

from tests.servers.server_process import ServerProcess, free_ports, new_folder

__all__ = ["BROKEN", "Fault", "FaultServer", "Kind", "Request", "why_no_nginx"]

_HERE = Path(__file__).parent
_MODULES = (Path("/usr/lib/nginx/modules"), Path("/usr/share/nginx/modules"), Path("/etc/nginx/modules"))
_LOG_S = 10.0
_PROXY = (
    "proxy_http_version 1.1; proxy_set_header Host $http_host; proxy_set_header Connection '';"
    "proxy_buffering off; proxy_request_buffering off; client_body_buffer_size 1m;"
)

Kind = Literal[
    "delay", "pace", "status", "drop", "lost", "hang", "cut", "stall", "tail", "short", "flip", "shift", "range",
    "etag", "whole",
]  # fmt: skip

# Those that a reader must notice, as opposed to those that only make it wait.
BROKEN: tuple[Kind, ...] = ("status", "drop", "cut", "short", "flip", "shift", "range", "etag", "whole")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """
    What happens to some requests. ``delay`` and ``pace`` add up; of the others the first that applies happens. A delay
    ends early when the faults are replaced.

    ``path`` (a part of it) and ``method`` choose requests, then ``chance``; of those left, the first ``skip`` pass and
    the next ``count`` are hit (0: all). ``at`` is a byte of the body, modulo its length; None: anywhere.
    """

    kind: Kind
    at: int | None = None  # cut, stall, tail, short, flip
    by: int = 1  # shift, range: bytes
    seconds: float = 60.0  # delay, hang, stall, tail
    rate: int = 60_000_000  # pace: bytes a second and connection
    status: int = 503
    retry_after: str = ""  # status
    text: str = ""  # status: the body; etag: the other ETag
    path: str = ""
    method: str = ""
    chance: float = 1.0
    skip: int = 0
    count: int = 0

    def line(self) -> str:
        """The rule as faults.lua reads it."""
        return urlencode({name: value for name, value in asdict(self).items() if value not in (None, "")})


@dataclass(frozen=True, slots=True)
class Request:
    """One request that the server has ended with; ``fault`` is what it did to it ("" for an honest answer)."""

    method: str
    path: str
    range: str
    if_match: str
    status: int
    sent: int  # bytes of the body
    fault: str
    connection: int
    seconds: float


class FaultServer:
    """
    An HTTP server at ``url``: of ``root``, a folder, or of ``upstream``, such as ``http://127.0.0.1:8333``.

    Static files have ETags, ranges and If-Match. An S3 client that signs for ``url`` is understood by ``upstream``.
    With ``tls`` it speaks https too, at ``secure_url``, with a certificate of its own authority, which lies in the file
    ``authority``.
    Faults are those that ``set_faults`` named last. Requests are counted. See README.md here.
    """

    def __init__(
        self,
        root: Path | None = None,
        *,
        upstream: str = "",
        seed: int = 0,
        upload_limit: str = "1g",
        tls: bool = False,
    ) -> None:
        if (root is None) == (not upstream):
            raise ValueError("a FaultServer serves either a folder or another server")
        self._folder = new_folder("nginx")
        self.port, secure = free_ports(2)
        self.url = f"http://127.0.0.1:{self.port}"
        self.secure_url = f"https://127.0.0.1:{secure}" if tls else ""
        self.authority = self._folder / "authority.pem"
        values = {
            "modules": _modules(), "folder": self._folder, "lua": _HERE, "seed": seed, "port": self.port,
            "upload_limit": upload_limit, "proxy": _PROXY, "root": (root or self._folder / "none").absolute(),
            "upstream": upstream or f"{self.url}/-/file",
            "tls": _tls(self._folder, self.authority, secure) if tls else "",
            "serve": f"{_PROXY} proxy_pass {upstream};" if upstream else f"root {root};",
        }  # fmt: skip
        text = (_HERE / "nginx.conf.in").read_text()
        for name, value in values.items():
            text = text.replace(f"@{name}@", str(value))
        config = self._folder / "nginx.conf"
        config.write_text(text)
        self._log_start = 0
        self._process = ServerProcess(
            [shutil.which("nginx"), "-e", self._folder / "error.log", "-c", config], self._folder, self._is_up
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server; twice does no harm."""
        self._process.stop()

    def set_faults(self, *faults: Fault) -> None:
        """
        Replace all faults, for the requests that begin from now on; without arguments: an honest server.

        Requests that a delay holds are answered.
        """
        self._control("PUT", "\n".join(fault.line() for fault in faults))

    def clear(self) -> None:
        """End all faults and forget the requests so far."""
        self.set_faults()
        self.requests()
        self._log_start = self._log.stat().st_size

    def requests(self) -> list[Request]:
        """Return the requests since ``clear``; those under way are waited for, up to ten seconds."""
        latest = time.monotonic() + _LOG_S
        while not self._is_quiet() and time.monotonic() < latest:
            time.sleep(0.002)
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            return [Request(**json.loads(line)) for line in log]

    def gets(self, path: str = "") -> int:
        """Return how many GETs since ``clear`` had ``path`` in theirs."""
        return sum(request.method == "GET" and path in request.path for request in self.requests())

    def body_bytes(self, path: str = "") -> int:
        """Return how many bytes of bodies were sent since ``clear`` to requests that had ``path`` in theirs."""
        return sum(request.sent for request in self.requests() if path in request.path)

    def connections(self) -> int:
        """Return how many connections of clients are open."""
        return self._control("GET")[2] - 1

    def errors(self) -> str:
        """Return what nginx complained about."""
        return (self._folder / "error.log").read_text(errors="replace")

    @property
    def _log(self) -> Path:
        return self._folder / "requests.log"

    def _is_quiet(self) -> bool:
        started, finished, *_ = self._control("GET")
        return started == finished

    def _is_up(self) -> bool:
        try:
            self._control("GET")
        except (OSError, http.client.HTTPException):
            return False
        return True

    def _control(self, method: str, body: str = "") -> list[int]:
        """Return requests begun and ended, open connections, bytes of bodies."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, "/-/control", body)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status != 200:
            raise RuntimeError(f"the control location answered {answer.status}: {text}: {self.errors()}")
        return [int(number) for number in text.split()]


def why_no_nginx() -> str:
    """Return why a FaultServer cannot be had here, or ""."""
    if shutil.which("nginx") is None:
        return "no nginx: apt-get install nginx-light libnginx-mod-http-lua"
    if _modules() is None:
        return "nginx has no Lua module: apt-get install libnginx-mod-http-lua"
    return ""


def _tls(folder: Path, authority: Path, port: int) -> str:
    """Make an authority and a certificate; return what has nginx speak TLS on this port."""
    import trustme

    issuer, certificate = trustme.CA(), folder / "certificate.pem"
    issuer.cert_pem.write_to_path(str(authority))
    issuer.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(certificate))
    return f"listen 127.0.0.1:{port} ssl; ssl_certificate {certificate}; ssl_certificate_key {certificate};"


def _modules() -> Path | None:
    return next((folder for folder in _MODULES if (folder / "ngx_http_lua_module.so").exists()), None)
