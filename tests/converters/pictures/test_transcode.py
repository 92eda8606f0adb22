"""Pictures written anew while they are packed: the same pixels where that is said, and nothing lost without a word."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fastio.converters import Raw, Transcode, open_source, pack
from fastio.converters.inspect.verify import verify
from fastio.converters.packing import pipeline
from fastio.errors import SourceError
from fastio.store import open_store
from tests.converters.trees import picture

EXIF = Image.Exif()
EXIF[0x0112] = 6  # orientation: lies on its side


def photo(seed: int, size: tuple[int, int] = (97, 61), mode: str = "RGB") -> Image.Image:
    """Something smooth with noise in it, of ``size`` (width, height)."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[: size[1], : size[0]]
    pixels = np.stack([x * 2 + seed, y * 3, x + y], axis=2) + rng.integers(0, 40, (size[1], size[0], 3))
    return Image.fromarray((pixels % 256).astype(np.uint8)).convert(mode)


def jpeg(seed: int, size: tuple[int, int] = (97, 61), mode: str = "RGB", **options: Any) -> bytes:
    """An encoded photo."""
    file = io.BytesIO()
    photo(seed, size, mode).save(file, "JPEG", **{"quality": 85, **options})
    return file.getvalue()


def folder(path: Path, files: dict[str, bytes]) -> Path:
    """A flat folder of these files."""
    path.mkdir()
    for name, data in files.items():
        (path / name).write_bytes(data)
    return path


def packed(path: Path, out: Path, pictures: Transcode | Raw, **options: Any) -> dict[str, bytes]:
    """What a folder becomes: every sample's bytes by key."""
    pack(open_source(path), out, pictures=pictures, **options)
    return contents(out)


def contents(out: Path) -> dict[str, bytes]:
    """Every sample's bytes by key."""
    with open_store(out) as store:
        every = np.arange(len(store))
        return {key: store.spans("image", every).view(i).tobytes() for i, key in enumerate(store.keys(every))}


def pixels(data: bytes) -> np.ndarray:
    """As Pillow decodes them."""
    return np.asarray(Image.open(io.BytesIO(data)))


KINDS = {
    "plain": {},
    "444": {"subsampling": "4:4:4"},
    "422": {"subsampling": "4:2:2"},
    "restart": {"restart_marker_blocks": 3},
    "progressive": {"progressive": True},
    "optimised": {"optimize": True},
    "grey": {"mode": "L"},
    "tiny": {"size": (1, 1)},
    "odd": {"size": (17, 130)},
}


@pytest.mark.parametrize("suffix", [".lmdb", ".h5", ".tar"])
def test_restart_keeps_every_pixel(tmp_path, suffix):
    """JPEGs of all kinds get markers and keep their pixels, and the store knows where intervals begin."""
    files = {f"{name}.jpg": jpeg(i, **kind) for i, (name, kind) in enumerate(KINDS.items())}
    out = tmp_path / f"out{suffix}"
    new = packed(folder(tmp_path / "in", files), out, Transcode(restart=2))

    assert sorted(files) == list(new)
    for key, data in new.items():
        assert np.array_equal(pixels(files[key]), pixels(data))
        assert b"\xff\xdd\x00\x04\x00\x02" in data  # DRI: every 2 MCUs
        assert data != files[key]
    with open_store(out) as store:
        known = store.spans("image", np.arange(len(store))).intervals
        for i, data in enumerate(new.values()):
            for place in (~known.view(i).view("<u4")[2:]).tolist():
                assert b"\xff\xd7" == data[place - 2 : place]
        assert known.sizes.max() > 8  # places behind tag and checksum
        assert {"restart": 2, "pictures": {"rewritten": 9}} == {
            name: store.metadata["packing"][name] for name in ("restart", "pictures")
        }


@pytest.mark.parametrize("pictures", [Transcode(restart=4), Transcode(short_side=32, restart=4)])
def test_what_is_said_about_a_picture_stays(tmp_path, pictures):
    """EXIF, ICC profile, comment and density of a JPEG are those of the original."""
    data = jpeg(1, exif=EXIF.tobytes(), icc_profile=b"profile" * 20_000, comment=b"said", dpi=(300, 200))
    new = packed(folder(tmp_path / "in", {"a.jpg": data}), tmp_path / "out.lmdb", pictures)["a.jpg"]

    before, after = Image.open(io.BytesIO(data)).info, Image.open(io.BytesIO(new)).info
    names = ("exif", "icc_profile", "comment", "dpi", "jfif", "jfif_density", "jfif_unit")
    assert {name: before[name] for name in names} == {name: after[name] for name in names}


