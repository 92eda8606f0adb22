"""LitData: chunks of encoded photos or rows behind S3, its StreamingDataset and StreamingDataLoader, OpenCV."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import litdata
import torch
from litdata.streaming import downloader
from litdata.utilities.env import _DistributedEnv

from benchmarks.peers import opencv
from benchmarks.peers.collate import channels_first
from benchmarks.remote.work import BATCH_SIZE, RemoteWork

__all__ = ["loader", "pack", "pack_rows", "rows"]


def pack(work: RemoteWork) -> None:
    """Chunks of 64 MB, which is LitData's advice."""
    names = sorted(path.name for path in work.source.iterdir())
    _optimize(work, partial(_sample, work.source, names), len(names), chunk_bytes="64MB")


def pack_rows(work: RemoteWork) -> None:
    """Chunks of as many rows each."""
    _optimize(work, partial(_rows, work), work.shards, chunk_size=work.shard_rows)


def _optimize(work: RemoteWork, sample: Callable[[int], Any], inputs: int, **chunks: Any) -> None:
    # Deleted by optimize() when it starts, whoever's they are: see benchmarks/peers/litdata_caches.py.
    caches = work.packed.with_name(f"{work.packed.name}-caches")
    os.environ["DATA_OPTIMIZER_CACHE_FOLDER"] = str(caches / "chunks")
    os.environ["DATA_OPTIMIZER_DATA_CACHE_FOLDER"] = str(caches / "data")
    litdata.optimize(
        fn=sample,
        inputs=list(range(inputs)),
        output_dir=str(work.packed / "chunks"),
        num_workers=1,
        keep_data_ordered=True,
        verbose=False,
        **chunks,
    )


def _sample(folder: Path, names: list[str], number: int) -> dict[str, Any]:
    return {"image": (folder / names[number]).read_bytes(), "number": number}


def _rows(work: RemoteWork, shard: int) -> Iterator[dict[str, Any]]:
    for value in work.values(shard):
        yield {"row": value}


class _Photos(litdata.StreamingDataset):
    def __getitem__(self, index: Any) -> tuple[torch.Tensor, int]:
        sample = super().__getitem__(index)
        return torch.from_numpy(opencv.random_224(sample["image"])), sample["number"]


def loader(work: RemoteWork) -> Iterable[Any]:
    """Workers take whole chunks, which they copy into ``scratch``; the server's first folder is the bucket."""
    return litdata.StreamingDataLoader(
        _dataset(_Photos, work),
        batch_size=BATCH_SIZE,
        num_workers=work.workers,
        persistent_workers=True,
        drop_last=False,
        collate_fn=channels_first,
    )


def rows(work: RemoteWork) -> Iterable[Any]:
    """The same; each reader is a node of its own."""
    dataset = _dataset(litdata.StreamingDataset, work)
    if work.readers:
        dataset.distributed_env = _DistributedEnv(work.readers, work.reader, work.readers)
    return litdata.StreamingDataLoader(
        dataset,
        batch_size=work.row_batch,
        num_workers=0 if work.readers else work.workers,
        drop_last=False,
        collate_fn=lambda samples: work.batch(sample["row"] for sample in samples),
    )


def _dataset(kind: Any, work: RemoteWork) -> Any:
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # it takes http for its index already
    server, bucket = urlsplit(work.url), urlsplit(work.url).path.strip("/")
    return kind(
        f"s3://{bucket}/chunks",
        cache_dir=str(work.scratch / str(work.reader)),
        shuffle=True,
        drop_last=False,
        max_cache_size="50GB",
        storage_options={
            "endpoint_url": f"http://{server.netloc}",
            "aws_access_key_id": "any",
            "aws_secret_access_key": "any",
            "region_name": "us-east-1",
        },
    )
