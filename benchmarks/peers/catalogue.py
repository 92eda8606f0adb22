"""What is measured, and who takes part: tasks, and every peer with its file, its environment, and remarks on it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FLOATS", "KINDS", "PHOTOS", "TASKS", "Entry", "Task"]


@dataclass(frozen=True, slots=True)
class Entry:
    """
    One peer in one configuration.

    ``module`` is its file below ``benchmarks/peers``, ``environment`` its file in ``requirements``; "" is the
    environment that fastio itself is installed in. ``remark`` says where its output or its bytes differ;
    ``keeps_pixels`` is False where packing made other pictures of the photos.
    """

    name: str
    module: str
    environment: str
    variant: str = ""
    remark: str = ""
    keeps_pixels: bool = True

    @property
    def packed_name(self) -> str:
        """The folder for the peer's own format."""
        return f"{self.module}-{self.variant}".replace("/", "-").rstrip("-")


OPENCV = "not antialiased"

PHOTOS = (
    Entry("fastio", "photos.fastio_store", ""),
    Entry("fastio, --no-jump", "photos.fastio_store", "", "no-jump"),
    Entry("fastio, files in place", "photos.fastio_store", "", "in-place"),
    Entry("fastio, --restart 8", "photos.fastio_store", "", "restart", "lossless rewrite"),
    Entry("fastio, --short-side 256", "photos.fastio_store", "", "short", "encoded anew, smaller", keeps_pixels=False),
    Entry("FFCV, JPEG mode", "photos.ffcv_beton", "ffcv", "jpg", "encoded anew", keeps_pixels=False),
    Entry(
        "FFCV, usual recipe", "photos.ffcv_beton", "ffcv", "recipe", "encoded anew, half decoded", keeps_pixels=False
    ),
    Entry("FFCV, raw", "photos.ffcv_beton", "ffcv", "raw", "decoded, 500 px at most", keeps_pixels=False),
    Entry("files, Pillow-SIMD", "photos.files_pillow", "pillow_simd", "simd"),
    Entry("files, Pillow", "photos.files_pillow", "files_pil"),
    Entry("LMDB, OpenCV", "photos.lmdb_opencv", "plain_lmdb", remark=OPENCV),
    Entry("HDF5, OpenCV", "photos.h5py_opencv", "plain_h5py", remark=OPENCV),
    Entry("webdataset, OpenCV", "photos.webdataset_tar", "webdataset", "opencv", remark=OPENCV),
    Entry("webdataset, Pillow", "photos.webdataset_tar", "webdataset", "pillow"),
    Entry("DALI", "photos.dali_cpu", "dali"),
    Entry("SPDL", "photos.spdl_files", "spdl"),
    Entry("LitData, OpenCV", "photos.litdata_chunks", "litdata", remark=OPENCV),
    Entry("Streaming, OpenCV", "photos.streaming_mds", "streaming", remark=OPENCV),
    Entry("Hugging Face, OpenCV", "photos.hf_datasets", "hf_datasets", remark=OPENCV),
    Entry("Grain, OpenCV", "photos.grain_records", "grain", remark=OPENCV),
)

# A script with files, Pillow and a DataLoader, and what changes of lines make of it, beside the loaders of others.
FLOATS = (
    Entry("files, Pillow, DataLoader", "photos.files_pillow", "files_pil", "floats"),
    Entry("files, Pillow-SIMD, DataLoader", "photos.files_pillow", "pillow_simd", "floats-simd"),
    Entry("FastDataset, DataLoader", "photos.fastio_dataset", ""),
    Entry("FastDataset of files in place, DataLoader", "photos.fastio_dataset", "", "in-place"),
    Entry("FastLoader", "photos.fastio_store", ""),
    Entry("FastLoader, --no-jump", "photos.fastio_store", "", "no-jump"),
    Entry("FastLoader of files in place", "photos.fastio_store", "", "in-place"),
    Entry("FastLoader, --restart 8", "photos.fastio_store", "", "restart", "lossless rewrite"),
    Entry("FFCV, JPEG mode", "photos.ffcv_beton", "ffcv", "jpg", "encoded anew", keeps_pixels=False),
    Entry("FFCV, raw", "photos.ffcv_beton", "ffcv", "raw", "decoded, 500 px at most", keeps_pixels=False),
    Entry("webdataset, OpenCV", "photos.webdataset_tar", "webdataset", "opencv", remark=OPENCV),
    Entry("DALI", "photos.dali_cpu", "dali"),
)

# Other kinds of pictures than plain JPEGs. FFCV is not among them: it encodes its own.
KINDS = (
    Entry("fastio", "photos.fastio_store", ""),
    Entry("fastio, --no-jump", "photos.fastio_store", "", "no-jump"),
    Entry("fastio, --restart 8", "photos.fastio_store", "", "restart", "JPEGs rewritten losslessly"),
    Entry("files, Pillow", "photos.files_pillow", "files_pil"),
    Entry("files, Pillow-SIMD", "photos.files_pillow", "pillow_simd", "simd"),
    Entry("LMDB, OpenCV", "photos.lmdb_opencv", "plain_lmdb", remark=OPENCV),
    Entry("webdataset, OpenCV", "photos.webdataset_tar", "webdataset", "opencv", remark=OPENCV),
    Entry("DALI", "photos.dali_cpu", "dali"),
    Entry("SPDL", "photos.spdl_files", "spdl"),
)


@dataclass(frozen=True, slots=True)
class Task:
    """
    One piece of work, and who does it.

    ``work`` is what a peer's file is told to do (``Work.task``), ``pictures`` the set of photos that it does it with
    (``picture_sets.py``).
    """

    title: str
    work: str
    peers: tuple[Entry, ...]
    pictures: str
    batch_size: int = 128


CROP = "RandomResizedCrop(224) + flip"

TASKS = {
    "random_224": Task(CROP, "random_224", PHOTOS, "jpeg"),
    "center_224": Task("Resize(256) + CenterCrop(224)", "center_224", PHOTOS, "jpeg"),
    "center_224_by_64": Task("Resize(256) + CenterCrop(224), batches of 64", "center_224", PHOTOS, "jpeg", 64),
    "floats_224": Task(f"{CROP}, ToTensor, Normalize", "floats_224", FLOATS, "jpeg"),
    "webp": Task(f"WebP: {CROP}", "random_224", KINDS, "webp"),
    "cmyk": Task(f"CMYK JPEG: {CROP}", "random_224", KINDS, "cmyk"),
    "progressive": Task(f"progressive JPEG: {CROP}", "random_224", KINDS, "progressive"),
    "large": Task(f"JPEG of 12 megapixels: {CROP}, batches of 16", "random_224", KINDS, "large", 16),
}
