# The native core as Python sees it (contract; regenerated from the module by the build).
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Status of one sample after a batch call; the order is part of the interface.
OK: int  # 0
BAD_CHECKSUM: int  # bytes differ from the CRC-32 in the index
TRUNCATED: int  # the data end before the value does
CORRUPT: int  # not decodable, or decodable only with damage
UNSUPPORTED: int  # a valid kind that the native decoders leave to Pillow (WebP, CMYK JPEG, ...)
BAD_SHAPE: int  # decodes to another height, width or size than the row of the batch has
NOT_IMAGE: int  # not recognised as a picture at all
IO_ERROR: int  # read_files: could not be opened or read (errno beside it)
CHANGED: int  # read_files: the file's size is not the one that was announced

class Buffers:
    """Read-only byte buffers that spans point into; keeps them alive."""
    def __init__(self, buffers: Sequence[NDArray[np.uint8]]) -> None: ...
    def __len__(self) -> int: ...
    def view(self, shard: int, start: int, size: int) -> NDArray[np.uint8]: ...  # IndexError when outside

class ThreadPool:
    """Native threads; notices a fork and starts anew in the child. GIL never taken inside."""
    def __init__(self, threads: int) -> None: ...
    @property
    def threads(self) -> int: ...
    def close(self) -> None: ...  # joins; running jobs are finished first; twice does no harm

class Job:
    """One batch under way. Keeps its inputs and outputs alive until it is done."""
    def wait(self, timeout_s: float = -1.0) -> bool: ...  # GIL released; False: not done in time
    def cancel(self) -> None: ...  # samples not yet begun are skipped; wait() then returns as usual
    @property
    def done(self) -> bool: ...

class BufferRing:
    """
    Recycled batch buffers (64-byte aligned). ``acquire`` hands out an array whose memory comes
    back when the last array or tensor over it dies; at most ``keep`` free buffers are held.
    """
    def __init__(self, keep: int) -> None: ...
    def acquire(self, nbytes: int) -> NDArray[np.uint8]: ...
    @property
    def allocated_bytes(self) -> int: ...  # handed out + free

def crc32(data: Any, value: int = 0) -> int: ...  # any contiguous buffer; GIL released for large ones; as zlib.crc32
def checksum(buffers: Buffers, shard: NDArray[np.int32], starts: NDArray[np.int64], sizes: NDArray[np.int64],
             out: NDArray[np.uint32], pool: ThreadPool | None = None) -> Job: ...
def probe_images(buffers: Buffers, shard: NDArray[np.int32], starts: NDArray[np.int64], sizes: NDArray[np.int64],
                 out: NDArray[np.int32], pool: ThreadPool | None = None) -> Job:
    """Headers only. out is (n, 5): status, height, width, channels, kind (0 unknown, 1 JPEG, 2 PNG, 3 GIF, 4 BMP, 5 WebP, 6 TIFF, 7 PNM)."""
def decode_images(buffers: Buffers, shard: NDArray[np.int32], starts: NDArray[np.int64], sizes: NDArray[np.int64],
                  checksums: NDArray[np.uint32] | None, out: NDArray[np.uint8], status: NDArray[np.int32],
                  pool: ThreadPool | None = None) -> Job:
    """out is (n, H, W, C) uint8, C 1 (as Pillow's "L"), 3 ("RGB") or 4 ("RGBA"). pool=None decodes in the calling thread."""
def gather(buffers: Buffers, shard: NDArray[np.int32], starts: NDArray[np.int64], sizes: NDArray[np.int64],
           checksums: NDArray[np.uint32] | None, out: NDArray[np.uint8], status: NDArray[np.int32],
           pool: ThreadPool | None = None) -> Job:
    """Copies each span into its row of out (n, row_bytes); another size is BAD_SHAPE."""
def will_need(buffers: Buffers, shard: NDArray[np.int32], starts: NDArray[np.int64], sizes: NDArray[np.int64],
              pool: ThreadPool | None = None) -> Job:
    """Asks the kernel to read these spans ahead (madvise WILLNEED, neighbours merged)."""
def read_files(paths: Sequence[bytes], sizes: NDArray[np.int64], out: NDArray[np.uint8], starts: NDArray[np.int64],
               status: NDArray[np.int32], errno: NDArray[np.int32], pool: ThreadPool | None = None) -> Job:
    """Reads whole files to out[starts[i]:starts[i]+sizes[i]]. Regular files only, never blocks on a FIFO."""
def shuffle(values: NDArray[np.int64], seed: int, stream: int) -> None:
    """In-place Fisher-Yates by Philox4x32-10 keyed (seed, stream): the same on every machine and version."""
def build_info() -> dict[str, str]: ...  # versions of the linked codecs, SIMD level, compiler