def test_adobe_stays(tmp_path):
    """A JPEG that holds RGB and says so by Adobe's marker still does."""
    data = jpeg(1, keep_rgb=True)
    new = packed(folder(tmp_path / "in", {"a.jpg": data}), tmp_path / "out.lmdb", Transcode(restart=1))["a.jpg"]

    assert Image.open(io.BytesIO(data)).info["adobe_transform"] == Image.open(io.BytesIO(new)).info["adobe_transform"]
    assert np.array_equal(pixels(data), pixels(new))


def test_what_cannot_be_rewritten_is_kept_and_counted(tmp_path):
    """PNG, GIF-like kinds, CMYK, and a JPEG with something behind it stay as they are, each said with its first key."""
    files = {
        "a.jpg": jpeg(1),
        "b.png": picture(2),
        "c.bmp": picture(3, kind="BMP"),
        "d.jpg": jpeg(4, mode="CMYK"),
        "e.jpg": jpeg(5) + b"a film",
    }
    out = tmp_path / "out.lmdb"
    new = packed(folder(tmp_path / "in", files), out, Transcode(restart=8))

    assert {name: files[name] for name in ("b.png", "c.bmp", "d.jpg", "e.jpg")} == {
        name: new[name] for name in ("b.png", "c.bmp", "d.jpg", "e.jpg")
    }
    with open_store(out) as store:
        assert {
            "other": {"samples": 2, "first": "b.png"},
            "unusual": {"samples": 2, "first": "d.jpg"},
        } == store.metadata["packing"]["kept"]


