"""Verifying: damage is seen and named, and nothing is called damage that is none."""

from __future__ import annotations

import struct

import pytest
from PIL import Image

from fastio.converters import open_source, pack
from fastio.converters.inspect.verify import verify
from fastio.store import open_store
from tests.conftest import SUFFIXES, write_store
from tests.converters.trees import class_folders, flat, foreign_tar, pickled, picture


@pytest.fixture(params=SUFFIXES)
def packed(request, tmp_path):
    """Class folders and their store."""
    class_folders(tmp_path / "c")
    path = tmp_path / f"out.{request.param}"
    pack(open_source(tmp_path / "c"), path)
    return path


def keys(report):
    """The keys of all problems, sorted."""
    return sorted(problem.key for problem in report.problems)


def test_a_good_store(tmp_path, packed):
    """Everything is checked, nothing is wrong, progress sees every pass."""
    told = []
    report = verify(packed, decode=True, against=open_source(tmp_path / "c"), progress=lambda n, size: told.append(n))

    assert [] == list(report.problems)
    assert (9, 9, 9) == (report.samples, report.decoded, report.compared)
    assert (["image", "label"], [], []) == (report.fields_compared, report.only_in_store, report.only_in_source)
    assert 27 == sum(told)


def test_a_flipped_bit(tmp_path, packed):
    """The sample is named, by checksum alone and against the source."""
    data = bytearray(packed.read_bytes())
    data[data.index((tmp_path / "c" / "cat" / "2.jpg").read_bytes()) + 100] ^= 1
    packed.write_bytes(data)

    assert ["cat/2.jpg"] == keys(verify(packed))
    assert ["cat/2.jpg"] == keys(verify(packed, decode=True, against=open_source(tmp_path / "c")))


