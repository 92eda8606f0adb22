"""Pictures of another format than their names say, as ImageNet-1k has one: packed as they are, counted and named."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fastio import FastDataset, FastLoader, transforms
from fastio.converters import Raw, Transcode, open_source, pack
from fastio.store import open_store
from tests.commands import run
from tests.converters.trees import files_below, picture

NAME = "n02105855/n02105855_2933.JPEG"


@pytest.fixture
def imagenet(tmp_path):
    """Class folders of JPEGs, one of which is a PNG, one CMYK, one a WebP, and a JPEG that is called a PNG."""
    root = tmp_path / "imagenet"
    files = {
        "n01440764/n01440764_10026.JPEG": picture(1, kind="JPEG", size=(40, 30)),
        "n01440764/n01440764_7.JPEG": picture(2, kind="JPEG", size=(40, 30), mode="CMYK"),
        "n01440764/n01440764_8.JPEG": picture(3, kind="WEBP", size=(40, 30)),
        NAME: picture(4, size=(40, 30)),
        "n02105855/n02105855_3.png": picture(5, kind="JPEG", size=(40, 30)),
    }
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


@pytest.mark.parametrize("out", ["s.lmdb", "s.h5", "s.tar"])
def test_it_is_packed_whole_and_given_back(imagenet, tmp_path, out):
    """Each format: what pack says, the ledger, verify, the pixels, and the bytes under the same names."""
    said = run("pack", imagenet, tmp_path / out)
    line = "named wrongly: 3 pictures, which keep their bytes and their names; the first: n01440764/n01440764_8.JPEG is"

    assert f"{line} a WebP under the name of a JPEG (.JPEG)" in said
    assert line in run("info", tmp_path / out)
    assert f"{NAME} " in run("info", tmp_path / out, "--skipped")
    assert "all good" in run("verify", tmp_path / out, "--decode", "--against", imagenet)
    run("unpack", tmp_path / out, tmp_path / "again")
    assert files_below(imagenet) == files_below(tmp_path / "again")

    dataset = FastDataset(tmp_path / out)
    for index, key in enumerate(dataset.keys):
        with Image.open(imagenet / key) as expected:
            assert np.array_equal(np.asarray(expected.convert("RGB")), np.asarray(dataset[index][0]))
    loader = FastLoader(dataset, 5, transforms=[transforms.Resize((8, 8))])
    assert torch.Size([5, 3, 8, 8]) == next(iter(loader))[0].shape


# webdataset leaves its files to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_webdataset_finds_it_under_its_name(imagenet, tmp_path):
    """The member keeps the name of a JPEG and the bytes of the PNG."""
    webdataset = pytest.importorskip("webdataset")
    run("pack", imagenet, tmp_path / "s.tar")
    samples = list(webdataset.WebDataset(str(tmp_path / "s.tar"), shardshuffle=False, empty_check=False))
    found = {sample["__key__"]: sample for sample in samples}

    assert (imagenet / NAME).read_bytes() == found[NAME.removesuffix(".JPEG")]["jpeg"]
    run("pack", tmp_path / "s.tar", tmp_path / "again.lmdb")
    assert "named wrongly: 3 pictures" in run("info", tmp_path / "again.lmdb")


def test_what_is_written_anew_is_named_rightly(imagenet, tmp_path):
    """A PNG that becomes a JPEG under a JPEG's name is none of them any more; a JPEG called .png gets its name."""
    report = pack(open_source(imagenet), tmp_path / "s.lmdb", pictures=Transcode(short_side=10))
    with open_store(tmp_path / "s.lmdb") as store:
        keys = store.keys(range(len(store)))
        named = [each["key"] for each in store.metadata["misnamed"]]
        first = bytes(store.spans("image", [keys.index(NAME)]).view(0)[:3])

    assert 5 == report.packed
    assert b"\xff\xd8\xff" == first
    assert "n02105855/n02105855_3.jpg" in keys
    assert ["n01440764/n01440764_8.JPEG"] == named  # a WebP is not written anew


def test_pixels_have_no_format(imagenet, tmp_path):
    """Raw pixels are misnamed by nobody."""
    pack(open_source(imagenet), tmp_path / "s.lmdb", pictures=Raw(), on_error="skip")
    with open_store(tmp_path / "s.lmdb") as store:
        assert "misnamed" not in store.metadata


def test_what_is_no_picture_is_a_problem_as_before(tmp_path):
    """A name alone makes no picture."""
    folder = tmp_path / "f"
    folder.mkdir()
    (folder / "a.jpg").write_bytes(picture(1))
    (folder / "b.jpg").write_bytes(b"GIF? no")
    gif = io.BytesIO()
    Image.new("P", (4, 4)).save(gif, "GIF")
    (folder / "c.jpg").write_bytes(gif.getvalue())
    report = pack(open_source(folder), tmp_path / "s.lmdb", on_error="skip")

    assert ["b.jpg"] == [each.key for each in report.skipped]
    assert (4, 4) == FastDataset(Path(report.path))[1].size
