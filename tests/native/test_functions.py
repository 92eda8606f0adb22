"""Reading files, reading ahead, probing and shuffling from Python."""

from __future__ import annotations

import errno
import io
import mmap
import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fastio import _native
from fastio._native import Buffers, ThreadPool
from fastio.types.spans import Spans


def read(paths: list[bytes], sizes: list[int]) -> tuple[NDArray[np.int32], NDArray[np.int32], list[bytes]]:
    """Status, errno and bytes of each file."""
    size = np.array(sizes, np.int64)
    starts = np.cumsum(size) - size
    out = np.zeros(int(size.sum()), np.uint8)
    status, error = np.full(len(paths), -1, np.int32), np.full(len(paths), -1, np.int32)
    _native.read_files(b"/", paths, size, out, starts, status, error, ThreadPool(2)).wait()
    return status, error, [out[a : a + n].tobytes() for a, n in zip(starts, size, strict=True)]


def test_read_files(tmp_path: Path) -> None:
    """Files are read whole, through links too; everything else says what it is."""
    (tmp_path / "a").write_bytes(b"hello")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    names = ["a", "link", "empty", "fifo", "loop", "missing", "a", "a", "."]
    status, error, data = read([os.fsencode(tmp_path / name) for name in names], [5, 5, 0, 1, 1, 1, 4, 6, 1])
    ok, bad, changed = _native.OK, _native.IO_ERROR, _native.CHANGED
    assert status.tolist() == [ok, ok, ok, bad, bad, bad, changed, changed, bad]
    assert error.tolist() == [0, 0, 0, errno.EINVAL, errno.ELOOP, errno.ENOENT, 0, 0, errno.EISDIR]
    assert data[:3] == [b"hello", b"hello", b""]


def test_read_files_of_a_folder(tmp_path: Path) -> None:
    """Names are str or bytes, of any bytes, and relative; a folder that is not there fails every file."""
    names: list[str | bytes] = ["a", b"b", "\xe4", os.fsdecode(b"\xff")]
    for name in names:
        (tmp_path / os.fsdecode(name)).write_bytes(os.fsencode(name))
    sizes = np.array([len(os.fsencode(name)) for name in names], np.int64)
    starts, out = np.cumsum(sizes) - sizes, np.zeros(int(sizes.sum()), np.uint8)
    status, error = np.full(4, -1, np.int32), np.full(4, -1, np.int32)
    _native.read_files(os.fsencode(tmp_path), names, sizes, out, starts, status, error).wait()
    assert ([0] * 4, [0] * 4, b"ab\xc3\xa4\xff") == (status.tolist(), error.tolist(), out.tobytes())
    for folder, number in (("none", errno.ENOENT), ("a", errno.ENOTDIR)):
        _native.read_files(os.fsencode(tmp_path / folder), names, sizes, out, starts, status, error).wait()
        assert ([_native.IO_ERROR] * 4, [number] * 4) == (status.tolist(), error.tolist())


def test_stat_files(tmp_path: Path) -> None:
    """What lies under each name, through links; errno where that cannot be said."""
    (tmp_path / "file").write_bytes(bytes(5000))
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "lost").symlink_to("nowhere")
    names = ["file", "link", "lost", ".", "missing"]
    out = np.full((5, 5), -1, np.int64)
    folder = os.open(tmp_path, os.O_RDONLY)
    _native.stat_files(folder, names, out)
    os.close(folder)
    for name, row in zip(names, out.tolist(), strict=True):
        if name in ("lost", "missing"):
            assert row == [errno.ENOENT, 0, 0, 0, 0]
        else:
            about = (tmp_path / name).stat()
            assert row == [0, about.st_mode, about.st_size, about.st_blocks, about.st_mtime_ns]
    _native.stat_files(-1, names, out)
    assert [errno.EBADF] * 5 == out[:, 0].tolist()
    with pytest.raises(ValueError, match="length"):
        _native.stat_files(-1, names[1:], out)
    with pytest.raises(ValueError, match="NUL"):
        _native.stat_files(-1, ["a\0b"], out[:1])


def test_read_files_keeps_to_what_was_checked(tmp_path: Path) -> None:
    """Arrays that change while the job runs move no byte."""
    (tmp_path / "a").write_bytes(b"A" * 1000)
    count = 5000
    out, status = np.zeros((count + 1) * 1000, np.uint8), np.zeros(count, np.int32)
    sizes, starts = np.full(count, 1000, np.int64), np.arange(count, dtype=np.int64) * 1000
    names = [str(tmp_path / "a")] * count
    pool = ThreadPool(1)  # ends its jobs when it goes
    job = _native.read_files(b"/", names, sizes, out, starts, status, status.copy(), pool)
    starts[:] = count * 1000
    sizes[:] = 7
    job.wait()
    assert [1000 * count, 0] == [int((part == ord("A")).sum()) for part in (out[:-1000], out[-1000:])]
    assert not status.any()


def test_read_files_checks_its_arguments(tmp_path: Path) -> None:
    """A place outside the output, and a path that is not bytes, are refused before anything is read."""
    out = np.zeros(4, np.uint8)
    one, status = np.zeros(1, np.int64), np.zeros(1, np.int32)
    with pytest.raises(IndexError, match="file 0"):
        _native.read_files(b".", [b"x"], one + 5, out, one, status, status.copy())
    with pytest.raises(TypeError):
        _native.read_files(b".", [1], one, out, one, status, status.copy())  # type: ignore[list-item]
    with pytest.raises(ValueError, match="null byte"):
        _native.read_files(b".", [b"x\0y"], one, out, one, status, status.copy())


