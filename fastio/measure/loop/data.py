"""Opens what is measured as a loader: a store, a folder of pictures read one by one, or a function of the user's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, DistributedSampler, default_collate

from fastio.codec.pillow import PLUGIN_ERRORS
from fastio.dataset.fast_dataset import FastDataset
from fastio.dataset.token_stream import TokenStream
from fastio.errors import FastioError, SampleError, SchemaError, SourceError
from fastio.loader.options import Layout
from fastio.machine import available_cpus, rank_and_world
from fastio.measure.loop.user_code import is_function_name, load_function
from fastio.store import holds_shards
from fastio.store.beside.joined import NOTHING_BESIDE, Beside
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.store.kinds.unpacked import AS_IT_IS, Unpacked
from fastio.store.protocol import IN_PLACE
from fastio.store.token_files import find_token_files
from fastio.transforms import CenterCrop, Compose, RandomHorizontalFlip, RandomResizedCrop, Resize
from fastio.transforms.transform import Transform
from fastio.types.picture_kinds import picture_extensions

__all__ = [
    "Data",
    "DataOptions",
    "FolderDataset",
    "Step",
    "folder_loader",
    "is_function",
    "is_picture_folder",
    "open_data",
    "open_step",
    "opens_per_s",
    "picture_files",
    "refuse_options",
]


Step = Callable[[Any], Any]

_WINDOW = 1025  # ids: 1,024 inputs and their targets
_OF_STREAMS = ("window", "dtype")
_LOADER = "a loader, or a loader and step(batch) as a pair"  # what a function named as DATA has to return


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions:
    """
    How batches are made; None means the default.

    ``threads`` are a store's (default: all available CPUs), ``workers`` the processes of a folder's DataLoader (the
    same default). ``crop`` resizes each picture's shorter side to that many pixels and crops the centre. ``augment``
    flips half of the pictures, and makes ``crop`` resize a random part to that size. ``fields`` are the fields of a
    store that are read (default: those that its samples have). ``layout`` is that of a store's pictures in memory.
    ``drop_last`` leaves out a short batch after whole ones. ``remote`` says how a store behind a URL is read.
    ``in_place`` reads folders as FastLoader does, and so does ``unpacked``, which says what they are. ``beside`` says
    which stores have more fields of the same samples.
    ``window`` reads a stream of token ids in windows of so many
    (default: of 1,025, where files of ids say that it is one), of ``dtype`` where its files do not say it: side by
    side, or with ``shuffle`` at random places.
    """

    batch_size: int = 256
    threads: int | None = None
    workers: int | None = None
    shuffle: bool = False
    crop: int | None = None
    augment: bool = False
    fields: tuple[str, ...] | None = None
    layout: Layout = "contiguous"
    drop_last: bool = False
    remote: Remote = DEFAULT
    in_place: bool = False
    unpacked: Unpacked = AS_IT_IS
    beside: Beside = NOTHING_BESIDE
    window: int | None = None
    dtype: str | None = None

    def dataset(self, path: str) -> FastDataset:
        """Open a store with those beside it, or files where they lie."""
        opened = self.beside.open(path, remote=self.remote, unpacked=self.unpacked)
        return FastDataset(opened, fields=self.dataset_fields)

    @property
    def dataset_fields(self) -> str | tuple[str, ...] | None:
        """``fields`` as FastDataset takes them: one name means its value alone."""
        return self.fields[0] if self.fields is not None and len(self.fields) == 1 else self.fields

    @property
    def transforms(self) -> list[Transform]:
        """The transforms for ``crop`` and ``augment``."""
        if self.augment:
            return [*([] if self.crop is None else [RandomResizedCrop(self.crop)]), RandomHorizontalFlip()]
        return [] if self.crop is None else [Resize(self.crop), CenterCrop(self.crop)]


@dataclass(slots=True)
class Data(AbstractContextManager["Data"]):
    """
    A loader, and what is known about it.

    ``size_bytes`` and ``samples`` are those of one epoch, None if the loader is the user's; ``step`` is the user's
    training step if the function returned one. ``device`` is where its batches are, for code that keeps one. Closing
    it closes everything it opened.
    """

    name: str
    kind: Literal["store", "in place", "folder", "function", "synthetic"]
    loader: Iterable[Any]
    step: Step | None = None
    size_bytes: int | None = None
    samples: int | None = None
    device: Any = "cpu"
    _owned: ExitStack = field(default_factory=ExitStack)

    def close(self) -> None:
        """Stop threads and release files; calling it twice is harmless."""
        self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_data(name: str, options: DataOptions) -> Data:
    """
    Open ``name`` as a loader.

    A stream of token ids is read in windows by FastLoader: files of ids, or a store of them with ``window``.
    A folder is read file by file with Pillow in a torch DataLoader, or in place by FastLoader. A store, which may be a
    folder of tar shards, is read by FastLoader. ``module:function`` is called; it returns a loader, or a loader and a
    training step (a callable that takes a batch) as a pair, and all options are its own. Raises FastioError if an
    option does not fit the kind of data, or if the function returns something else.
    """
    if is_function(name):
        loading = ("batch_size", "threads", "workers", "shuffle", "crop", "augment", "fields")
        every = (*loading, "in_place", "unpacked", "beside", *_OF_STREAMS)
        refuse_options(name, "because a function builds its own loader", options, every)
        return _function(name)
    if name.endswith(".py") and not Path(name).is_dir():
        raise FastioError(
            f"{name}: is a script: name its function that returns a loader, or a loader and step(batch) as a pair, "
            f"behind a colon, such as {name}:loader_and_step"
        )
    is_file_of_ids = not Path(name).is_dir() and find_token_files(name) is not None
    if options.window is not None or options.dtype is not None or is_file_of_ids:
        without = ("crop", "augment", "fields", "in_place", "workers", "unpacked", "beside")
        refuse_options(name, "because native threads read a stream of token ids", options, without)
        return _stream(name, options)
    if is_picture_folder(name) and not options.in_place and options.unpacked == AS_IT_IS:
        refuse_options(name, "because processes read files: use --workers, or pack the folder", options, ("threads",))
        refuse_options(name, "because a folder has pictures and classes only", options, ("fields", "beside"))
        return _folder(name, options)
    refuse_options(name, "because native threads read a store: use --threads", options, ("workers",))
    return _store(name, options)


def is_function(name: str) -> bool:
    """Return whether DATA of this name is a function of the user's."""
    return is_function_name(name) and not Path(name).exists()


