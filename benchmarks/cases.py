"""What is measured: every case is a loader over the same samples, or a packing of the same files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.synthetic import make_photos, make_pngs

__all__ = ["LOADING", "OPENING", "PACKING", "Data", "packed_samples", "prepare", "remove_outputs"]


@dataclass(frozen=True, slots=True)
class Data:
    """The folders that all cases read, and where their packed forms lie."""

    pngs: Path
    labels: Path
    photos: Path  # class folders of JPEGs of one size
    packed: Path

    @property
    def mixed(self) -> Path:
        """Class folders of JPEGs of different sizes."""
        return self.packed / "mixed"

    def store(self, name: str) -> Path:
        """The path of a packed form, such as ``png.lmdb``."""
        return self.packed / name


def prepare(root: Path, *, pngs: Path | None = None, labels: Path | None = None) -> Data:
    """Make (once) the synthetic data, unless real PNGs are named, and pack them into all formats."""
    root.mkdir(parents=True, exist_ok=True)
    if pngs is None:
        pngs = root / "pngs"
        labels = make_pngs(pngs)
    assert labels is not None
    data = Data(pngs, labels, make_photos(root / "photos", 200, sizes=((375, 500),)), root)
    _pack(make_photos(data.mixed), data.store("mixed.lmdb"), overwrite=True)
    _pack(data.mixed, data.store("mixed-restart.lmdb"), overwrite=True, restart=8)
    _pack(data.mixed, data.store("mixed-256.lmdb"), overwrite=True, short_side=256)
    _pack(make_photos(root / "large", 8, sizes=((2000, 3000), (3000, 2000))), data.store("large.lmdb"), overwrite=True)
    for suffix in ("lmdb", "h5", "tar"):
        _pack(data.pngs, data.store(f"png.{suffix}"), labels=data.labels, overwrite=True)
        _pack(data.photos, data.store(f"jpeg.{suffix}"), overwrite=True)
        _pack_raw(data.store("png.lmdb"), data.store(f"raw.{suffix}"))
        _pack_many(data.store(f"million.{suffix}"))
    return data


def _pack(
    source: Path,
    out: Path,
    *,
    labels: Path | None = None,
    overwrite: bool = False,
    restart: int = 0,
    short_side: int | None = None,
) -> None:
    from fastio.converters import Transcode, open_source, pack

    pictures = Transcode(restart=restart, short_side=short_side) if restart or short_side else None
    pack(open_source(source, labels=labels), out, pictures=pictures, overwrite=overwrite)


def _pack_raw(png_store: Path, out: Path) -> None:
    """The same pictures as decoded pixels."""
    from fastio.codec import CODECS
    from fastio.store import SampleBatch, create_store, open_store
    from fastio.types.schema import COLUMN, RAW, Field, Schema
    from fastio.types.spans import Spans

    with open_store(png_store) as store:
        indices = np.arange(len(store))
        pixels = np.empty((len(store), 32, 32, 3), np.uint8)
        status = np.empty(len(store), np.int32)
        CODECS["image"].decode(store.spans("image", indices), pixels, status).wait()
        assert not status.any()
        schema = Schema((Field("image", RAW, "|u1", (32, 32, 3)), Field("label", COLUMN, "<i8", ())))
        spans = Spans.joined(pixels.reshape(-1), np.full(len(store), 3072, np.int64))
        with create_store(out, schema, overwrite=True) as writer:
            writer.append(SampleBatch(store.keys(indices), {"image": spans}, {"label": store.column("label")}))


def _pack_many(out: Path, count: int = 1_000_000) -> None:
    """A store of many tiny samples, to be opened only."""
    if out.exists():
        return
    from fastio.store import SampleBatch, create_store
    from fastio.types.schema import BYTES, COLUMN, Field, Schema
    from fastio.types.spans import Spans

    size, step = 16, 10_000
    data = np.arange(step * size, dtype=np.int64).astype(np.uint8)
    starts = np.arange(step, dtype=np.int64) * size
    spans = Spans.of(data, starts, np.full(step, size, np.int64))
    schema = Schema((Field("blob", BYTES, "|u1", (None,)), Field("label", COLUMN, "<i8", ())))
    with create_store(out, schema) as writer:
        for first in range(0, count, step):
            keys = [f"folder/{index:09d}.bin" for index in range(first, first + step)]
            writer.append(SampleBatch(keys, {"blob": spans}, {"label": starts}))


def _fast(name: str, batch_size: int, **options: Any) -> Callable[[Data, int], Iterable[Any]]:
    def build(data: Data, threads: int) -> Iterable[Any]:
        from fastio import FastDataset, FastLoader

        return FastLoader(FastDataset(data.store(name)), batch_size, threads=threads, **options)

    return build


def _crops(name: str, batch_size: int, transforms: str, **options: Any) -> Callable[[Data, int], Iterable[Any]]:
    def build(data: Data, threads: int) -> Iterable[Any]:
        from fastio import FastDataset, FastLoader
        from fastio.transforms import CenterCrop, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, Resize, Transform

        chains: dict[str, list[Transform]] = {
            "random_224": [RandomResizedCrop(224), RandomHorizontalFlip()],
            "center_224": [Resize(256), CenterCrop(224)],
            "crop_32": [RandomCrop(32, padding=4), RandomHorizontalFlip()],
        }
        dataset = FastDataset(data.store(name))
        return FastLoader(dataset, batch_size, threads=threads, transforms=chains[transforms], **options)

    return build


def _own_function(data: Data, threads: int) -> Iterable[Any]:
    from benchmarks.own_function import GEOMETRY, gains
    from fastio import FastDataset, FastLoader
    from fastio.transforms import Compiled

    dataset = FastDataset(data.store("mixed.lmdb"))
    return FastLoader(dataset, 64, threads=threads, transforms=[GEOMETRY, Compiled(gains, draws=3)])


def _own_callable(data: Data, threads: int) -> Iterable[Any]:
    from benchmarks.own_function import in_numpy
    from fastio import FastDataset, FastLoader

    return FastLoader(FastDataset(data.store("mixed.lmdb"), in_numpy), 64, threads=threads)


def _files(workers: int, transform: str = "") -> Callable[[Data, int], Iterable[Any]]:
    def build(data: Data, threads: int) -> Iterable[Any]:
        from benchmarks.peers import files_pil

        chosen = getattr(files_pil, transform) if transform else None
        return files_pil.loader(data.pngs, data.labels, batch_size=128, workers=workers, transform=chosen)

    return build


def _photo_files(workers: int, transform: str) -> Callable[[Data, int], Iterable[Any]]:
    def build(data: Data, threads: int) -> Iterable[Any]:
        from benchmarks.peers import files_pil

        chosen = getattr(files_pil, transform)
        return files_pil.photo_loader(data.mixed, batch_size=64, workers=workers, transform=chosen)

    return build


def _plain_lmdb(workers: int) -> Callable[[Data, int], Iterable[Any]]:
    def build(data: Data, threads: int) -> Iterable[Any]:
        from benchmarks.peers import plain_lmdb

        path = data.store("plain-peer.lmdb")
        if not path.exists():
            plain_lmdb.pack(data.pngs, data.labels, path)
        return plain_lmdb.loader(path, batch_size=128, workers=workers)

    return build


# name -> (data, threads) -> something that gives (images, labels) batches for one epoch
LOADING: dict[str, Callable[[Data, int], Iterable[Any]]] = {
    "png files, PIL, 0 workers": _files(0),
    "png files, PIL, 2 workers": _files(2),
    "png plain lmdb, PIL, 2 workers": _plain_lmdb(2),
    "png fastio lmdb": _fast("png.lmdb", 256),
    "png fastio hdf5": _fast("png.h5", 256),
    "png fastio tar": _fast("png.tar", 256),
    "png fastio lmdb, shuffled": _fast("png.lmdb", 256, shuffle=True),
    "png fastio lmdb, unverified": _fast("png.lmdb", 256, verify=False),
    "raw fastio lmdb": _fast("raw.lmdb", 256),
    "raw fastio hdf5": _fast("raw.h5", 256),
    "raw fastio tar": _fast("raw.tar", 256),
    "raw fastio hdf5, full shuffle": _fast("raw.h5", 256, shuffle="full"),
    "jpeg fastio lmdb": _fast("jpeg.lmdb", 32),
    "jpeg fastio lmdb, unverified": _fast("jpeg.lmdb", 32, verify=False),
    "rrc224 files, PIL, 0 workers": _photo_files(0, "random_224"),
    "rrc224 files, PIL, 2 workers": _photo_files(2, "random_224"),
    "rrc224 fastio lmdb": _crops("mixed.lmdb", 64, "random_224"),
    "rrc224 fastio lmdb, packed with --restart 8": _crops("mixed-restart.lmdb", 64, "random_224"),
    "rrc224 fastio lmdb, packed with --short-side 256": _crops("mixed-256.lmdb", 64, "random_224"),
    "rrc224 fastio lmdb, 6 MP": _crops("large.lmdb", 8, "random_224"),
    "rrc224 fastio lmdb, 6 MP, fast": _crops("large.lmdb", 8, "random_224", quality="fast"),
    "rrc224 + own function, compiled": _own_function,
    "rrc224 + own function, numpy in the plain path": _own_callable,
    "resize256 crop224 files, PIL, 0 workers": _photo_files(0, "center_224"),
    "resize256 crop224 files, PIL, 2 workers": _photo_files(2, "center_224"),
    "resize256 crop224 fastio lmdb": _crops("mixed.lmdb", 64, "center_224"),
    "resize256 crop224 fastio lmdb, 6 MP": _crops("large.lmdb", 8, "center_224"),
    "resize256 crop224 fastio lmdb, 6 MP, fast": _crops("large.lmdb", 8, "center_224", quality="fast"),
    "png files, PIL, 0 workers, RandomCrop+flip": _files(0, "crop_32"),
    "png fastio lmdb, RandomCrop+flip": _crops("png.lmdb", 256, "crop_32"),
    "raw fastio hdf5, RandomCrop+flip": _crops("raw.h5", 256, "crop_32"),
}


def _open(suffix: str) -> Callable[[Data], int]:
    def open_once(data: Data) -> int:
        from fastio.store import open_store

        with open_store(data.store(f"million.{suffix}")) as store:
            return len(store)

    return open_once


# name -> data -> opens a store of a million samples once, and says how many there are
OPENING: dict[str, Callable[[Data], int]] = {
    "open 1M samples, fastio lmdb": _open("lmdb"),
    "open 1M samples, fastio hdf5": _open("h5"),
    "open 1M samples, fastio tar": _open("tar"),
}


def _fastio_pack(suffix: str) -> Callable[[Data, Path], None]:
    return lambda data, out: _pack(data.pngs, out.with_suffix(f".{suffix}"), labels=data.labels)


def _photo_pack(**options: int) -> Callable[[Data, Path], None]:
    return lambda data, out: _pack(data.mixed, out.with_suffix(".lmdb"), **options)


def _peer_pack(name: str, suffix: str) -> Callable[[Data, Path], None]:
    def pack(data: Data, out: Path) -> None:
        from importlib import import_module

        import_module(f"benchmarks.peers.{name}").pack(data.pngs, data.labels, out.with_suffix(f".{suffix}"))

    return pack


# name -> (data, path without suffix) -> packs all photos
PHOTO_PACKING: dict[str, Callable[[Data, Path], None]] = {
    "pack photos, fastio lmdb": _photo_pack(),
    "pack photos, fastio lmdb --restart 8": _photo_pack(restart=8),
    "pack photos, fastio lmdb --short-side 256": _photo_pack(short_side=256),
}

# name -> (data, path without suffix) -> packs all PNGs, or all photos
PACKING: dict[str, Callable[[Data, Path], None]] = {
    "pack plain lmdb": _peer_pack("plain_lmdb", "lmdb"),
    "pack fastio lmdb": _fastio_pack("lmdb"),
    "pack plain h5py": _peer_pack("plain_h5py", "h5"),
    "pack fastio hdf5": _fastio_pack("h5"),
    "pack webdataset": _peer_pack("plain_webdataset", "tar"),
    "pack fastio tar": _fastio_pack("tar"),
    **PHOTO_PACKING,
}


def packed_samples(name: str, data: Data) -> int:
    """How many files a packing case packs."""
    folder = data.mixed if name in PHOTO_PACKING else data.pngs
    return sum(path.is_file() for path in folder.rglob("*"))


def remove_outputs(out: Path) -> None:
    """Delete what a packing case wrote, so that the next one starts from nothing."""
    for path in out.parent.glob(f"{out.name}*"):
        if path.is_dir():
            for inner in path.iterdir():
                inner.unlink()
            path.rmdir()
        else:
            path.unlink()
