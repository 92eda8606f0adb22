"""ClipSampler: runs of frames of one video, which come together and share their random numbers."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastio import _native
from fastio.samplers.batches import Batches, even_cuts, random_ids
from fastio.samplers.order import Division, Uneven
from fastio.samplers.planned import Draws, PlannedSampler, check_consumed, even_steps, shuffled
from fastio.samplers.position import as_array, plain, whole
from fastio.samplers.share import Ranks
from fastio.types.options import explains_names
from fastio.types.spans import distinct, numbers_within

__all__ = ["ClipReport", "ClipSampler"]

log = logging.getLogger(__name__)

ShortVideos = Literal["drop", "repeat"]

_START_SEED = 0xA0761D6478BD642F  # starts of clips share no random numbers with the transforms of their frames
_NAMED = 5  # videos in a message


@runtime_checkable
class HasVideos(Protocol):
    """What knows the video and the name of each frame: a FastDataset, whose labels are the videos."""

    @property
    def labels(self) -> NDArray[Any] | None:
        """The video of each sample."""
        ...

    @property
    def keys(self) -> Sequence[str]:
        """The name of each sample."""
        ...

    def column(self, name: str) -> NDArray[Any]:
        """Return a column, one value per sample."""
        ...


class ClipSampler(PlannedSampler):
    """
    Batches of clips: each is a run of ``frames`` frames of one video, every ``stride``-th from its first one on::

        sampler = ClipSampler(dataset, frames=8, stride=2, batch_size=16, clips_per_video=1)
        FastLoader(dataset, batch_sampler=sampler, transforms=[RandomResizedCrop(112), RandomHorizontalFlip()])

    FastLoader gives pictures as ``(B, T, C, H, W)``, other fields ``(B, T, ...)`` or lists of lists; a column that has
    one value in each video, such as the label, comes once per clip: ``(B,)``. The frames of a clip get the same crop,
    flip and colours. In a torch DataLoader it is a ``batch_sampler`` of ``B * T`` samples.

    * ``dataset``: a FastDataset, whose labels are the videos and whose frames come in the order of their keys (numbers
      by value, frame10 behind frame9). Or an array with the video of each sample: frames come in stored order.
    * ``videos``: with a dataset, the name of another column, or an array: numbers or names, ``(n,)``.
    * ``step``: from one clip's first frame to that of the next; ``frames * stride`` by default, so that clips do not
      overlap. What a video has left at its end is no clip. Instead, ``clips_per_video`` clips of each video begin
      anywhere, drawn anew for each epoch (with ``shuffle=False``, the same ones each time).
    * ``short``: what becomes of videos with fewer than ``(frames - 1) * stride + 1`` frames. "drop" leaves them out,
      named in the log and in ``report()``; "repeat" makes one clip, whose last frame is repeated.
    * ``batch_size`` counts clips, and so does ``uneven``, as in FastLoader. ``drop_last``, ``rank``, ``world_size`` and
      ``ranks`` are as there. An epoch can be continued with another number of ranks and other batches.

    A bad frame makes its clip bad: ``on_error="skip"`` leaves the whole clip out, "zero" makes all of its frames zero.
    Raises ValueError for options that mean nothing, and if no video is long enough.
    """

    @explains_names(groups={"ranks": Ranks})
    def __init__(  # noqa: PLR0913 - named like those of the other samplers
        self,
        dataset: HasVideos | ArrayLike,
        *,
        videos: str | ArrayLike | None = None,
        frames: int = 8,
        stride: int = 2,
        batch_size: int = 8,
        step: int | None = None,
        clips_per_video: int | None = None,
        short: ShortVideos = "drop",
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        ranks: Ranks | None = None,
        uneven: Uneven = "pad",
    ) -> None:
        names, numbers, keys = _videos(dataset, videos)
        super().__init__(numbers, Ranks.of(ranks, rank, world_size))
        self.frames = whole("frames", frames, "1 or more", least=1)
        self.stride = whole("stride", stride, "1 or more", least=1)
        if step is not None and clips_per_video is not None:
            raise ValueError(f"step={step}, clips_per_video={clips_per_video}: expected one of the two at most")
        self.clips_per_video = clips_per_video
        if clips_per_video is not None:
            whole("clips_per_video", clips_per_video, "1 or more, or None", least=1)
        self.step = whole("step", self.frames * self.stride if step is None else step, "1 or more", least=1)
        if short not in get_args(ShortVideos):
            raise ValueError(f"short={short!r}: expected one of {', '.join(map(repr, get_args(ShortVideos)))}")
        self.short: ShortVideos = short
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.uneven: Uneven = uneven
        self._rule()
        # The samples of video v are order[begins[v]:begins[v] + counts[v]].
        self._order = np.argsort(self._lengths, kind="stable") if keys is None else _by_key(self._lengths, keys)
        self._counts = np.bincount(self._lengths, minlength=len(names)).astype(np.int64)
        self._begins = np.cumsum(self._counts) - self._counts
        is_short = self._counts < self._span
        self._used = np.flatnonzero(~is_short) if short == "drop" else np.arange(len(names))
        self._dropped = tuple(str(names[video]) for video in np.flatnonzero(is_short)) if short == "drop" else ()
        if len(self._used) == 0:
            longest = int(self._counts.max(initial=0))
            raise ValueError(
                f"frames={frames}, stride={stride}: a clip spans {self._span} frames, but the longest of {len(names)} "
                f"videos has {longest}: expected fewer frames, or short='repeat'"
            )
        if self._dropped:
            listed = ", ".join(self._dropped[:_NAMED]) + (", ..." if len(self._dropped) > _NAMED else "")
            log.warning(
                "ClipSampler: %d of %d videos have fewer than %d frames and are left out: %s; short='repeat' repeats "
                "their last frame",
                len(self._dropped),
                len(names),
                self._span,
                listed,
            )
        self._close(ClipSampler)

    @property
    def _span(self) -> int:
        return (self.frames - 1) * self.stride + 1

    @property
    def videos(self) -> NDArray[np.int32]:
        """The number of each sample's video, ``(n,)``."""
        return self._lengths

    def report(self) -> ClipReport:
        """Return how many clips an epoch has, and what of the videos is in none of them."""
        left = None
        if self.clips_per_video is None:
            left = len(self._lengths) - len(distinct(self._expanded(self._clips(0), slice(None))))
        return ClipReport(len(self._counts), len(self._units(0)), self._dropped, left)

    def _clips(self, epoch: int) -> _Clips:
        """Return the clips of an epoch, those of one video behind those of another."""
        counts, begins = self._counts[self._used], self._begins[self._used]
        free = np.maximum(counts - self._span, 0)  # how far the first frame of a clip may move
        each = free // self.step + 1 if self.clips_per_video is None else np.full_like(free, self.clips_per_video)
        video = np.repeat(np.arange(len(each)), each)
        number = numbers_within(each)
        if self.clips_per_video is None:
            first, number = number * self.step, np.zeros_like(number)
        else:
            drawn = np.empty((len(video), 1))
            ids = random_ids(self._order[begins[video]], number)
            _native.philox((int(self.seed) + _START_SEED) % (1 << 64), epoch if self.shuffle else 0, ids, drawn)
            first = np.floor(drawn[:, 0] * (free[video] + 1)).astype(np.int64)
        return _Clips(begins[video] + first, begins[video] + counts[video] - 1, number)

    def _expanded(self, clips: _Clips, some: NDArray[np.int64] | slice) -> NDArray[np.int64]:
        """Return the samples of these clips, frame after frame."""
        places = clips.first[some, None] + np.arange(self.frames) * self.stride
        samples: NDArray[np.int64] = self._order[np.minimum(places, clips.last[some, None])].reshape(-1)
        return samples

    def _units(self, epoch: int) -> NDArray[np.int32]:
        return np.ones(len(self._clips(epoch).first), np.int32)

    def _samples_of(self, units: Batches, epoch: int) -> Batches:
        """Return the frames of batches of clips; those of a clip have one id for random numbers."""
        clips, frames = self._clips(epoch), self.frames
        ids = random_ids(self._order[clips.first[units.indices]], clips.number[units.indices])
        return Batches(
            self._expanded(clips, units.indices),
            units.cuts * frames,
            units.repeated * frames,
            units.dropped * frames,
            random_ids=np.repeat(ids, frames),
            padding=units.padding * frames,
        )

    def whole(self, epoch: int, dropped: int = 0) -> NDArray[np.int64] | None:
        """Return all samples of an epoch, as often as they come: see WholeEpochs; None if some clips are dropped."""
        return None if dropped else self._expanded(self._clips(epoch), slice(None))

    def configuration(self) -> dict[str, Any]:
        """Return what must be equal for a history to mean the same samples."""
        own = super().configuration()
        videos, names = own.pop("lengths_crc32"), ("frames", "stride", "step", "clips_per_video", "short")
        order = {"videos_crc32": videos, "order_crc32": _native.crc32(self._order)}
        return own | order | plain({name: getattr(self, name) for name in names})

    def _rule(self) -> ClipRule:
        return self._rule_of({name: getattr(self, name) for name in ClipRule.__slots__})

    def _rule_of(self, options: Mapping[str, Any]) -> ClipRule:
        return ClipRule(**options)

    def _goes_on(self, begun: ClipRule) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class ClipReport:
    """
    What becomes of ``videos``: ``clips`` in an epoch; ``dropped`` names those that are too short; ``unused`` frames are
    in no clip, those of short videos among them (None: clips begin anywhere, so it differs by epoch).
    """

    videos: int
    clips: int
    dropped: tuple[str, ...]
    unused: int | None

    def __str__(self) -> str:
        unused = "" if self.unused is None else f", {self.unused:,} frames in none"
        dropped = f", {len(self.dropped):,} too short" if self.dropped else ""
        return f"{self.clips:,} clips of {self.videos:,} videos{dropped}{unused}"


