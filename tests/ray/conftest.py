"""One Ray cluster for all tests of this folder that a process runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ray.cluster import Cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two CPUs; see ``Cluster``."""
    pytest.importorskip("ray")
    cluster = Cluster.start()
    yield cluster
    cluster.close()
