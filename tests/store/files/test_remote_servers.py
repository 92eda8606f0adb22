"""Files behind an S3 server and a slow web server."""

from __future__ import annotations

import numpy as np
import pytest

from fastio.errors import StoreError
from fastio.store.files import files_of, open_file
from fastio.store.files.remote.clients import client_of
from fastio.store.files.remote.remote_files import RemoteFiles
from fastio.store.files.remote_options import DEFAULT, RemoteOptions
from fastio.types.spans import Spans
from tests.servers.fixtures import Bucket, Served
from tests.store.files.conformance import FilesConformance, Put


class TestBucket(FilesConformance):
    """Objects of an S3 server, found as boto3 finds it: by the environment."""

    @pytest.fixture
    def put(self, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Put:
        """Objects are replaced at once."""
        for name, value in bucket.server.environment().items():
            monkeypatch.setenv(name, value)

        def put(name: str, data: bytes) -> str:
            client, key = client_of(f"{bucket.url}/{name}", DEFAULT)
            client.put(key, data)
            return f"{bucket.url}/{name}"

        return put

    def test_a_forked_child_reads_on(self, path: str) -> None:
        """It does not, as with every client: see test_remote.py."""


def test_a_key_that_is_wrong(bucket: Bucket) -> None:
    """One line says that access is denied."""
    options = RemoteOptions({**bucket.options, "secret_access_key": "wrong"}, download_retry=0)
    with pytest.raises(StoreError, match=rf"{bucket.url}/x: access denied \(the server answers 403") as caught:
        open_file(f"{bucket.url}/x", options=options)
    assert "\n" not in str(caught.value)


def test_windows_take_a_request_each(served: Served) -> None:
    """As many requests as windows beside that of the opening, and no byte twice."""
    data = np.random.default_rng(0).integers(0, 256, 12 << 20, np.uint8).tobytes()
    (served.root / "x").write_bytes(data)
    files = files_of([open_file(f"{served.url}/x")])
    assert isinstance(files, RemoteFiles)
    starts = np.random.default_rng(1).permutation(12) << 20
    size = (1 << 20) - (100 << 10)  # the gaps are too large to be read with them
    windows = [
        files.read_ahead(Spans(files.buffers, np.zeros(1, np.int32), starts[k : k + 1], np.array([size])))
        for k in range(12)
    ]
    inside = Spans(files.buffers, np.zeros(24, np.int32), np.repeat(starts, 2) + 5, np.full(24, 1000))
    found, status = files.fetch(inside).wait()
    assert status is None
    assert [data[at : at + 1000] for at in inside.starts.tolist()] == [view.tobytes() for view in found.views()]
    assert all(window.wait() for window in windows)
    assert (12 + 1, 12 * size + (64 << 10)) == (served.server.gets(), served.server.body_bytes())
    files.close()
