from fastio.converters.write.pack import pack as pack
from fastio.converters.write.writer import Writer as Writer
from fastio.dataset.fast_dataset import FastDataset as FastDataset
from fastio.dataset.record_collate import FieldCollate as FieldCollate
from fastio.dataset.token_collate import ChunkCollate as ChunkCollate
from fastio.dataset.token_collate import PackCollate as PackCollate
from fastio.dataset.token_collate import PadCollate as PadCollate
from fastio.errors import FastioError as FastioError
from fastio.errors import SampleError as SampleError
from fastio.errors import SchemaError as SchemaError
from fastio.errors import SourceError as SourceError
from fastio.errors import StoreCorrupt as StoreCorrupt
from fastio.errors import StoreError as StoreError
from fastio.errors import StoreIncomplete as StoreIncomplete
from fastio.errors import StoreNotFound as StoreNotFound
from fastio.loader.fast_loader import FastLoader as FastLoader
from fastio.loader.prefetch import DevicePrefetcher as DevicePrefetcher
from fastio.loader.selection.mixture import Mixture as Mixture
from fastio.measure.loop.step_timer import StepTimer as StepTimer
from fastio.samplers.bucket import LengthBucketSampler as LengthBucketSampler
from fastio.samplers.pack import PackSampler as PackSampler
from fastio.samplers.share import Ranks as Ranks
from fastio.store.files.remote_options import Remote as Remote
from fastio.store.opening import open_store as open_store
from fastio.types.metrics import LoaderStats as LoaderStats
from fastio.types.receipt import Receipt as Receipt

__version__: str
