"""The migration guides: our lines run, and give the samples of the lines that they replace."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import lmdb
import numpy as np
import pyarrow as pa
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from fastio import FastLoader
from fastio.cli import cli
from tests.conftest import encode, pictures
from tests.converters.sources.arrow.picture_tables import FEATURES, with_features, write_saved
from tests.converters.sources.shard_files import KINDS as SHARDS
from tests.converters.sources.test_in_place import settle

GUIDES = Path(__file__).parent.parent / "fastio" / "guide" / "moving"
PAGES = sorted(path.name for path in GUIDES.glob("*.md") if path.name != "README.md")
COUNT = 24
# What the machine of a test lacks, and what would only take time here.
INSTEAD = {"num_workers=8": "num_workers=0", "num_workers=4": "num_workers=0", "224": "32", ", 256, ": ", 8, "}
# What a page needs besides the test environment, and a word of lines of others that need a process group or a server.
NEEDS = {"imagefolder.md": "torchvision", "webdataset.md": "webdataset", "huggingface.md": "datasets"}
ELSEWHERE = ("DistributedSampler", "s3://")
COMPARED = ("imagefolder.md", "webdataset.md", "huggingface.md", "lmdb_scripts.md", "hdf5_scripts.md")


class Block(NamedTuple):
    """Lines of a guide; ``library`` is "fastio" or the one that they leave, "" for commands."""

    library: str
    code: str


def blocks(page: str) -> Iterator[Block]:
    """The blocks of a page in order, as they can run here; the first line of Python names the library."""
    for language, code in re.findall(r"```(\w+)\n(.*?)```", (GUIDES / page).read_text(), re.DOTALL):
        for word, other in INSTEAD.items():
            code = code.replace(word, other)
        assert language in ("console", "python"), page
        first = code.splitlines()[0]
        assert language == "console" or first.startswith("# "), f"{page}: {first!r} names no library"
        yield Block("" if language == "console" else first.removeprefix("# "), code)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Pictures and labels, and what scripts made of them: folders, arrays, environments."""
    top = tmp_path_factory.mktemp("sources")
    pixels = pictures(COUNT, (40, 48, 3))
    photos = [(encode(picture, "JPEG"), number % 3) for number, picture in enumerate(pixels)]
    for part in ("train", "val"):
        for number, (photo, label) in enumerate(photos):
            folder = top / "photos" / part / f"class {label}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number:02d}.jpg").write_bytes(photo)
    return {"top": top, "pixels": np.stack(pictures(COUNT, (32, 32, 3))), "photos": photos}


@pytest.fixture
def names(sources: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A folder with what the pages speak of, and the names that their lines use."""
    monkeypatch.chdir(tmp_path)
    photos, labels = sources["photos"], np.arange(COUNT) % 3
    for folder, kind in (("mds", "mds"), ("chunks", "litdata")):
        SHARDS[kind](Path(folder), [photo for photo, _ in photos])
    with lmdb.open("own-env", map_size=1 << 24) as env, env.begin(write=True) as txn:
        for number, (photo, label) in enumerate(photos):
            txn.put(b"%08d" % number, label.to_bytes(8, "little") + photo)
    with h5py.File("bytes.h5", "w") as file:
        file["data"] = np.frombuffer(b"".join(photo for photo, _ in photos), np.uint8)
        file["offsets"] = np.concatenate([[0], np.cumsum([len(photo) for photo, _ in photos])])
        file["label"] = labels
    images = [{"bytes": photo, "path": f"{number}.jpg"} for number, (photo, _) in enumerate(photos)]
    table = with_features(pa.table({"image": images, "label": labels}), FEATURES)
    state = dict.fromkeys(["_format_columns", "_format_type", "_output_all_columns"])  # of the library's own
    write_saved(Path("saved"), [table], _fingerprint="0", _format_kwargs={}, **state)
    settle(tmp_path)
    return {
        "photos": photos,
        "pixels": sources["pixels"],
        "labels": labels,
        "device": torch.device("cpu"),
        "transform": lambda picture: np.array(picture.resize((20, 20))),
        "dataset": [(Image.open(io.BytesIO(photo)), label) for photo, label in photos],
        "beton": [
            (picture[None], np.array([[label]])) for picture, label in zip(sources["pixels"], labels, strict=True)
        ],
        "chunks": [{"image": photo, "class": label} for photo, label in photos],
    }


def run_commands(block: str) -> None:
    """Every ``fastio`` line of a block of commands, as it stands."""
    for line in re.findall(r"^\$ fastio (.*?)(?:\s+# .*)?$", block, re.MULTILINE):
        result = CliRunner().invoke(cli, shlex.split(line))
        assert result.exit_code == 0, f"{line}\n{result.output}"


# webdataset leaves its shards open until they are collected.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore:Exception ignored in.*photos-0:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("page", PAGES)
def test_the_lines_run_and_give_the_same(
    page: str, sources: dict[str, Any], names: dict[str, Any], tmp_path: Path
) -> None:
    """Commands and lines in their order; ``samples`` of both libraries are equal, pixel by pixel and label by label."""
    is_split = page == "imagefolder.md"  # whose page packs both parts
    Path("photos").symlink_to(sources["top"] / "photos" / ("" if is_split else "train"))
    needed = NEEDS.get(page)
    ours, theirs = dict(names), dict(names)
    is_installed = page in COMPARED and (needed is None or _is_installed(needed))
    for library, code in blocks(page):
        code = code.replace("/scratch", str(tmp_path))
        if library == "":
            run_commands(code)
        elif library == "fastio":
            exec(compile(code, page, "exec"), ours)
        elif is_installed and not any(word in code for word in ELSEWHERE):
            exec(compile(code, page, "exec"), theirs)
    for loader in [value for value in ours.values() if isinstance(value, FastLoader)]:
        assert 1 == len(list(islice(loader, 1)))
        loader.close()

    if is_installed:
        own_samples = [ours["samples"][index] for index in range(COUNT)]
        pairs = list(zip(islice(theirs["samples"], COUNT), own_samples, strict=True))
        assert COUNT == len(pairs)
        for (picture, label), (own, number) in pairs:
            np.testing.assert_array_equal(np.asarray(picture), np.asarray(own))
            assert label == number


def _is_installed(library: str) -> bool:
    try:
        __import__(library)
    except ImportError:
        return False
    return True


@pytest.mark.parametrize("page", [*PAGES, "README.md"])
def test_links_lead_somewhere(page: str) -> None:
    """Every relative link of a guide names a file that is there."""
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (GUIDES / page).read_text())

    assert [] == [link for link in links if not (GUIDES / link).exists()]
