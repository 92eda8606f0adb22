"""What every source must do, whatever its kind; run on all of ``fastio.converters.SOURCES``."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import h5py
import lmdb
import numpy as np
import pyarrow.parquet as pq

from fastio._native import ThreadPool
from fastio.converters import SOURCES, Source, open_source
from fastio.converters.fields.types import parse_choice
from fastio.converters.sources.record import recorded_root
from fastio.store import create_store
from fastio.store.kinds.scan import SourcePath
from tests.converters.sources import layouts
from tests.converters.sources.arrow.picture_tables import picture_table, write_saved, write_stream
from tests.converters.sources.shard_files import pairs_of_kind
from tests.converters.sources.tfrecord.records import example, write_records
from tests.converters.trees import cifar_folder, class_folders, flat, foreign_tar, pickled, picture
from tests.dataset.streams import documents_of, write_megatron


def make_flat(folder: Path) -> Source:
    """Seven PNGs and a label file beside them."""
    labels = flat(folder / "flat")
    return open_source(folder / "flat", labels=pickled(folder / "labels.pkl", labels))


def make_imagefolder(folder: Path) -> Source:
    """Three classes of three files."""
    class_folders(folder / "classes")
    return open_source(folder / "classes")


def make_store(folder: Path) -> Source:
    """A shard by webdataset's rules."""
    return open_source(foreign_tar(folder / "shard.tar"))


def make_pairs(folder: Path) -> Source:
    """Seven PNGs and as many masks in a folder beside theirs."""
    flat(folder / "images")
    (folder / "masks").mkdir()
    for i in range(7):
        (folder / "masks" / f"{i:04d}.png").write_bytes(picture(i, mode="L"))
    return open_source(folder / "images", fields=[parse_choice("mask=masks/")])


def make_parquet(folder: Path) -> Source:
    """Seven pictures as Hugging Face keeps them, three a row group."""
    pq.write_table(picture_table(7), folder / "a.parquet", row_group_size=3)
    return open_source(folder / "a.parquet")


def make_arrow(folder: Path) -> Source:
    """The same as an Arrow stream, three a batch."""
    return open_source(write_stream(folder / "a.arrow", picture_table(7), 3))


def make_saved(folder: Path) -> Source:
    """A folder as ``datasets.Dataset.save_to_disk`` leaves it."""
    return open_source(write_saved(folder / "saved", [picture_table(4), picture_table(3)]))


def make_tfrecord(folder: Path) -> Source:
    """Two TFRecord files of four pictures each."""
    for number in range(2):
        examples = [{"image/encoded": picture(4 * number + i), "image/class/label": i % 3} for i in range(4)]
        write_records(folder / f"train-0000{number}-of-00002", map(example, examples))
    return open_source(folder)


def make_shards(kind: str) -> Callable[[Path], Source]:
    """Ten pictures with labels in three shards of MDS or LitData."""
    return lambda folder: open_source(pairs_of_kind(kind, folder / "set"))


def make_metadata(folder: Path) -> Source:
    """Seven PNGs and a table with their labels."""
    labels = flat(folder / "flat")
    rows = [json.dumps({"file_name": name, "label": label}) for name, label in labels.items()]
    (folder / "flat/metadata.jsonl").write_text("\n".join(rows))
    return open_source(folder / "flat")


def make_coco(folder: Path) -> Source:
    """Seven PNGs with an object each, and a JSON beside them."""
    names = list(flat(folder / "flat"))
    images = [{"id": i, "file_name": name} for i, name in enumerate(names)]
    objects = [{"id": i, "image_id": i, "category_id": 1, "bbox": [1, 2, 3, 4]} for i in range(len(names))]
    coco = {"images": images, "annotations": objects, "categories": [{"id": 1, "name": "bee"}]}
    (folder / "flat/coco.json").write_text(json.dumps(coco))
    return open_source(folder / "flat/coco.json")


def make_table(folder: Path) -> Source:
    """A table that names seven PNGs."""
    labels = flat(folder / "flat")
    rows = [f"{name},{label}\n" for name, label in labels.items()]
    (folder / "flat/list.csv").write_text("file_name,label\n" + "".join(rows))
    return open_source(folder / "flat/list.csv")