def damaged() -> bytes:
    """A JPEG that ends too early, behind a whole header."""
    data = jpeg(7)
    return data[: len(data) // 2]


def test_damage_is_found_when_packing(tmp_path):
    """A picture that cannot be decoded stops the run, or is skipped and on record."""
    source = folder(tmp_path / "in", {"a.jpg": jpeg(1), "b.jpg": damaged()})
    with pytest.raises(SourceError, match=r"b\.jpg: cannot be decoded: its data end too early"):
        packed(source, tmp_path / "out.lmdb", Transcode(restart=8))
    new = packed(source, tmp_path / "out.lmdb", Transcode(restart=8), on_error="skip")

    assert ["a.jpg"] == list(new)
    with open_store(tmp_path / "out.lmdb") as store:
        assert ["b.jpg"] == [entry["key"] for entry in store.metadata["skipped"]]


@pytest.mark.parametrize(
    ("pictures", "size"),
    [
        (Transcode(short_side=40), (63, 40)),
        (Transcode(max_side=50), (50, 31)),
        (Transcode(short_side=61), (97, 61)),
        (Transcode(max_side=1), (1, 1)),
        (Transcode(short_side=40, subsampling="4:4:4", quality=95), (63, 40)),
    ],
)
def test_sides_are_bounded(tmp_path, pictures, size):
    """The side asked for, the other one in proportion; never larger than before."""
    data = jpeg(3)
    new = packed(folder(tmp_path / "in", {"a.jpg": data}), tmp_path / "out.lmdb", pictures)["a.jpg"]
    shown = Image.open(io.BytesIO(new))

    assert size == shown.size
    if size == (97, 61):
        assert data == new
    else:
        expected = np.asarray(Image.open(io.BytesIO(data)).resize(size, Image.Resampling.BILINEAR), np.int64)
        assert np.abs(expected - np.asarray(shown)).mean() < 16


def test_smaller_pictures_equal_resized_ones(tmp_path):
    """At quality 100 without subsampling, a resized picture is Pillow's, but for a little rounding."""
    data = jpeg(3, size=(160, 120))
    pictures = Transcode(short_side=60, quality=100, subsampling="4:4:4")
    new = packed(folder(tmp_path / "in", {"a.jpg": data}), tmp_path / "out.lmdb", pictures)["a.jpg"]
    expected = np.asarray(Image.open(io.BytesIO(data)).resize((80, 60), Image.Resampling.BILINEAR), np.int64)

    assert np.abs(expected - pixels(new)).max() <= 4


def png(mode: str, **options: Any) -> bytes:
    """A PNG of 97 x 61 pixels."""
    file = io.BytesIO()
    photo(1, mode="RGB").convert(mode).save(file, "PNG", **options)
    return file.getvalue()


def test_png_becomes_jpeg_and_says_so(tmp_path):
    """PNGs that are made smaller get the name of a JPEG; what a JPEG would lose is kept."""
    deep = io.BytesIO()
    Image.fromarray(np.arange(6000, dtype=np.uint16).reshape(60, 100)).save(deep, "PNG")
    files = {
        "alpha.png": png("RGBA"),
        "deep.png": deep.getvalue(),
        "exif.png": png("RGB", exif=EXIF),
        "grey.png": png("L"),
        "icc.png": png("RGB", icc_profile=b"profile"),
        "palette.png": png("P"),
        "plain.png": png("RGB"),
        "small.png": picture(1),
        "transparent.png": png("P", transparency=3),
    }
    out = tmp_path / "out.lmdb"
    new = packed(folder(tmp_path / "in", files), out, Transcode(short_side=30))
    renamed = ("grey", "palette", "plain")

    assert sorted([f"{name}.jpg" for name in renamed] + [key for key in files if key[:-4] not in renamed]) == sorted(
        new
    )
    assert {key: files[key] for key in new if key.endswith("png")} == {
        key: data for key, data in new.items() if key.endswith("png")
    }
    assert {"JPEG"} == {Image.open(io.BytesIO(data)).format for key, data in new.items() if key.endswith("jpg")}
    with open_store(out) as store:
        said = store.metadata["packing"]
        assert {"resized": 3, "fitting": 1} == said["pictures"]
        assert {"rich": {"samples": 5, "first": "alpha.png"}} == said["kept"]


@pytest.mark.parametrize("other", ["a.jpg", "a.bmp"])
def test_a_name_that_is_taken_is_a_problem(tmp_path, other, monkeypatch):
    """A PNG does not take the name of a JPEG that is there, wherever in the order that comes."""
    monkeypatch.setattr(pipeline, "CHUNK_SAMPLES", 1)
    files = {"a.png": png("RGB"), "a.jpg": jpeg(1)} if other == "a.jpg" else {"a.PNG": png("RGB"), "a.jpg": jpeg(2)}
    source = folder(tmp_path / "in", files)
    for seed in range(4):  # every order
        with pytest.raises(SourceError, match="rename one of them"):
            pack(open_source(source).shuffled(seed), tmp_path / "out.lmdb", pictures=Transcode(max_side=20))


@pytest.mark.parametrize("pictures", [Transcode(restart=3), Transcode(short_side=33, restart=2), Raw()])
def test_the_same_bytes_whatever_the_threads(tmp_path, pictures, monkeypatch):
    """One thread or four, small pieces: the files are equal."""
    monkeypatch.setattr(pipeline, "CHUNK_SAMPLES", 3)
    source = folder(tmp_path / "in", {f"{i}.jpg": jpeg(i) for i in range(10)})
    written = []
    for jobs in (1, 4, 4):
        pack(open_source(source), tmp_path / "out.tar", pictures=pictures, jobs=jobs, overwrite=True)
        written.append((tmp_path / "out.tar").read_bytes())

    assert written[0] == written[1] == written[2]


def test_bytes_before_and_after(tmp_path):
    """The report counts the same samples on both sides."""
    source = folder(tmp_path / "in", {"a.jpg": jpeg(1), "b.jpg": damaged(), "c.png": picture(1)})
    report = pack(open_source(source), tmp_path / "o.lmdb", pictures=Transcode(restart=1), on_error="skip")

    assert sum((source / name).stat().st_size for name in ("a.jpg", "c.png")) == report.source_bytes
    assert sum(map(len, contents(tmp_path / "o.lmdb").values())) == report.payload_bytes
    assert 2 == report.packed


def markers(data: bytes) -> int:
    """The restart interval that a JPEG announces; 0: none."""
    at = data.find(b"\xff\xdd\x00\x04")
    return 0 if at < 0 else int.from_bytes(data[at + 4 : at + 6], "big")


@pytest.mark.parametrize(
    ("pictures", "resized", "kept"),
    [
        (Transcode(short_side=150), 8, 0),
        (Transcode(max_side=200, resized_restart=0), 0, 0),
        (Transcode(max_side=200, resized_restart=3), 3, 0),
        (Transcode(short_side=150, restart=2), 2, 2),
    ],
)
def test_markers_of_pictures_made_smaller(tmp_path, pictures, resized, kept):
    """Every 8 MCUs unless said; pictures that are small enough keep their bytes unless ``restart`` is said."""
    files = {"large.jpg": jpeg(1, (400, 300)), "small.jpg": jpeg(2, (40, 30))}
    out = tmp_path / "out.lmdb"
    new = packed(folder(tmp_path / "in", files), out, pictures)

    assert (resized, kept) == (markers(new["large.jpg"]), markers(new["small.jpg"]))
    assert (kept == 0) == (files["small.jpg"] == new["small.jpg"])
    with open_store(out) as store:
        assert resized == store.metadata["packing"]["resized_restart"]
        places = store.spans("image", np.arange(1)).intervals
        assert places is not None
        assert (resized > 0) == (places.view(0).view("<u4")[0] != 0xFFFF_FF01)  # the first word of a jump table


def test_options_of_a_store_written_before_markers_were_usual():
    """It has no markers in pictures made smaller, and is packed so again."""
    assert Transcode(short_side=40, resized_restart=0) == Transcode.from_json({"short_side": 40, "quality": 90})
    said = Transcode(short_side=40)
    assert said == Transcode.from_json(said.to_json())


_LIMITED = """
import resource, sys
from fastio.converters import Transcode, open_source, pack
from fastio.errors import SourceError

source = open_source(sys.argv[1])
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (96 << 20), resource.RLIM_INFINITY))
try:
    pack(source, sys.argv[2], pictures=Transcode(restart=8), jobs=1, on_error="skip")
except SourceError as exc:
    print(exc)
"""


def test_no_memory_to_rewrite_is_one_line(tmp_path):
    """A JPEG whose coefficients do not fit in memory is no picture of an unusual kind: the run stops, naming it."""
    file = io.BytesIO()
    Image.new("RGB", (5000, 5000)).save(file, "JPEG", subsampling="4:4:4")  # 150 MB of coefficients
    source = folder(tmp_path / "in", {"a.jpg": file.getvalue()})
    command = [sys.executable, "-c", _LIMITED, str(source), str(tmp_path / "out.lmdb")]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]).stdout

    assert said.startswith("a.jpg: there is not enough memory to rewrite this picture")
    assert not (tmp_path / "out.lmdb").exists()


