"""What tests of several folders share: small stores of pictures in all three formats, a cache directory."""

from __future__ import annotations

import gc
import io
import os
import signal
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from numpy.typing import NDArray
from PIL import Image

from fastio._native import Buffers
from fastio.store import FORMATS, SampleBatch, create_store
from fastio.types.schema import COLUMN, IMAGE, Field, Schema
from fastio.types.spans import Spans
from tests.servers.fixtures import (  # noqa: F401 - fixtures
    bucket,
    fault_server_of_session,
    faults,
    no_hedging,
    object_server,
    served,
)
from tests.warm_python import WarmPython

SUFFIXES = tuple(each.suffixes[0].removeprefix(".") for each in FORMATS.values())

# Property tests take the same examples in every run, so that a failure is the change's; `make test-more` draws fresh
# ones, from a seed that it prints. No deadlines: a busy machine is no failure.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("fresh", deadline=None, print_blob=True)
settings.load_profile("fixed")

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would every command that they test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """
    Keep garbage collection away from all tests and what they import: two million objects that stay.

    They are neither looked at while they become more nor by the collections of each test, which would take a second.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


Build = Callable[..., Path]


def encode(pixels: NDArray[np.uint8], kind: str = "PNG") -> bytes:
    """A picture file's bytes, written by Pillow."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def pictures(count: int, shape: tuple[int, ...] = (8, 8, 3), seed: int = 0) -> list[NDArray[np.uint8]]:
    """Random pixels from a seed."""
    return list(np.random.default_rng(seed).integers(0, 256, (count, *shape), np.uint8))


def as_spans(values: Sequence[bytes]) -> Spans:
    """Spans over one buffer that holds the values one after the other."""
    sizes = np.array([len(value) for value in values], np.int64)
    buffers = Buffers([np.frombuffer(b"".join(values) or b"\0", np.uint8)])
    return Spans(buffers, np.zeros(len(values), np.int32), np.cumsum(sizes) - sizes, sizes)


def write_store(
    path: Path,
    values: Sequence[bytes],
    labels: NDArray[Any] | None = None,
    *,
    field: Field | None = None,
    metadata: Mapping[str, Any] | None = None,
    shapes: NDArray[np.int32] | None = None,
) -> Path:
    """Pack values under keys ``a/0000.png``, ...; ``field`` says what they are (a picture of any size)."""
    field = field or Field("image", IMAGE, "|u1", (None, None, None))
    columns = {} if labels is None else {"label": labels}
    fields = [field] + [Field(name, COLUMN, column.dtype.str, column.shape[1:]) for name, column in columns.items()]
    sizes = {} if shapes is None else {field.name: shapes}
    keys = [f"a/{index:04d}.png" for index in range(len(values))]
    with create_store(path, Schema(tuple(fields))) as writer:
        writer.append(SampleBatch(keys, {field.name: as_spans(values)}, columns, sizes))
        writer.close(metadata)
    return path


@pytest.fixture(autouse=True)
def environment_of_commands() -> Iterator[None]:
    """A command that runs in the tests' process sets variables for its own: they must not reach the tests behind it."""
    before = dict(os.environ)
    yield
    for name in ("FASTIO_NVTX", "TORCH_CPP_LOG_LEVEL"):
        if name not in before:
            os.environ.pop(name, None)


@pytest.fixture(scope="session")
def warm_python() -> Iterator[WarmPython]:
    """Runs scripts without starting an interpreter for each of them."""
    with WarmPython("fastio.cli", "fastio.converters.packing.packer", "fastio.store") as python:
        yield python


@pytest.fixture(scope="session")
def warm_torch() -> Iterator[WarmPython]:
    """Runs scripts that use FastLoader without importing torch for each of them."""
    with WarmPython("torch.distributed", "fastio.loader.fast_loader", "fastio.samplers.bucket") as python:
        yield python


@pytest.fixture(params=SUFFIXES)
def suffix(request: pytest.FixtureRequest) -> str:
    """Each store format's suffix in turn."""
    return str(request.param)


@pytest.fixture(scope="session")
def png_stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One dataset of 50 PNGs 8x8 in each format: labels 0, 1, 2, 0, 1, ... of three named classes."""
    folder = tmp_path_factory.mktemp("png")
    values = [encode(pixels) for pixels in pictures(50)]
    labels = np.arange(50, dtype=np.int64) % 3
    metadata = {"classes": ["bee", "cat", "dog"]}
    return {each: write_store(folder / f"png.{each}", values, labels, metadata=metadata) for each in SUFFIXES}


@pytest.fixture
def png_store(png_stores: dict[str, Path], suffix: str) -> Path:
    """The dataset of ``png_stores`` in each format in turn."""
    return png_stores[suffix]
