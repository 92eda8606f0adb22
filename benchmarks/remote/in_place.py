"""Containers of others behind S3, read where they lie: ``python -m benchmarks.remote.in_place FOLDER [KIND ...]``.

FOLDER holds photos in class folders. Each kind is written by its own library (TFRecord: by Python), and lies in
SeaweedFS behind nginx, whose answers come 30 ms late, at 60 MB/s a connection. Its own loader reads it by two workers,
into an empty folder where it keeps what it reads; then FastLoader reads it where it lies by two threads, and keeps
nothing: its index was made before, and has start points. Both make batches of RandomResizedCrop(224), a flip and
Normalize. Photos and labels are compared with what was written, byte by byte. Rounds are interleaved, each run in a
fresh process; a ratio is that of one round. Times include the opening, but no imports, CPU time the workers, but not
the server.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from benchmarks.in_place_kinds import KINDS as HERE
from benchmarks.in_place_kinds import Photos, check, decoding, photos_in, ratio
from benchmarks.peers.files_pil import random_floats
from benchmarks.peers.work import MEAN, STD
from benchmarks.process_tree import cpu_seconds
from benchmarks.remote.run import FAR
from benchmarks.report import result_path, write_result
from fastio import FastDataset, FastLoader, Remote
from fastio.store.folders import folder_of
from fastio.store.foreign.index import index_store
from fastio.transforms import Normalize, RandomHorizontalFlip, RandomResizedCrop
from fastio.types.spans import Spans
from tests.servers.fault_server import FaultServer, why_no_nginx
from tests.servers.object_server import REGION, ObjectServer, why_no_seaweedfs

__all__ = ["KINDS", "Kind", "main"]

_BATCH_SIZE, _AT_ONCE = 32, 2  # workers, threads
_BUFFER, _SHARD_BYTES = 1000, 32_000_000  # of webdataset: samples to shuffle among; of MDS and LitData, it is 64 MiB
_WORKERS: dict[str, Any] = {"num_workers": _AT_ONCE, "multiprocessing_context": "fork"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a container lies: its URL, the objects in it, and what tells S3 clients the way."""

    url: str
    names: Sequence[str]
    options: dict[str, Any]

    def client(self) -> Any:
        """boto3's."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.options["endpoint"],
            region_name=REGION,
            aws_access_key_id=self.options["access_key_id"],
            aws_secret_access_key=self.options["secret_access_key"],
        )

    @property
    def bucket(self) -> tuple[str, str]:
        """The bucket, and the folder in it."""
        bucket, _, folder = self.url.removeprefix("s3://").partition("/")
        return bucket, folder


@dataclass(frozen=True, slots=True)
class Kind:
    """
    A container and the ``library`` that reads it, with the ``modules`` that it imports: ``write(photos, folder)`` makes
    its files, and ``batches(place, scratch)`` goes over all of it once, from an empty folder.
    """

    library: str
    modules: Sequence[str]
    write: Callable[[Photos, Path], Path]
    batches: Callable[[Place, Path], Iterable[Any]]


def _of_mds(place: Place, scratch: Path) -> Iterable[Any]:
    from benchmarks.peers.streaming_library import StreamingDataset  # isort: skip - which makes it importable
    from streaming import StreamingDataLoader

    rows = decoding(StreamingDataset)(remote=place.url, local=str(scratch), shuffle=True, batch_size=_BATCH_SIZE)
    for stream in rows.streams:  # forked workers would share the connection that index.json came by, and its answers
        stream._downloader.clean_up()
    return StreamingDataLoader(rows, batch_size=_BATCH_SIZE, drop_last=False, **_WORKERS)


def _of_litdata(place: Place, scratch: Path) -> Iterable[Any]:
    from litdata import StreamingDataLoader, StreamingDataset
    from litdata.streaming import downloader

    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # it takes http for its index already
    options = {
        "endpoint_url": place.options["endpoint"],
        "aws_access_key_id": place.options["access_key_id"],
        "aws_secret_access_key": place.options["secret_access_key"],
        "region_name": REGION,
    }
    rows = decoding(StreamingDataset)(place.url, cache_dir=str(scratch), shuffle=True, storage_options=options)
    return StreamingDataLoader(rows, batch_size=_BATCH_SIZE, drop_last=False, **_WORKERS)


class _Records(IterableDataset[Any]):
    """The photos of TFRecord files, each brought whole by boto3; workers share the files."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        from fastio.converters.sources.tfrecord.records import parse_examples, scan_records

        worker, client = get_worker_info(), self.place.client()
        bucket, folder = self.place.bucket
        for name in self.place.names[worker.id :: worker.num_workers] if worker else self.place.names:
            with tempfile.NamedTemporaryFile() as file:
                client.download_fileobj(bucket, f"{folder}/{name}", file)
                file.flush()
                records = scan_records(file.name)
                data = np.fromfile(file.name, np.uint8)
            for start, size in zip(records.starts.tolist(), records.sizes.tolist(), strict=True):
                record = data[start : start + size]
                (features,) = parse_examples(Spans.joined(record, np.array([size])), [record.data])
                assert isinstance(features, dict)
                yield _floats(features["image"].bytes_values()[0]), int(features["label"].numbers()[0])