@dataclass(frozen=True, slots=True)
class _Clips:
    """The place of each clip's first frame, and of its video's last one, in the order; ``number`` within the video."""

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    number: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ClipRule:
    """How ClipSampler divides clips; the names are its options. Raises ValueError for impossible numbers."""

    batch_size: int
    world_size: int
    uneven: Uneven
    drop_last: bool

    def __post_init__(self) -> None:
        whole("batch_size", self.batch_size, "1 or more", least=1)
        whole("world_size", self.world_size, "1 or more", least=1)
        Division(0, self.batch_size, self.world_size, self.uneven)

    def to_json(self) -> dict[str, Any]:
        """Return the options as plain values."""
        return plain(asdict(self))

    def order(self, lengths: NDArray[np.int32], samples: NDArray[np.int64] | None, draws: Draws) -> ClipOrder:
        """Shuffle clips (None: all), whatever steps they are cut into."""
        clips = np.arange(len(lengths), dtype=np.int64) if samples is None else samples
        return ClipOrder(clips[shuffled(len(clips), draws)])


@dataclass(frozen=True, slots=True)
class ClipOrder:
    """Clips in the order in which they come."""

    order: NDArray[np.int64]

    def steps(self, rule: ClipRule, consumed: int) -> NDArray[np.int64]:
        """Cut what is left into steps. See ``PlannedOrder``."""
        return even_steps(len(self.order), consumed, rule.batch_size * rule.world_size)

    def left(self, consumed: int) -> NDArray[np.int64]:
        """Return the clips, ascending, that come after so many."""
        check_consumed(consumed, len(self.order))
        return np.sort(self.order[consumed:])

    def batches(self, rule: ClipRule, rank: int, ends: NDArray[np.int64]) -> Batches:
        """Return one rank's batches of clips."""
        count, start = len(self.order), int(ends[0])
        division = Division(count, rule.batch_size, rule.world_size, rule.uneven, rule.drop_last, start)
        clips = division.share(self.order, rank)
        cuts = even_cuts(len(clips), division.batch_size)
        return Batches(clips, cuts, division.repeated, division.dropped, padding=division.padding(rank))