def open_step(name: str) -> Step:
    """Call ``module:function`` without arguments and return its result: the training step, which takes a batch."""
    if not is_function_name(name):
        raise FastioError(f"{name}: expected MODULE:FUNCTION or script.py:FUNCTION that returns a training step")
    step = load_function(name, what="returns a training step, which takes a batch")()
    if not callable(step):
        raise FastioError(f"{name} returned {type(step).__name__}, expected a callable that takes a batch")
    checked: Step = step
    return checked


def refuse_options(name: str, why: str, options: DataOptions, unfit: tuple[str, ...]) -> None:
    """Raise FastioError for an option that would have no effect."""
    default = DataOptions()
    for option in unfit:
        if getattr(options, option) != getattr(default, option):
            typed = options.unpacked.words()[0] if option == "unpacked" else f"--{option.replace('_', '-')}"
            raise FastioError(f"{name}: {typed} has no effect, {why}")


def _stream(path: str, options: DataOptions) -> Data:
    from fastio.loader.fast_loader import FastLoader

    with ExitStack() as owned:
        stream = owned.enter_context(TokenStream(path, dtype=options.dtype))
        windows = stream.windows(options.window or _WINDOW, random=options.shuffle)
        whole = options.batch_size * rank_and_world()[1]
        loader = FastLoader(
            windows,
            options.batch_size,
            shuffle=options.shuffle,
            drop_last=options.drop_last and len(windows) >= whole,
            threads=options.threads or 0,
        )
        owned.enter_context(loader)
        kept = owned.pop_all()
    size_bytes = len(stream) * stream.dtype.itemsize
    return Data(path, "store", loader, size_bytes=size_bytes, samples=len(windows), _owned=kept)


def _store(path: str, options: DataOptions) -> Data:
    from fastio.loader.fast_loader import FastLoader

    with ExitStack() as owned:
        dataset = owned.enter_context(options.dataset(path))
        loader = FastLoader(
            dataset,
            options.batch_size,
            shuffle=options.shuffle,
            drop_last=options.drop_last and len(dataset) >= options.batch_size * rank_and_world()[1],
            threads=options.threads or 0,
            transforms=options.transforms,
            layout=options.layout if dataset.reader.is_picture else "contiguous",
        )
        owned.enter_context(loader)
        kept = owned.pop_all()
    store = dataset.store
    kind: Literal["store", "in place"] = "in place" if store.format == IN_PLACE else "store"
    return Data(path, kind, loader, size_bytes=store.size_bytes, samples=len(dataset), _owned=kept)