def _of_tfrecord(place: Place, scratch: Path) -> Iterable[Any]:
    del scratch
    return DataLoader(_Records(place), _BATCH_SIZE, **_WORKERS)


def _write_tar(photos: Photos, folder: Path) -> Path:
    import webdataset

    folder.mkdir()
    pattern = str(folder / "x-%06d.tar")
    with webdataset.ShardWriter(pattern, maxcount=1_000_000, maxsize=_SHARD_BYTES, verbose=0) as sink:
        for i, (photo, label) in enumerate(photos):
            sink.write({"__key__": f"{i:08d}", "jpg": photo, "cls": str(label)})
    return folder


def _of_tar(place: Place, scratch: Path) -> Iterable[Any]:
    import webdataset

    del scratch
    client, (bucket, folder) = place.client(), place.bucket
    signed = [
        client.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": f"{folder}/{name}"})
        for name in place.names
    ]
    rows = webdataset.WebDataset([f"pipe:curl -fsSL '{url}'" for url in signed], shardshuffle=len(signed))
    rows = rows.shuffle(_BUFFER).to_tuple("jpg", "cls").map_tuple(_floats, int)
    return webdataset.WebLoader(rows.batched(_BATCH_SIZE), batch_size=None, **_WORKERS)


def _floats(photo: bytes) -> torch.Tensor:
    with Image.open(io.BytesIO(photo)) as picture:
        return random_floats(picture.convert("RGB"))


KINDS = {
    "mds": Kind("mosaicml-streaming", ("benchmarks.peers.streaming_library", "boto3"), HERE["mds"].write, _of_mds),
    "litdata": Kind("litdata", ("litdata",), HERE["litdata"].write, _of_litdata),
    "tfrecord": Kind("boto3", ("boto3",), HERE["tfrecord"].write, _of_tfrecord),
    "tar": Kind("webdataset", ("webdataset", "boto3"), _write_tar, _of_tar),
}


def _uploaded(folder: Path, bucket: str, server: ObjectServer, far: FaultServer) -> Place:
    """The files of a folder in a bucket, as clients see them that go through the server far away."""
    options = server.storage_options()
    target, _ = folder_of(f"{bucket}/set/", Remote(options))
    names = sorted(each.name for each in folder.iterdir())
    for name in names:
        target.put(name, folder / name, replace=True)
    return Place(f"{bucket}/set", names, {**options, "endpoint": far.url})


def _fastio(url: str, remote: Remote) -> Iterator[Any]:
    steps = [RandomResizedCrop(224), RandomHorizontalFlip(), Normalize(MEAN, STD)]
    dataset = FastDataset(url, remote=remote)
    with FastLoader(dataset, _BATCH_SIZE, shuffle=True, drop_last=False, transforms=steps, threads=_AT_ONCE) as loader:
        yield from loader


def _spent(kind: str, place: Place, path: str, scratch: str, count: int) -> tuple[float, float]:
    """
    Seconds and CPU seconds of one pass, opening included: by the loader of a kind's library, or of fastio ("").

    For a fresh process: a client that was used before does not survive in the forked workers of LitData.
    """
    torch.set_num_threads(1)
    for module in KINDS[kind].modules if kind else ():
        import_module(module)
    begun, begun_cpu, read = time.perf_counter(), cpu_seconds(), 0
    for batch in KINDS[kind].batches(place, Path(scratch)) if kind else _fastio(path, Remote(place.options)):
        images = batch["image"] if isinstance(batch, dict) else batch[0]
        assert images.shape[1:] == (3, 224, 224), images.shape
        read += len(images)
    assert read == count, f"{read} photos of {count}"
    return time.perf_counter() - begun, cpu_seconds() - begun_cpu