@pytest.mark.parametrize(
    "pictures", [Transcode(restart=2), Transcode(short_side=33), Transcode(max_side=50, restart=2, quality=60), Raw()]
)
def test_a_store_is_compared_with_its_source(tmp_path, pictures):
    """By pixels where nothing was lost, else with packing again; a skipped picture and a new name are no difference."""
    files = {f"{i}.jpg": jpeg(i) for i in range(4)} | {"cut.jpg": damaged()}
    if isinstance(pictures, Transcode):
        files["b.png"] = png("RGB")
    source, out = folder(tmp_path / "in", files), tmp_path / "out.lmdb"
    pack(open_source(source), out, pictures=pictures, on_error="skip")
    report = verify(out, against=open_source(source))

    assert [] == report.problems
    assert (4 if pictures == Transcode(restart=2) else 0, pictures != Transcode(restart=2)) == (
        report.pixels_compared,
        report.packed_again,
    )


@pytest.mark.parametrize("pictures", [Transcode(restart=2), Transcode(short_side=33), Raw()])
def test_a_difference_to_the_source_is_found(tmp_path, pictures):
    """Another picture under the same name is named."""
    source, out = folder(tmp_path / "in", {"a.jpg": jpeg(1), "b.jpg": jpeg(2)}), tmp_path / "out.lmdb"
    pack(open_source(source), out, pictures=pictures)
    (source / "b.jpg").write_bytes(jpeg(3))
    report = verify(out, against=open_source(source))

    assert ["b.jpg"] == [problem.key for problem in report.problems]
    assert "has other" in report.problems[0].problem


def test_shuffling_depends_on_names_and_seed_alone(tmp_path):
    """The same order for the same seed, another one for another; labels go with their samples."""
    source = folder(tmp_path / "in", {f"{i:02d}.png": picture(i) for i in range(30)})
    orders = []
    for seed in (5, 5, 6):
        pack(open_source(source).shuffled(seed), tmp_path / "out.lmdb", overwrite=True)
        orders.append(list(contents(tmp_path / "out.lmdb")))
    with open_store(tmp_path / "out.lmdb") as store:
        assert 6 == store.metadata["shuffle"]

    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) == [f"{i:02d}.png" for i in range(30)]


def test_tar_shards_are_shuffled_and_keep_the_places_of_intervals(tmp_path):
    """A rewritten tar, packed again in another order: bytes, places and what was done before go along."""
    source = folder(tmp_path / "in", {f"{i}.jpg": jpeg(i, (200, 150)) for i in range(5)})
    pack(open_source(source), tmp_path / "first.tar", pictures=Transcode(restart=1))
    pack(open_source(tmp_path / "first.tar").shuffled(1), tmp_path / "second.lmdb")

    assert contents(tmp_path / "first.tar") == contents(tmp_path / "second.lmdb")
    with open_store(tmp_path / "second.lmdb") as store:
        places = store.spans("image", np.arange(5)).intervals
        assert (places.sizes > 0).all()
        assert 1 == store.metadata["packing_before"][0]["restart"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"restart": -1},
        {"restart": 1 << 16},
        {"short_side": 0},
        {"max_side": 70_000},
        {"short_side": 3, "max_side": 3},
        {"short_side": 3, "quality": 0},
        {"short_side": 3, "subsampling": "4:1:1"},
    ],
)
def test_options_that_mean_nothing(options):
    """ValueError that says what was expected."""
    with pytest.raises(ValueError, match="expected"):
        Transcode(**options)