# From what users pass to the number of each sample's video.


def _videos(
    dataset: Any, videos: str | ArrayLike | None
) -> tuple[NDArray[Any], NDArray[np.int32], Sequence[str] | None]:
    """Return the name of each video, the number of each sample's, and the keys by which frames are in order."""
    is_dataset = isinstance(dataset, HasVideos)
    if not is_dataset and videos is not None:
        raise ValueError(f"videos={videos!r}: only with a dataset: pass that first, or the videos alone")
    if isinstance(videos, str):
        values: Any = dataset.column(videos)
    else:
        values = videos if videos is not None else dataset.labels if is_dataset else dataset
    if values is None:
        raise ValueError("the dataset has no labels to tell videos apart: pass videos=, a column's name or an array")
    array = as_array(values)
    if array.ndim != 1 or (array.dtype.kind not in "iuSU" and array.size):
        raise ValueError(
            f"videos are {array.dtype} {array.shape}: expected one number or name for each sample, or a FastDataset"
        )
    names, numbers = np.unique(array, return_inverse=True)
    keys = dataset.keys if is_dataset else None
    if keys is not None and len(keys) != len(array):
        raise ValueError(f"videos has {len(array)} entries for {len(keys)} samples: give one per sample")
    return names, numbers.astype(np.int32), keys


def _by_key(videos: NDArray[np.int32], keys: Sequence[str]) -> NDArray[np.int64]:
    """Return the samples by video, those of one video by key; digits in keys count as numbers."""
    names = [_parts(key) for key in keys]
    by_name = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
    return by_name[np.argsort(videos[by_name], kind="stable")]


def _parts(key: str) -> list[tuple[int, str]]:
    """
    Return what orders keys.

    >>> sorted(["a10", "a9", "a"], key=_parts)
    ['a', 'a9', 'a10']
    """
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", key) if part]
