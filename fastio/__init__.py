"""fastio packs training data into one open container and reads it back faster than the GPU asks for it.

The names below are the public interface. Each is imported on first use: neither `fastio --help` nor packing needs
torch.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fastio.errors import (
    FastioError,
    SampleError,
    SchemaError,
    SourceError,
    StoreCorrupt,
    StoreError,
    StoreIncomplete,
    StoreNotFound,
)
from fastio.lazy import lazy_names

if find_spec("fastio._native") is None:  # Python looks into the working directory first
    raise ImportError(
        f"{__path__[0]} is source code whose native part is not built, and hides a fastio that is installed elsewhere: "
        "start Python in another folder, or build this one with `pip install -e .`"
    )

if TYPE_CHECKING:
    from fastio.converters.write.pack import pack
    from fastio.converters.write.writer import Writer
    from fastio.dataset.fast_dataset import FastDataset
    from fastio.dataset.record_collate import FieldCollate
    from fastio.dataset.token_collate import ChunkCollate, PackCollate, PadCollate
    from fastio.loader.fast_loader import FastLoader
    from fastio.loader.prefetch import DevicePrefetcher
    from fastio.loader.selection.mixture import Mixture
    from fastio.measure.loop.step_timer import StepTimer
    from fastio.samplers.bucket import LengthBucketSampler
    from fastio.samplers.pack import PackSampler
    from fastio.samplers.share import Ranks
    from fastio.store.files.remote_options import Remote
    from fastio.store.opening import open_store
    from fastio.types.metrics import LoaderStats
    from fastio.types.receipt import Receipt

    __version__: str

__all__ = [
    "ChunkCollate",
    "DevicePrefetcher",
    "FastDataset",
    "FastLoader",
    "FastioError",
    "FieldCollate",
    "LengthBucketSampler",
    "LoaderStats",
    "Mixture",
    "PackCollate",
    "PackSampler",
    "PadCollate",
    "Ranks",
    "Receipt",
    "Remote",
    "SampleError",
    "SchemaError",
    "SourceError",
    "StepTimer",
    "StoreCorrupt",
    "StoreError",
    "StoreIncomplete",
    "StoreNotFound",
    "Writer",
    "__version__",
    "open_store",
    "pack",
]

_public, __dir__ = lazy_names(
    __name__,
    {
        "ChunkCollate": "fastio.dataset.token_collate",
        "DevicePrefetcher": "fastio.loader.prefetch",
        "FastDataset": "fastio.dataset.fast_dataset",
        "FastLoader": "fastio.loader.fast_loader",
        "FieldCollate": "fastio.dataset.record_collate",
        "LengthBucketSampler": "fastio.samplers.bucket",
        "LoaderStats": "fastio.types.metrics",
        "Mixture": "fastio.loader.selection.mixture",
        "PackCollate": "fastio.dataset.token_collate",
        "PackSampler": "fastio.samplers.pack",
        "PadCollate": "fastio.dataset.token_collate",
        "Ranks": "fastio.samplers.share",
        "Receipt": "fastio.types.receipt",
        "Remote": "fastio.store.files.remote_options",
        "StepTimer": "fastio.measure.loop.step_timer",
        "Writer": "fastio.converters.write.writer",
        "open_store": "fastio.store.opening",
        "pack": "fastio.converters.write.pack",
    },
)

# Names that the root had in 0.1, and the packages that have them now.
_MOVED = {
    "MockLoader": "fastio.measure",
    "MockTrainer": "fastio.measure",
    "StepShares": "fastio.measure",
    "create_store": "fastio.store",
    "verdict": "fastio.measure",
}


def __getattr__(name: str) -> Any:
    if name in _MOVED:
        warnings.warn(
            f"fastio.{name}: write from {_MOVED[name]} import {name} instead", DeprecationWarning, stacklevel=2
        )
        return getattr(import_module(_MOVED[name]), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("fastio")
    return _public(name)