def make_beside(folder: Path) -> Source:
    """A table of ids beside the folder of seven PNGs."""
    labels = flat(folder / "train")
    rows = [f"{name.removesuffix('.png')},{label}\n" for name, label in labels.items()]
    (folder / "train.csv").write_text("id,label\n" + "".join(rows))
    return open_source(folder)


def make_npy(folder: Path) -> Source:
    """Seven arrays of pixels and their labels."""
    np.savez(folder / "a.npz", x=np.arange(7 * 48, dtype=np.uint8).reshape(7, 4, 4, 3), y=np.arange(7) % 3)
    return open_source(folder / "a.npz")


def make_hdf5(folder: Path) -> Source:
    """The same in a file of h5py, chunked and compressed."""
    with h5py.File(folder / "a.h5", "w") as file:
        pixels = np.arange(7 * 48, dtype=np.uint8).reshape(7, 4, 4, 3)
        file.create_dataset("x", data=pixels, chunks=(2, 4, 4, 3), compression="gzip")
        file["y"] = np.arange(7) % 3
    return open_source(folder / "a.h5")


def make_cifar(folder: Path) -> Source:
    """A folder of two batches with three pictures each."""
    cifar_folder(folder / "cifar", batches=2, count=3)
    return open_source(folder / "cifar")


def make_lmdb(folder: Path) -> Source:
    """Seven pictures under numbers."""
    with lmdb.open(str(folder / "a.mdb"), subdir=False) as env, env.begin(write=True) as txn:
        for i in range(7):
            txn.put(b"%d" % i, picture(i))
    return open_source(folder / "a.mdb")


def make_zip(folder: Path) -> Source:
    """Three classes of three files, some of them deflated."""
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        for i in range(9):
            how = zipfile.ZIP_DEFLATED if i % 2 else zipfile.ZIP_STORED
            archive.writestr(f"top/c{i // 3}/{i}.png", picture(i), how)
    return open_source(folder / "a.zip")


def make_tokens(folder: Path) -> Source:
    """Seven documents of Megatron's, of 4 to 10 ids."""
    return open_source(write_megatron(folder / "corpus", documents_of(range(4, 11))))


def make_layout(write: Callable[[Path], Path], split: str | None = None) -> Callable[[Path], Source]:
    """A layout as it is written to a folder, or one part of it."""
    return lambda folder: open_source(write(folder / "layout"), split=split)


MAKERS: dict[str, Callable[[Path], Source]] = {
    "flat": make_flat,
    "imagefolder": make_imagefolder,
    "metadata": make_metadata,
    "pairs": make_pairs,
    "table": make_table,
    "beside": make_beside,
    "npy": make_npy,
    "cifar": make_cifar,
    "hdf5": make_hdf5,
    "lmdb": make_lmdb,
    "zip": make_zip,
    "coco": make_coco,
    "yolo": make_layout(layouts.yolo),
    "voc": make_layout(layouts.voc),
    "list": make_layout(layouts.listed),
    "celeba": make_layout(layouts.celeba, "train"),
    "tiny-imagenet": make_layout(layouts.tiny_imagenet, "train"),
    "cub": make_layout(layouts.cub, "train"),
    "cityscapes": make_layout(layouts.cityscapes, "train"),
    "masks": make_layout(layouts.ade20k, "training"),
    "open-images": make_layout(layouts.open_images),
    "class-files": make_layout(layouts.class_files),
    "idx": make_layout(layouts.mnist, "train"),
    "store": make_store,
    "parquet": make_parquet,
    "arrow": make_arrow,
    "datasets": make_saved,
    "tfrecord": make_tfrecord,
    "mds": make_shards("mds"),
    "litdata": make_shards("litdata"),
    "tokens": make_tokens,
}
assert MAKERS.keys() == {name for name, kind in SOURCES.items() if kind.open}, "a new source needs a maker here"


def read_all(source: Source, max_bytes: int, max_samples: int) -> list[tuple[str, bytes, int | None]]:
    """Key, first value and label (None without labels) of every sample, by chunks."""
    found, name = [], source.schema.payload[0].name
    for piece in source.chunks(max_bytes, max_samples):
        batch = source.begin(piece)().batch
        views = [batch.spans[name].view(i).tobytes() for i in range(len(batch.keys))]
        labels = batch.columns["label"].tolist() if "label" in batch.columns else [None] * len(batch.keys)
        found += list(zip(batch.keys, views, labels, strict=True))
    return found


