"""datago: files decoded in Rust, each resized to cover the nearest shape, and cropped; it makes no batches."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator

import datago
import numpy as np

from benchmarks.trainings.work import Batch, Epochs, Work, photos_of

__all__ = ["LOADERS"]


def _buckets(work: Work) -> Epochs:
    os.environ["DATAGO_MAX_TASKS"] = str(max(work.workers, 1))
    shape = {"default_image_size": 256, "downsampling_ratio": 32, "min_aspect_ratio": 0.5, "max_aspect_ratio": 2.0}
    options = {
        "source_type": "file",
        "source_config": {"root_path": str(work.photos), "random_sampling": False},
        "image_config": {"crop_and_resize": True, "pre_encode_images": False, **shape},
        "limit": len(photos_of(work)),
        "samples_buffer_size": 32,
    }

    def pictures() -> Iterator[Batch]:
        client = datago.DatagoClient(json.dumps(options))
        client.start()
        while (sample := client.get_sample()) is not None:
            pixels = sample.image.to_numpy_array().transpose(2, 0, 1)
            yield [np.broadcast_to(pixels, (3, *pixels.shape[1:]))[None]], 1  # of grey photos, datago gives one channel
        client.stop()

    return Epochs(pictures)


LOADERS: dict[str, dict[str, Callable[[Work], Iterable[Batch]]]] = {"datago": {"buckets": _buckets}}
