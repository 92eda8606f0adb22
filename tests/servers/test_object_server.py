"""SeaweedFS does what fastio asks of an object store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.servers.fixtures import Bucket

obstore: Any = pytest.importorskip("obstore")


def client(bucket: Bucket, options: Mapping[str, Any] | None = None) -> Any:
    """The bucket for obstore."""
    return obstore.store.from_url(bucket.url, client_options={"allow_http": True}, **(options or bucket.options))


def test_ranges_and_listing(bucket: Bucket) -> None:
    """What was put is read by range and from its end, and listed by folder."""
    store = client(bucket)
    for name in ("in/a", "in/b", "out"):
        obstore.put(store, name, name.encode() * 1000)
    end = obstore.get(store, "in/a", options={"range": {"suffix": 3}})

    assert b"ain" == bytes(obstore.get_range(store, "in/a", start=3, end=6))
    assert (b"n/a", (3997, 4000)) == (bytes(end.bytes()), end.range)
    assert ["in/a", "in/b"] == [each["path"] for each in obstore.list_with_delimiter(store, "in")["objects"]]


def test_conditions(bucket: Bucket) -> None:
    """Put if absent, put and get of a version."""
    store = client(bucket)
    first = obstore.put(store, "a", b"1", mode="create")["e_tag"]
    with pytest.raises(obstore.exceptions.AlreadyExistsError):
        obstore.put(store, "a", b"2", mode="create")
    obstore.put(store, "a", b"3", mode={"e_tag": first})
    with pytest.raises(obstore.exceptions.PreconditionError):
        obstore.put(store, "a", b"4", mode={"e_tag": first})
    with pytest.raises(obstore.exceptions.PreconditionError):
        obstore.get(store, "a", options={"if_match": first})

    assert b"3" == bytes(obstore.get(store, "a").bytes())


def test_multipart(bucket: Bucket) -> None:
    """An object put in parts of 5 MiB is one object."""
    store = client(bucket)
    data = bytes(range(256)) * (44 << 10)  # 11 MiB
    obstore.put(store, "a", data, use_multipart=True, chunk_size=5 << 20)

    assert data == bytes(obstore.get(store, "a").bytes())


def test_users(bucket: Bucket) -> None:
    """A reader reads and does not write; a key that expired is refused."""
    obstore.put(client(bucket), "a", b"1")
    options = bucket.server.storage_options("reader")
    with pytest.raises(obstore.exceptions.PermissionDeniedError):
        obstore.put(client(bucket, options), "a", b"2")
    assert b"1" == bytes(obstore.get(client(bucket, options), "a").bytes())

    bucket.server.expire_key("reader")

    with pytest.raises(obstore.exceptions.PermissionDeniedError):
        obstore.get(client(bucket, options), "a")
    assert b"1" == bytes(obstore.get(client(bucket, bucket.server.storage_options("reader")), "a").bytes())
