"""LitData: chunks of encoded photos behind S3, its StreamingDataset and StreamingDataLoader, OpenCV as decoder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import litdata
import torch
from litdata.streaming import downloader

from benchmarks.peers import opencv
from benchmarks.peers.collate import channels_first
from benchmarks.remote.work import BATCH_SIZE, RemoteWork

__all__ = ["loader", "pack"]


def pack(work: RemoteWork) -> None:
    """Chunks of 64 MB, which is LitData's advice."""
    # Deleted by optimize() when it starts, whoever's they are: see benchmarks/peers/litdata_caches.py.
    caches = work.packed.with_name(f"{work.packed.name}-caches")
    os.environ["DATA_OPTIMIZER_CACHE_FOLDER"] = str(caches / "chunks")
    os.environ["DATA_OPTIMIZER_DATA_CACHE_FOLDER"] = str(caches / "data")
    names = sorted(path.name for path in work.photos.iterdir())
    litdata.optimize(
        fn=partial(_sample, work.photos, names),
        inputs=list(range(len(names))),
        output_dir=str(work.packed / "chunks"),
        chunk_bytes="64MB",
        num_workers=1,
        keep_data_ordered=True,
        verbose=False,
    )


def _sample(folder: Path, names: list[str], number: int) -> dict[str, Any]:
    return {"image": (folder / names[number]).read_bytes(), "number": number}


class _Photos(litdata.StreamingDataset):
    def __getitem__(self, index: Any) -> tuple[torch.Tensor, int]:
        sample = super().__getitem__(index)
        return torch.from_numpy(opencv.random_224(sample["image"])), sample["number"]


def loader(work: RemoteWork) -> Iterable[Any]:
    """Workers take whole chunks, which they copy into ``scratch``; the server's first folder is the bucket."""
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # it takes http for its index already
    server, bucket = urlsplit(work.url), urlsplit(work.url).path.strip("/")
    dataset = _Photos(
        f"s3://{bucket}/chunks",
        cache_dir=str(work.scratch),
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
    return litdata.StreamingDataLoader(
        dataset,
        batch_size=BATCH_SIZE,
        num_workers=work.workers,
        persistent_workers=True,
        drop_last=False,
        collate_fn=channels_first,
    )
