"""MosaicML Streaming: rows in MDS shards behind S3, its StreamingDataset and StreamingDataLoader."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from benchmarks.peers.streaming_library import MDSWriter, StreamingDataset  # isort: skip - makes streaming importable
import streaming

from benchmarks.remote.work import RemoteWork

__all__ = ["pack_rows", "rows"]

_PLACE_BYTES = 8  # of a sample: its size and where it begins


def pack_rows(work: RemoteWork) -> None:
    """Shards of as many rows each."""
    largest = max(sum(map(len, work.values(shard))) for shard in range(work.shards))
    limit = largest + work.shard_rows * _PLACE_BYTES + 1000
    with MDSWriter(out=str(work.packed), columns={"row": "bytes"}, size_limit=limit) as writer:
        for value in work.all_values():
            writer.write({"row": value})


def rows(work: RemoteWork) -> Iterable[Any]:
    """Shards are copied into ``scratch``; the server's first folder is the bucket. Each reader is a node of its own."""
    server = urlsplit(work.url)
    os.environ.update(
        S3_ENDPOINT_URL=f"http://{server.netloc}",
        AWS_ACCESS_KEY_ID="any",
        AWS_SECRET_ACCESS_KEY="any",
        AWS_DEFAULT_REGION="us-east-1",
    )
    if work.readers:  # they come one after the other, and would wait for each other for ever
        os.environ.update(RANK=str(work.reader), WORLD_SIZE=str(work.readers), LOCAL_WORLD_SIZE="1")
        streaming.base.dataset.maybe_init_dist = lambda: False
    dataset = StreamingDataset(
        remote=f"s3:/{server.path}",
        local=str(work.scratch / str(work.reader)),
        shuffle=True,
        batch_size=work.row_batch,
    )
    for stream in dataset.streams:  # forked workers would share the connection that index.json came by
        stream._downloader.clean_up()
    return streaming.StreamingDataLoader(
        dataset,
        batch_size=work.row_batch,
        num_workers=0 if work.readers else work.workers,
        drop_last=False,
        collate_fn=lambda samples: work.batch(sample["row"] for sample in samples),
    )