def test_images_that_cannot_be_decoded(tmp_path):
    """Bytes as packed, but no image to be had: only --decode sees it, and says why."""
    jpeg = picture(1, kind="JPEG", size=(64, 64))
    values = [picture(0), picture(1)[:-30], jpeg[: len(jpeg) // 2], b"nothing", picture(2, kind="WEBP"), b""]
    path = write_store(tmp_path / "s.lmdb", [v or b"\0" for v in values])

    assert [] == keys(verify(path))
    assert ["a/0001.png", "a/0002.png", "a/0003.png", "a/0005.png"] == keys(verify(path, decode=True))


@pytest.mark.parametrize("kind", ["WEBP", "BMP", "TIFF", "PPM", "GIF"])
def test_other_kinds_than_jpeg_and_png(tmp_path, kind):
    """Whole ones pass, cut ones are named."""
    whole = picture(1, kind=kind, size=(40, 30))
    path = write_store(tmp_path / "s.lmdb", [whole, whole[: len(whole) // 2]])

    assert ["a/0001.png"] == keys(verify(path, decode=True))


def test_whatever_pillow_raises_is_a_problem(tmp_path, monkeypatch):
    """A plugin that trips over its input does not end the run."""
    path = write_store(tmp_path / "s.lmdb", [picture(1, kind="TIFF")])

    def trip(self, mode):
        raise struct.error("unpack requires a buffer of 4 bytes")

    monkeypatch.setattr(Image.Image, "convert", trip)
    monkeypatch.setattr(Image.Image, "load", trip)
    (problem,) = verify(path, decode=True).problems

    assert "is damaged: Pillow cannot decode it: unpack requires a buffer of 4 bytes" in problem.problem


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "P", "1"])
def test_all_modes_decode(tmp_path, mode):
    """Grey, alpha, palette and bilevel PNGs are no damage."""
    path = write_store(tmp_path / "s.lmdb", [picture(1, mode=mode)])

    assert [] == keys(verify(path, decode=True))


def test_differences_from_the_source(tmp_path, packed):
    """A changed, a removed, a new and a relabelled file are each named."""
    root = tmp_path / "c"
    (root / "bee" / "0.png").write_bytes(picture(99, size=(8, 4)))
    (root / "bee" / "2.jpg").unlink()
    (root / "cat" / "new.png").write_bytes(picture(5))
    report = verify(packed, against=open_source(root))
    said = {problem.key: problem.problem for problem in report.problems}

    assert ["bee/0.png", "bee/2.jpg", "cat/new.png"] == keys(report)
    assert "other bytes" in said["bee/0.png"]
    assert "not in the source" in said["bee/2.jpg"]
    assert "not in the store" in said["cat/new.png"]


def test_changed_labels(tmp_path):
    """A label that differs is named with both; without labels on one side it is said that none were compared."""
    labels = flat(tmp_path / "f")
    pack(open_source(tmp_path / "f", labels=pickled(tmp_path / "l.pkl", labels)), tmp_path / "s.h5")
    changed = pickled(tmp_path / "changed.pkl", {**labels, "0003.png": 8})
    report = verify(tmp_path / "s.h5", against=open_source(tmp_path / "f", labels=changed))

    assert [("0003.png", "has label 0 in the store, 8 in the source")] == [(p.key, p.problem) for p in report.problems]
    without = verify(tmp_path / "s.h5", against=open_source(tmp_path / "f"))
    assert (["image"], ["label"], []) == (without.fields_compared, without.only_in_store, without.only_in_source)


def test_classes_are_compared_by_name(tmp_path):
    """The same number for another class is a difference."""
    flat(tmp_path / "f", 2)
    first = pickled(tmp_path / "a.pkl", {"0000.png": "ant", "0001.png": "bee"})
    second = pickled(tmp_path / "b.pkl", {"0000.png": "bee", "0001.png": "cat"})
    pack(open_source(tmp_path / "f", labels=first), tmp_path / "s.lmdb")
    report = verify(tmp_path / "s.lmdb", against=open_source(tmp_path / "f", labels=second))

    assert ["0000.png", "0001.png"] == keys(report)


def test_skipped_samples_are_no_difference(tmp_path):
    """What the ledger lists is accounted for; a new bad file is not."""
    flat(tmp_path / "f")
    (tmp_path / "f" / "0002.png").write_bytes(b"no picture")
    pack(open_source(tmp_path / "f"), tmp_path / "s.lmdb", on_error="skip")

    assert [] == keys(verify(tmp_path / "s.lmdb", against=open_source(tmp_path / "f")))

    (tmp_path / "f" / "0004.png").write_bytes(b"no picture")
    (tmp_path / "f" / "late.png").write_bytes(b"")

    assert ["0004.png", "late.png"] == keys(verify(tmp_path / "s.lmdb", against=open_source(tmp_path / "f")))


def test_foreign_shards_have_no_checksums(tmp_path):
    """The report says that nothing could be compared."""
    report = verify(foreign_tar(tmp_path / "s.tar"), decode=True)

    assert (False, 5, []) == (report.checksums, report.decoded, list(report.problems))


def test_a_header_that_announces_too_much(tmp_path):
    """An image that claims 60,000 x 60,000 pixels is named, not allocated."""
    data = bytearray(picture(1))
    data[16:24] = (60_000).to_bytes(4, "big") * 2
    path = write_store(tmp_path / "s.lmdb", [bytes(data)])

    with open_store(path) as store:
        assert 1 == len(store)
    assert ["a/0000.png"] == keys(verify(path, decode=True))


def test_another_source_altogether(tmp_path):
    """Where no key is the same, each side's are named."""
    class_folders(tmp_path / "a")
    class_folders(tmp_path / "b")
    for name in ("bee", "cat", "dog"):
        (tmp_path / "b" / name).rename(tmp_path / "b" / f"{name}s")
    pack(open_source(tmp_path / "a"), tmp_path / "a.lmdb")
    report = verify(tmp_path / "a.lmdb", against=open_source(tmp_path / "b"))

    assert (0, 18) == (report.compared, len(report.problems))
