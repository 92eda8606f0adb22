"""Fixtures of servers, one of each a test process, for tests in any folder (``tests/conftest.py`` imports them)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fastio.store.files.remote.loaders import Hedging
from tests.servers.fault_server import FaultServer, why_no_nginx
from tests.servers.object_server import ObjectServer, why_no_seaweedfs

__all__ = ["Bucket", "Served", "bucket", "fault_server_of_session", "faults", "no_hedging", "object_server", "served"]

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Bucket:
    """An empty bucket of a test's own: ``open_store(f"{bucket.url}/a.tar", remote=Remote(bucket.options))``."""

    server: ObjectServer
    url: str  # s3://name
    options: dict[str, Any]  # storage_options of the user "writer"


@dataclass(frozen=True, slots=True)
class Served:
    """An honest FaultServer and the empty folder that it serves."""

    server: FaultServer
    root: Path
    url: str  # of the folder


@pytest.fixture(scope="session")
def object_server() -> Iterator[ObjectServer]:
    """SeaweedFS, started when first asked for."""
    if reason := why_no_seaweedfs():
        pytest.skip(reason)
    with ObjectServer() as server:
        yield server


@pytest.fixture
def bucket(object_server: ObjectServer) -> Iterator[Bucket]:
    """An empty bucket, which goes after the test."""
    name = f"bucket-{next(_numbers)}"
    yield Bucket(object_server, object_server.make_bucket(name), object_server.storage_options())
    object_server.remove_bucket(name)


@pytest.fixture
def no_hedging(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request of this process is sent a second time because a busy machine makes it slow: so they can be counted."""
    monkeypatch.setattr(Hedging, "take", lambda *_: False)


@pytest.fixture
def faults(bucket: Bucket) -> Iterator[FaultServer]:
    """A FaultServer before the object store."""
    if reason := why_no_nginx():
        pytest.skip(reason)
    with FaultServer(upstream=bucket.server.endpoint) as server:
        yield server


@pytest.fixture(scope="session")
def fault_server_of_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FaultServer, Path]]:
    """nginx and its folder, started when first asked for; tests take ``served``."""
    if reason := why_no_nginx():
        pytest.skip(reason)
    root = tmp_path_factory.mktemp("served")
    with FaultServer(root) as server:
        yield server, root


@pytest.fixture
def served(fault_server_of_session: tuple[FaultServer, Path]) -> Iterator[Served]:
    """A folder of the test's own behind a FaultServer without faults that counts from 0."""
    server, root = fault_server_of_session
    server.clear()
    name = f"test-{next(_numbers)}"
    (root / name).mkdir()
    yield Served(server, root / name, f"{server.url}/{name}")
    server.clear()
