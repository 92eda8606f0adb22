"""A new codec is one file and one row: it passes the suite of all codecs, and goes through everything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from fastio import FastDataset, FastLoader
from fastio.cli import cli
from fastio.codec import CODECS, Codec
from fastio.converters.inspect.verify import verify
from fastio.errors import SampleError, SchemaError
from fastio.store import FORMATS, SampleBatch, create_store, open_store
from fastio.types.schema import COLUMN, Field, Schema
from fastio.types.traits import TRAITS
from tests.codec.backwards import ROW
from tests.codec.conformance import CodecTests, spans_of

COUNT = 20
VALUES = np.random.default_rng(0).normal(size=(COUNT, 3, 2)).astype("<f4")
SCHEMA = Schema((Field("values", "backwards", "<f4", (3, 2)), Field("label", COLUMN, "<i8", ())))


@pytest.fixture(autouse=True)
def _row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line that a new codec adds to fastio."""
    monkeypatch.setitem(TRAITS, "backwards", ROW)


class TestBackwardsCodec(CodecTests):
    """The suite that each codec passes."""

    @pytest.fixture
    def codec(self) -> Codec:
        return CODECS["backwards"]

    @pytest.fixture(params=["|u1", "<f8"])
    def values(self, request: pytest.FixtureRequest) -> list[NDArray[Any]]:
        return list(np.random.default_rng(0).integers(0, 256, (9, 4, 3)).astype(request.param))


@pytest.fixture(params=sorted(FORMATS))
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store of such values in each format."""
    spans = spans_of([CODECS["backwards"].encode(value) for value in VALUES])
    path = tmp_path / f"store{FORMATS[request.param].suffixes[0]}"
    with create_store(path, SCHEMA) as writer:
        keys = [f"{number:03d}" for number in range(COUNT)]
        writer.append(SampleBatch(keys, {"values": spans}, {"label": np.arange(COUNT)}))
    return path


def test_the_store_gives_back_what_was_written(path: Path) -> None:
    """Schema and bytes; the values are no picture, no text and no tokens."""
    with open_store(path) as store:
        assert SCHEMA == store.schema
        assert VALUES[3].tobytes()[::-1] == store.spans("values", np.array([3])).view(0).tobytes()
    assert verify(path).problems == []


def test_the_dataset_and_the_loader_decode_it(path: Path) -> None:
    """Samples are arrays, batches have rows."""
    dataset = FastDataset(path)
    value, label = dataset[7]

    assert (7, VALUES[7].tolist()) == (label, value.tolist())
    assert "backwards <f4 of 3x2 in 'values'" in repr(dataset)
    with FastLoader(dataset, 8, shuffle=True, seed=1) as loader:
        batches = [(rows.numpy(), labels.numpy()) for rows, labels in loader]
    rows, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    assert list(range(COUNT)) == sorted(labels.tolist())
    np.testing.assert_array_equal(VALUES[labels], rows)


def test_damage_is_seen(path: Path) -> None:
    """A changed byte is a SampleError with its key."""
    with open_store(path) as store:
        start = int(store.spans("values", np.array([5])).starts[0])
    data = bytearray(path.read_bytes())
    data[start] ^= 1
    path.write_bytes(bytes(data))

    with pytest.raises(SampleError, match=r"'005'.*checksum"):
        FastDataset(path)[5]


@pytest.mark.parametrize("command", [["info"], ["info", "--json"], ["ls"], ["verify"]])
def test_commands_show_it(path: Path, command: list[str]) -> None:
    """No command stumbles over a codec that it has never heard of."""
    result = CliRunner().invoke(cli, [command[0], str(path), *command[1:]], catch_exceptions=False)

    assert result.exit_code == 0, result.output


def test_unpack_writes_the_bytes(path: Path, tmp_path: Path) -> None:
    """Files with the bytes as stored."""
    result = CliRunner().invoke(cli, ["unpack", str(path), str(tmp_path / "out")], catch_exceptions=False)

    assert result.exit_code == 0, result.output
    assert VALUES[4].tobytes()[::-1] in [file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file()]


def test_a_later_fastio_is_asked_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its row the store still opens, and the dataset says what is missing."""
    monkeypatch.delitem(TRAITS, "backwards")
    with open_store(path) as store:
        assert "backwards in 'values'" == str(store.schema["values"])
    with pytest.raises(SchemaError, match=r"codec 'backwards'.*upgrade fastio"):
        FastDataset(path)
