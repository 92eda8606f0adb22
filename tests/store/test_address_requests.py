"""Stores behind a real web server: the requests that opening them takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastio import FastDataset
from fastio.store import FORMATS, create_shard, open_store
from fastio.store.sets.seal import seal_set
from tests.servers.fixtures import Served
from tests.store.build import LABELLED, make_batch, write

SHARDS = 5
FEW, MANY = 3, 700  # samples a shard: an index within the last 64 KiB of its file, and one that is larger


def write_set(folder: Path, count: int) -> None:
    """A set of five shards with so many samples each."""
    names = [f"in-{number:06d}.tar" for number in range(SHARDS)]
    for number, name in enumerate(names):
        with create_shard(folder / name, LABELLED, plan=1, number=number) as writer:
            keys = [f"{number}/a long folder name/{index:06d}.png" for index in range(count)]
            writer.append(make_batch(keys, [b"value of %d" % index for index in range(count)]))
    seal_set(str(folder / "in.fastio-set"), names, FORMATS["tar"], metadata=b"{}")


@pytest.mark.parametrize("name", ["in.fastio-set", "in-%06d.tar", "in-{000000..000004}.tar"])
@pytest.mark.parametrize(("count", "gets"), [(FEW, 1), (MANY, 2)])
def test_a_set_of_any_number_of_shards(served: Served, name: str, count: int, gets: int) -> None:
    """Two GETs at most, of the set object: its end, and an index larger than that; nothing of its shards."""
    write_set(served.root, count)
    with FastDataset(f"{served.url}/{name}", mode=None) as dataset:
        assert SHARDS * count == len(dataset)
        assert dataset.store.keys([SHARDS * count - 1])[0].endswith(f"{count - 1:06d}.png")
        assert (gets, 0) == (served.server.gets("/in.fastio-set"), served.server.gets(".tar"))
        assert gets == len(served.server.requests())


@pytest.mark.parametrize(("count", "gets"), [(60, 1), (3000, 2)])
def test_a_tar_of_version_1(served: Served, count: int, gets: int) -> None:
    """One GET of its end, and one of an index that is larger."""
    write(served.root / "one.tar", {f"{index:06d}.png": b"value" for index in range(count)})
    with open_store(f"{served.url}/one.tar") as store:
        assert count == len(store)
        assert gets == len(served.server.requests())