def _folder(path: str, options: DataOptions) -> Data:

    dataset = FolderDataset(path, Compose(options.transforms) if options.transforms else None)
    workers = available_cpus() if options.workers is None else options.workers
    whole = options.batch_size * rank_and_world()[1]
    settings = {"num_workers": workers, "persistent_workers": workers > 0}
    settings["drop_last"] = options.drop_last and len(dataset) >= whole
    loader = folder_loader(dataset, options.batch_size, shuffle=options.shuffle, settings=settings)
    size_bytes = sum(Path(file).stat().st_size for file in dataset.paths)
    return Data(path, "folder", loader, size_bytes=size_bytes, samples=len(dataset))


def _function(name: str) -> Data:
    made = load_function(name, what=f"returns {_LOADER}")()
    loader, step = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not hasattr(loader, "__iter__") or not (step is None or callable(step)):
        what = f"({type(loader).__name__}, {type(step).__name__})" if step is not None else type(loader).__name__
        raise FastioError(f"{name} returned {what}, expected {_LOADER}")
    return Data(name, "function", loader, step)


# A folder of picture files read one by one with Pillow, as most training scripts start out; for comparison.

_SUFFIXES = frozenset(f".{extension}" for extension in picture_extensions())


class FolderDataset(Dataset[tuple[torch.Tensor, int]]):
    """
    Picture files below ``folder``, sorted: returns uint8 (3, H, W) and the number of the file's class folder.

    ``transform`` gets a PIL image and returns one. Files directly in ``folder`` belong to class 0, named ".".
    """

    def __init__(self, folder: str | Path, transform: Callable[[Image.Image], Image.Image] | None = None) -> None:
        self.folder = os.fspath(folder)
        self.paths = picture_files(folder)
        parents = sorted({path.rpartition(os.sep)[0] for path in self.paths})
        numbers = {parent: number for number, parent in enumerate(parents)}
        self.classes = [os.path.relpath(parent, folder) for parent in parents]
        self.labels = np.array([numbers[path.rpartition(os.sep)[0]] for path in self.paths], np.int64)
        self.transform = transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path = self.paths[index]
        try:
            with Image.open(path) as file:
                image = file.convert("RGB")
        except PLUGIN_ERRORS as exc:
            raise SampleError(f"{path}: Pillow cannot read it ({exc}): remove or repair the file") from exc
        if self.transform is not None:
            image = self.transform(image)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1), int(self.labels[index])


def opens_per_s(kind: str, samples_per_s: float) -> float | None:
    """
    Return how many files are opened per second while data of this kind is loaded; None for a user's loader.

    Each sample of a folder is one opened file. A store is opened once, before the first batch.
    """
    return {"folder": samples_per_s, "in place": samples_per_s, "store": 0.0}.get(kind)


def folder_loader(
    dataset: FolderDataset, batch_size: int, *, shuffle: bool, settings: Mapping[str, Any]
) -> DataLoader[tuple[torch.Tensor, int]]:
    """Return torch's DataLoader over the files of this rank; ``settings`` are its further arguments."""
    rank, world_size = rank_and_world()
    if world_size > 1:
        settings = {**settings, "sampler": DistributedSampler(dataset, world_size, rank, shuffle=shuffle)}
    elif shuffle:
        settings = {**settings, "shuffle": True}
    return DataLoader(dataset, batch_size, collate_fn=partial(_collate, dataset.folder), **settings)


def _collate(folder: str, samples: list[tuple[torch.Tensor, int]]) -> list[torch.Tensor]:
    """Collate as torch does by default; raise SchemaError if the pictures of ``folder`` differ in size."""
    first = samples[0][0].shape
    for picture, _ in samples:
        if picture.shape != first:
            sizes = " and ".join(f"{shape[2]}x{shape[1]}" for shape in (first, picture.shape))
            raise SchemaError(
                f"{folder}: pictures of different sizes in one batch ({sizes}): make them equal with --crop SIZE"
            )
    batch: list[torch.Tensor] = default_collate(samples)
    return batch


def is_picture_folder(path: str | Path) -> bool:
    """
    Return whether a path is a folder to be read file by file: one with pictures, but not with tar shards in it. One
    without pictures may hold containers, which are read in place.
    """
    return Path(path).is_dir() and not holds_shards(path) and any(map(_is_picture, _files(str(path))))


def picture_files(folder: str | Path) -> list[str]:
    """
    Return the sorted paths of all picture files below ``folder``, by suffix. Raises SourceError if there are none.
    """
    paths = sorted(filter(_is_picture, _files(str(folder))))
    if not paths:
        from fastio.store.kinds.recognise import not_packed

        raise SourceError(f"no picture files, which are measured unpacked; {not_packed(str(folder))}")
    return paths


def _is_picture(path: str) -> bool:
    return Path(path).suffix.lower() in _SUFFIXES


def _files(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _files(entry.path)
            else:
                yield entry.path