class SourceConformance:
    """The contract of ``fastio.converters.Source``; ``source`` is a fixture without any problem in it."""

    def test_found_is_all_there_is(self, source: Source) -> None:
        """Chunks and problems together are everything found."""
        assert len(source) == sum(map(len, source.chunks(100, 3))) + len(source.problems)

    def test_chunks_are_bounded(self, source: Source) -> None:
        """No chunk has more samples than asked for, nor more bytes unless one sample has."""
        for piece in source.chunks(500, 2):
            batch = source.begin(piece)().batch
            size = sum(int(spans.sizes.sum()) for spans in batch.spans.values())

            assert len(piece) <= 2
            assert len(piece) == 1 or size <= 500

    def test_chunks_do_not_change_the_samples(self, source: Source) -> None:
        """The same samples in the same order, however they are cut."""
        assert read_all(source, 1 << 30, 1 << 30) == read_all(source, 1, 1) == read_all(source, 400, 3)

    def test_batches_fit_the_schema(self, source: Source, tmp_path: Path) -> None:
        """A writer made for the source's schema takes its batches."""
        with create_store(tmp_path / "out.lmdb", source.schema) as writer:
            for piece in source.chunks(1000, 4):
                writer.append(source.begin(piece)().batch)

    def test_shapes_are_those_of_the_headers(self, source: Source) -> None:
        """Every encoded image's height, width and channels are known."""
        for piece in source.chunks(1000, 4):
            shapes = source.begin(piece)().batch.shapes
            assert all(np.all(shapes[field.name] > 0) for field in source.schema.payload if field.traits.is_picture)

    def test_metadata_is_json(self, source: Source) -> None:
        """What goes into the store can be written there, and says where it came from."""
        said = json.loads(json.dumps(source.metadata))

        assert source.kind == said["source"]["kind"]
        assert "classes" in said

    def test_sizes(self, source: Source) -> None:
        """The announced bytes are at least those of the images."""
        images = sum(len(image) for _, image, _ in read_all(source, 1 << 30, 1 << 30))

        assert images <= source.size_bytes <= source.disk_bytes
        assert source.files_opened > 0

    def test_files(self, source: Source) -> None:
        """Every file that is opened is named, and is one."""
        files = list(source.files())

        assert source.files_opened == len(files) == len(set(files))
        assert all(Path(file).is_file() for file in files)

    def test_a_pool_changes_nothing(self, source: Source) -> None:
        """Native threads read the same as the thread that asks."""
        pieces, name = source.chunks(400, 3), source.schema.payload[0].name
        with closing(ThreadPool(2)) as pool:
            begun = [source.begin(piece, pool) for piece in pieces]
            ahead = [finish().batch for finish in begun]

        for piece, batch in zip(pieces, ahead, strict=True):
            at_once = source.begin(piece)().batch
            assert at_once.keys == batch.keys
            for name, spans in at_once.spans.items():
                assert [view.tobytes() for view in spans.views()] == [
                    view.tobytes() for view in batch.spans[name].views()
                ]

    def test_shuffled(self, source: Source) -> None:
        """Every sample once, in an order that the seed gives; metadata record it."""
        order = read_all(source.shuffled(1), 400, 3)

        assert sorted(read_all(source, 400, 3)) == sorted(order)
        assert order == read_all(source.shuffled(1), 1, 1)
        assert order != read_all(source.shuffled(2), 400, 3)
        assert 1 == source.shuffled(1).metadata["shuffle"]

    def test_it_is_registered(self, source: Source) -> None:
        """Its kind is the name of an entry that opens it again, detected or named."""
        kind = SOURCES[source.kind]

        assert kind.name == source.kind
        assert kind.signs(SourcePath(source.path))
        if kind.own_labels:
            record = source.metadata["source"]
            again = open_source(
                source.path,
                kind=kind.name,
                fields=[parse_choice(words) for words in record.get("fields") or ()],
                root=recorded_root(record, source.path),
                split=record.get("part"),
            )
            assert read_all(source, 400, 3) == read_all(again, 400, 3)
