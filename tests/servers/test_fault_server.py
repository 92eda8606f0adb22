"""The server that misbehaves on demand: each fault is what its name says, and requests are counted."""

from __future__ import annotations

import http.client
from typing import Any

import pytest

from tests.servers.fault_server import BROKEN, Fault, FaultServer
from tests.servers.fixtures import Bucket, Served

BODY = bytes(range(256)) * 40


@pytest.fixture
def file(served: Served) -> Served:
    """A folder with one file, ``a.bin``, of the bytes BODY."""
    (served.root / "a.bin").write_bytes(BODY)
    return served


def get(served: Served, **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    """Bytes 100 to 1,099 of a.bin, or what came."""
    connection = http.client.HTTPConnection("127.0.0.1", served.server.port, timeout=30)
    try:
        connection.request("GET", f"/{served.root.name}/a.bin", headers={"Range": "bytes=100-1099", **headers})
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def test_honest(file: Served) -> None:
    """Without faults: the range, its place, a version; If-Match and a suffix range are understood."""
    answer, body = get(file)
    etag = answer.headers["ETag"]

    assert (206, "bytes 100-1099/10240", BODY[100:1100]) == (answer.status, answer.headers["Content-Range"], body)
    assert 206 == get(file, **{"If-Match": etag})[0].status
    assert 412 == get(file, **{"If-Match": '"older"'})[0].status
    assert BODY[-7:] == get(file, Range="bytes=-7")[1]


def test_counts(file: Served) -> None:
    """Requests are counted from the last clear, with range, status, bytes and fault."""
    file.server.set_faults(Fault(kind="flip", skip=1, count=1))
    for _ in range(3):
        get(file)
    (_, flipped, _) = requests = file.server.requests()

    assert (3, 3, 3000) == (len(requests), file.server.gets("a.bin"), file.server.body_bytes())
    assert ("GET", "bytes=100-1099", 206, 1000) == (flipped.method, flipped.range, flipped.status, flipped.sent)
    assert ["", "flip", ""] == [request.fault for request in requests]
    file.server.clear()
    assert [] == file.server.requests()


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault(kind="delay", seconds=0.01), (206, BODY[100:1100])),
        (Fault(kind="tail", seconds=0.01, at=500), (206, BODY[100:1100])),
        (Fault(kind="pace", rate=1_000_000), (206, BODY[100:1100])),
        (Fault(kind="short", at=500), (206, BODY[100:600])),
        (Fault(kind="shift", by=1), (206, BODY[101:1100] + BODY[100:101])),
        (Fault(kind="whole"), (200, BODY)),
        (Fault(kind="status", status=403, text="no"), (403, b"no")),
    ],
    ids=lambda value: value.kind if isinstance(value, Fault) else "",
)
def test_answers(file: Served, fault: Fault, expected: tuple[int, bytes]) -> None:
    """Each fault gives this status and this body."""
    file.server.set_faults(fault)
    answer, body = get(file)

    assert expected == (answer.status, body)


def test_wrong_heads(file: Served) -> None:
    """Retry-After, another ETag, another range."""
    heads: list[Any] = []
    for fault in (Fault(kind="status", retry_after="2"), Fault(kind="etag", text='"b"'), Fault(kind="range", by=5)):
        file.server.set_faults(fault)
        heads.append(get(file)[0])

    assert (503, "2") == (heads[0].status, heads[0].headers["Retry-After"])
    assert '"b"' == heads[1].headers["ETag"]
    assert "bytes 105-1104/10245" == heads[2].headers["Content-Range"]


def test_flips_one_bit(file: Served) -> None:
    """One bit of the byte ``at`` differs."""
    file.server.set_faults(Fault(kind="flip", at=7))
    differences = [(at, a ^ b) for at, (a, b) in enumerate(zip(get(file)[1], BODY[100:1100], strict=True)) if a != b]

    assert [(7, 1)] == [(at, bits.bit_count()) for at, bits in differences]


@pytest.mark.parametrize("kind", ["cut", "stall"])
def test_cuts(file: Served, kind: Any) -> None:
    """The connection ends after ``at`` bytes of the body, at once or later."""
    file.server.set_faults(Fault(kind=kind, at=300, seconds=0.01))
    with pytest.raises(http.client.IncompleteRead) as error:
        get(file)

    assert BODY[100:400] == error.value.partial


@pytest.mark.parametrize("kind", ["drop", "hang", "lost"])
def test_no_answer(file: Served, kind: Any) -> None:
    """The connection ends without an answer."""
    file.server.set_faults(Fault(kind=kind, seconds=0.01))
    with pytest.raises(http.client.RemoteDisconnected):
        get(file)


def test_chooses_requests(file: Served) -> None:
    """Path, method, chance and order choose; the first fault that applies happens."""
    file.server.set_faults(
        Fault(kind="drop", path="b.bin"),
        Fault(kind="drop", method="PUT"),
        Fault(kind="drop", chance=0.0),
        Fault(kind="short", at=1, count=1),
        Fault(kind="short", at=2),
    )

    assert [1, 2, 2] == [len(get(file)[1]) for _ in range(3)]


def test_every_broken_answer_differs(file: Served) -> None:
    """Each kind in BROKEN changes what a careful reader sees."""
    honest, body = get(file)
    same = []
    for kind in BROKEN:
        file.server.set_faults(Fault(kind=kind))
        try:
            answer, other = get(file)
        except (http.client.HTTPException, OSError):
            continue
        heads = [
            (one.status, one.headers["ETag"], one.headers["Content-Range"], data)
            for one, data in ((answer, other), (honest, body))
        ]
        same += [kind] if heads[0] == heads[1] else []

    assert [] == same


def test_before_an_object_store(bucket: Bucket, faults: FaultServer) -> None:
    """A FaultServer with an upstream hands on what S3 clients sign, and loses answers on demand."""
    import obstore

    options = {**bucket.options, "endpoint": faults.url}
    store = obstore.store.from_url(bucket.url, client_options={"allow_http": True}, **options)
    obstore.put(store, "folder/a.bin", BODY)
    faults.set_faults(Fault(kind="flip", method="GET", at=3))
    flipped = bytes(obstore.get_range(store, "folder/a.bin", start=100, end=200))
    faults.set_faults(Fault(kind="lost", method="PUT", count=1))
    obstore.put(store, "b.bin", BODY)
    requests = faults.requests()

    assert BODY[100:103] + BODY[104:200] == flipped[:3] + flipped[4:]
    assert BODY[103] != flipped[3]
    assert ["", "flip", "lost", ""] == [request.fault for request in requests]