def _measure(name: str, photos: Photos, scratch: Path, place: Place, *, rounds: int) -> dict[str, Any]:
    """Seconds and CPU seconds of each round, of the library's loader and of the one in place, and of the index."""
    remote = Remote(place.options)
    is_tar = place.names[0].endswith(".tar")
    begun = time.perf_counter()
    made = index_store(f"{place.url}/*.tar" if is_tar else place.url, str(scratch) if is_tar else None, options=remote)
    index_s = time.perf_counter() - begun
    path = made.path if is_tar else place.url
    check(path, photos, remote)
    runs: dict[str, list[tuple[float, float]]] = {"own": [], "in_place": []}
    for _ in range(rounds):
        for case, kind in (("own", name), ("in_place", "")):
            process = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
            with process as fresh, tempfile.TemporaryDirectory(dir=scratch) as empty:
                spent = fresh.submit(_spent, kind, place, path, empty, len(photos)).result()
            runs[case].append(spent)
    library = KINDS[name].library
    return {"index_s": index_s, "library": f"{library} {version(library)}", "runs": runs}


def _cells(result: dict[str, Any], count: int) -> list[str]:
    cells = [result["library"]]
    walls, cpus = ([[run[i] for run in result["runs"][name]] for name in ("own", "in_place")] for i in (0, 1))
    cells += [f"{count / median(each):,.0f} ({count / max(each):,.0f}-{count / min(each):,.0f})" for each in walls]
    cells += [ratio(*walls)]
    cells += [f"{median(each) / count * 1e6:,.0f}" for each in cpus]
    return [*cells, ratio(*cpus), f"{result['index_s']:.1f}"]


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("kinds", type=click.Choice([*KINDS]), nargs=-1)
@click.option("--rounds", default=3, show_default=True, help="Interleaved rounds.")
@click.option("--copies", default=3, show_default=True, help="Times that each photo is written.")
@click.option("--write/--no-write", default=True, show_default=True, help="Keep the result in benchmarks/results.")
def main(folder: Path, kinds: Sequence[str], rounds: int, copies: int, write: bool) -> None:
    """Write, upload, compare, measure, print."""
    if reason := why_no_nginx() or why_no_seaweedfs():
        raise click.ClickException(reason)
    torch.set_num_threads(1)
    photos = list(photos_in(folder)) * copies
    heads = (
        "kind", "library", "its loader, photos/s", "in place, photos/s", "times the rate", "its loader, CPU us",
        "in place, CPU us", "by CPU time", "index, s",
    )  # fmt: skip
    table = Table(*heads, title=f"{len(photos):,} photos, 30 ms away; median (range) of {rounds} rounds")
    results = {}
    with ExitStack() as held:
        server = held.enter_context(ObjectServer())
        far = held.enter_context(FaultServer(upstream=server.endpoint))
        os.environ.update(server.environment(), S3_ENDPOINT_URL=far.url, AWS_ENDPOINT_URL=far.url)
        for name in kinds or KINDS:
            far.set_faults()
            with tempfile.TemporaryDirectory() as scratch:
                os.environ["XDG_CACHE_HOME"] = scratch  # where the index is kept
                folder = KINDS[name].write(photos, Path(scratch, "set"))
                place = _uploaded(folder, server.make_bucket(f"bucket-{name}"), server, far)
                far.set_faults(*FAR)
                results[name] = _measure(name, photos, Path(scratch), place, rounds=rounds)
            table.add_row(name, *_cells(results[name], len(photos)))
    Console(width=180).print(table)
    if write:
        settings = {"photos": len(photos), "photo_bytes": sum(len(photo) for photo, _ in photos), "rounds": rounds}
        settings |= {"latency_s": 0.03, "bytes_per_s_and_connection": 60_000_000, "at_once": _AT_ONCE}
        path = result_path("remote", "in-place", *kinds)
        write_result(path, {"settings": settings, "kinds": results})
        click.echo(f"written: {path.name}")


if __name__ == "__main__":
    main()