def test_read_ahead(tmp_path: Path) -> None:
    """Advice about mapped and unmapped memory is taken without complaint."""
    path = tmp_path / "data"
    path.write_bytes(bytes(100_000))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        data = np.frombuffer(mapped, np.uint8)
        starts = np.array([90_000, 0, 5, 0], np.int64)
        sizes = np.array([10_000, 5, 0, 9], np.int64)
        buffers = Buffers([data, np.zeros(10, np.uint8)])
        job = _native.read_ahead(Spans(buffers, np.array([0, 0, 0, 1], np.int32), starts, sizes), ThreadPool(1))
        assert job.wait()
        del buffers, data, job


def plain_philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x32-10 from its definition."""
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        low = 0xFFFFFFFF
        counter = [b >> 32 ^ counter[1] ^ key[0], b & low, a >> 32 ^ counter[3] ^ key[1], a & low]
        key = [(key[0] + 0x9E3779B9) & low, (key[1] + 0xBB67AE85) & low]
    return counter


def plain_shuffle(count: int, seed: int, stream: int) -> list[int]:
    """The shuffle as the header describes it."""
    low = 0xFFFFFFFF
    values = list(range(count))
    for drawn, place in enumerate(range(count - 1, 0, -1)):
        step = drawn // 2
        words = plain_philox([step & low, step >> 32, stream & low, stream >> 32], [seed & low, seed >> 32])
        random = words[drawn % 2 * 2] | words[drawn % 2 * 2 + 1] << 32
        other = random * (place + 1) >> 64
        values[place], values[other] = values[other], values[place]
    return values


@pytest.mark.parametrize(("seed", "stream"), [(0, 0), (1, 7), (2**64 - 1, 2**63 + 5)])
def test_shuffle(seed: int, stream: int) -> None:
    """The native shuffle is the plain one."""
    for count in (0, 1, 2, 57):
        values = np.arange(count, dtype=np.int64)
        _native.shuffle(values, seed, stream)
        assert plain_shuffle(count, seed, stream) == values.tolist()


def test_shuffle_is_even() -> None:
    """Each value reaches each place about equally often (chi-square within six deviations)."""
    count, rounds = 10, 4000
    seen = np.zeros((count, count))
    for stream in range(rounds):
        values = np.arange(count, dtype=np.int64)
        _native.shuffle(values, 123, stream)
        seen[np.arange(count), values] += 1
    expected = rounds / count
    chi = float(((seen - expected) ** 2 / expected).sum())
    freedom = (count - 1) ** 2
    assert abs(chi - freedom) < 6 * (2 * freedom) ** 0.5


def encoded(kind: str, mode: str) -> bytes:
    """A picture of 5 x 7 (height x width)."""
    buffer = io.BytesIO()
    Image.new("RGB", (7, 5)).convert(mode).save(buffer, kind)
    return buffer.getvalue()


def probe(file: bytes) -> list[int]:
    """Status, height, width, channels, kind of one file."""
    out = np.zeros((1, 5), np.int32)
    spans = Spans.of(np.frombuffer(file or b"\0", np.uint8), np.zeros(1, np.int64), np.array([len(file)]))
    _native.probe_images(spans, out).wait()
    return [int(number) for number in out[0]]


@pytest.mark.parametrize(
    ("kind", "mode", "channels", "number"),
    [
        ("JPEG", "RGB", 3, 1),
        ("JPEG", "L", 1, 1),
        ("JPEG", "CMYK", 4, 1),
        ("PNG", "RGB", 3, 2),
        ("PNG", "LA", 2, 2),
        ("PNG", "P", 3, 2),
        ("PNG", "1", 1, 2),
        ("GIF", "P", 3, 3),
        ("BMP", "RGB", 3, 4),
        ("WEBP", "RGB", 3, 5),
        ("TIFF", "RGBA", 4, 6),
        ("TIFF", "P", 3, 6),
        ("PPM", "RGB", 3, 7),
        ("PPM", "L", 1, 7),
    ],
)
def test_probe(kind: str, mode: str, channels: int, number: int) -> None:
    """Every kind's header gives height, width and channels as stored; its prefixes are refused or right."""
    file = encoded(kind, mode)
    assert [_native.OK, 5, 7, channels, number] == probe(file)
    for size in range(min(len(file), 300)):
        status, height, width, *_ = probe(file[:size])
        assert (height, width) == ((5, 7) if status == _native.OK else (0, 0))


def test_probe_lossless_webp() -> None:
    """The lossless kind of WebP keeps its size in other bits."""
    buffer = io.BytesIO()
    Image.new("RGBA", (7, 5), (1, 2, 3, 4)).save(buffer, "WEBP", lossless=True)
    assert probe(buffer.getvalue()) == [_native.OK, 5, 7, 4, 5]


def test_probe_what_is_no_picture() -> None:
    """Text is no picture; nothing at all is truncated."""
    assert probe(b"hello, this is text")[0] == _native.NOT_IMAGE
    assert probe(b"")[0] == _native.TRUNCATED


def test_build_info() -> None:
    """The versions of what is linked are known."""
    assert {"libjpeg-turbo", "libdeflate", "libwebp", "simd", "entropy", "compiler"} == set(_native.build_info())
