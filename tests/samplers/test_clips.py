"""ClipSampler: frames of one video come together, in order, with the same random numbers."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio import (
    ClipSampler,
    FastDataset,
    FastLoader,
    LengthBucketSampler,
    Mixture,
    PackSampler,
    ShapeBucketSampler,
)
from fastio.transforms import CenterCrop, ColorJitter, MixUp, Normalize, RandomCrop, RandomHorizontalFlip
from tests.conftest import encode, pictures, write_store
from tests.dataset.many_fields import TYPES, make_samples, write_fields

COUNTS = (9, 4, 12, 2)  # frames of each video
VIDEOS = np.repeat(np.arange(len(COUNTS)), COUNTS)
TOTAL = len(VIDEOS)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Frames of one picture per video."""
    path = tmp_path_factory.mktemp("clips") / "a.lmdb"
    stills = pictures(len(COUNTS), (12, 16, 3))
    write_store(path, [encode(stills[video]) for video in VIDEOS], VIDEOS.astype(np.int64))
    return path


@settings(max_examples=60, deadline=None)
@given(
    videos=st.lists(st.integers(0, 4), min_size=1, max_size=60),
    frames=st.integers(1, 4),
    stride=st.integers(1, 3),
    batch_size=st.integers(1, 4),
    world_size=st.integers(1, 3),
    starts=st.sampled_from([{}, {"step": 1}, {"step": 5}, {"clips_per_video": 3}]),
    uneven=st.sampled_from(["pad", "drop", "repeat"]),
)
def test_clips_are_runs_of_one_video(
    videos: list[int],
    frames: int,
    stride: int,
    batch_size: int,
    world_size: int,
    starts: dict[str, int],
    uneven: Any,
) -> None:
    """Each clip has every stride-th frame of one video from some frame on, and one random number for all of them."""
    array = np.array(videos)
    options: dict[str, Any] = {"frames": frames, "stride": stride, "batch_size": batch_size, "short": "repeat"}
    plans = [
        ClipSampler(array, rank=rank, world_size=world_size, uneven=uneven, **starts, **options).plan(2)
        for rank in range(world_size)
    ]
    for plan in plans:
        clips, ids = plan.indices.reshape(-1, frames), plan.ids.reshape(-1, frames)
        assert (ids == ids[:, :1]).all()
        for clip in clips.tolist():
            own = np.flatnonzero(array == array[clip[0]]).tolist()
            first = own.index(clip[0])
            assert [own[min(first + number * stride, len(own) - 1)] for number in range(frames)] == clip
    sizes = [np.diff(plan.cuts).tolist() for plan in plans]
    assert all(size == sizes[0] and all(count % frames == 0 for count in size) for size in sizes)
    whole = ClipSampler(array, **starts, **options).whole(2)
    given_ = np.concatenate([plan.indices for plan in plans])
    assert whole is not None
    assert len(whole) + plans[0].repeated - plans[0].dropped == len(given_)


def test_keys_tell_the_order(tmp_path: Path) -> None:
    """Numbers in keys count by value, whatever order the frames are stored in."""

    class Videos:
        labels = np.array([0, 0, 1, 0, 1])
        keys = ("a/f10", "a/f9", "b/2", "a/f1", "b/1")

        def column(self, name: str) -> Any:
            return {"halves": np.array(["x", "x", "y", "y", "y"])}[name]

    options: dict[str, Any] = {"frames": 2, "stride": 1, "batch_size": 9, "shuffle": False}

    assert [[3, 1, 4, 2]] == list(ClipSampler(Videos(), **options))
    assert [[1, 0, 3, 4]] == list(ClipSampler(Videos(), videos="halves", **options))


def test_short_videos_are_named(caplog: pytest.LogCaptureFixture) -> None:
    """Videos without a whole clip are left out, named and counted; repeating their last frame keeps them."""
    sampler = ClipSampler(VIDEOS, frames=3, stride=2)
    repeated = ClipSampler(VIDEOS, frames=3, stride=2, short="repeat")

    assert ("1", "3") == sampler.report().dropped
    assert "2 of 4 videos have fewer than 5 frames and are left out: 1, 3" in caplog.text
    assert () == repeated.report().dropped
    assert set(range(4)) == set(VIDEOS[repeated.whole(0)].tolist())


@pytest.mark.parametrize("more", [{}, {"device": "cpu"}, {"layout": "channels_last"}, {"cache": "ram"}])
def test_frames_share_their_draws(store: Path, more: dict[str, Any]) -> None:
    """Equal frames stay equal, as one frame alone with the clip's number is changed; clips differ."""
    sampler = ClipSampler(FastDataset(store), frames=3, stride=1, batch_size=4, step=2)
    transforms = [RandomCrop(8), RandomHorizontalFlip(), ColorJitter(0.4, 0.4, 0.4)]
    transforms += [Normalize((0.5,) * 3, (0.5,) * 3)] if "device" in more else []
    with FastLoader(store, batch_sampler=sampler, transforms=transforms, seed=3, **more) as loader:
        batches = list(loader)
        receipt = loader.receipt()
    with FastLoader(store, 1, transforms=transforms, seed=3, **more) as loader:
        frames = [images[0] for images, _ in loader]

    plan = sampler.plan(0)
    for part, (images, labels) in zip(plan.slices(), batches, strict=True):
        firsts = plan.indices[part].reshape(-1, 3)[:, 0]
        assert (len(firsts), 3, 3, 8, 8) == tuple(images.shape)
        assert VIDEOS[firsts].tolist() == labels.tolist()
        for clip, first in zip(images, firsts.tolist(), strict=True):
            assert all(bool((frame == frames[first]).all()) for frame in clip)
    assert receipt.is_exact


def test_views_and_parts(store: Path) -> None:
    """Each view of a clip has one crop for all frames; clips of a part of a store draw as in the whole."""
    views: Any = [(2, [RandomCrop(8)]), (1, [RandomCrop(6)])]
    indices = np.flatnonzero(VIDEOS != 1)
    sampler = ClipSampler(VIDEOS[indices], frames=3, stride=1, batch_size=2, shuffle=False)
    with FastLoader(store, batch_sampler=sampler, indices=indices, views=views) as loader:
        (big, other, small), labels = next(iter(loader))

    assert [(2, 3, 3, 8, 8), (2, 3, 3, 8, 8), (2, 3, 3, 6, 6)] == [tuple(view.shape) for view in (big, other, small)]
    assert [0, 0] == labels.tolist()
    assert bool((small == small[:, :1]).all())
    assert not bool((big == other).all())


@pytest.mark.parametrize(
    ("names", "views"),
    [
        (("image", "label"), None),
        (("image", "label"), 2),
        (("image", "mask", "label"), None),
        (("image", "weight", "label"), 2),
    ],
)
def test_transforms_of_batches_see_the_frames_of_clips(
    tmp_path: Path, names: tuple[str, ...], views: int | None
) -> None:
    """Pairs, dicts and views of clips are normalised like the frames alone, and the masks beside them stay."""
    samples = [sample | {"image": sample["image"][:90], "mask": sample["mask"][:90]} for sample in make_samples(8)]
    path = write_fields(tmp_path / "a.lmdb", samples, {name: TYPES[name] for name in names})
    sampler = ClipSampler([0] * 8, frames=2, stride=1, batch_size=3, shuffle=False)
    transforms = [CenterCrop(16), Normalize((0.5,) * 3, (0.5,) * 3)]
    with FastLoader(path, batch_sampler=sampler, transforms=transforms, views=views) as loader:
        batches = list(loader)
    with FastLoader(path, 8, transforms=transforms) as loader:
        (alone,) = loader
    key: Any = "image" if len(names) > 2 else 0
    shown = [batch[key] if views else [batch[key]] for batch in batches]

    for each in zip(*shown, strict=True):
        assert torch.equal(alone[key].reshape(4, 2, 3, 16, 16), torch.cat(each))
    if "mask" in names:
        assert torch.equal(alone["mask"].reshape(4, 2, 16, 16), torch.cat([batch["mask"] for batch in batches]))


@settings(max_examples=15, deadline=None)
@given(step=st.integers(0, 4), world_size=st.integers(1, 3), batch_size=st.integers(1, 3))
def test_goes_on_with_other_ranks(store: Path, step: int, world_size: int, batch_size: int) -> None:
    """What is left of the clips of an epoch comes once, on any number of ranks."""
    options: dict[str, Any] = {"frames": 2, "stride": 1, "clips_per_video": 3, "uneven": "drop", "seed": 5}
    videos = VIDEOS
    sampler = ClipSampler(videos, batch_size=2, **options)
    with FastLoader(store, batch_sampler=sampler, threads=1) as loader:
        batches = iter(loader)
        list(islice(batches, step))
        state = json.loads(json.dumps(loader.state_dict()))
    had = sampler.plan(0).part(0, step).indices.tolist()
    rest: list[int] = []
    for rank in range(world_size):
        other = ClipSampler(videos, batch_size=batch_size, rank=rank, world_size=world_size, **options)
        with FastLoader(store, batch_sampler=other, threads=1) as resumed:
            resumed.load_state_dict(state)
            plan = other.plan(*resumed.place[:2])
            assert len(plan) == len(list(resumed))
            rest += plan.indices.tolist()
    whole = sampler.whole(0)
    assert whole is not None
    lost = len(whole) - len(had) - len(rest)
    assert 0 <= lost < world_size * 2
    if not lost:
        assert sorted(whole.tolist()) == sorted(had + rest)
    changed = ClipSampler(videos, batch_size=2, **{**options, "frames": 3})
    with (
        FastLoader(store, batch_sampler=changed) as refused,
        pytest.raises(ValueError, match="frames is 2 in the state"),
    ):
        refused.load_state_dict(state)


@pytest.mark.parametrize("on_error", ["skip", "zero"])
@pytest.mark.parametrize("more", [{}, {"device": "cpu"}])
def test_a_bad_frame_takes_its_clip_along(tmp_path: Path, on_error: Any, more: dict[str, Any]) -> None:
    """Skipped, a clip is missing whole; zeroed, all its frames are zero; other clips have its good frames."""
    path = tmp_path / "bad.tar"
    values = [encode(pixels) for pixels in pictures(9, (12, 16, 3))]
    values[4] = values[4][:40]
    write_store(path, values, np.zeros(9, np.int64))
    sampler = ClipSampler(np.zeros(9, np.int64), frames=3, stride=1, step=2, batch_size=4, shuffle=False)
    transforms: Any = [Normalize((0.0,) * 3, (1.0,) * 3)] if more else None
    with FastLoader(path, batch_sampler=sampler, on_error=on_error, transforms=transforms, **more) as loader:
        ((images, labels),) = list(loader)
        receipt = loader.receipt()

    is_zero = [not bool(clip.any()) for clip in images]
    assert ([False, False] if on_error == "skip" else [False, True, True, False]) == is_zero
    assert len(images) == len(labels)
    assert [4] == [error.index for error in loader.skipped]
    assert (6, 6) == (receipt.samples, receipt.skipped)
    with FastLoader(path, batch_sampler=sampler) as strict, pytest.raises(Exception, match="4"):
        list(strict)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"transforms": [MixUp(0.8, num_classes=4)]}, "MixUp.* with a ClipSampler"),
        ({"repeats": 2}, "repeats= with a ClipSampler"),
        ({"cache": "device", "device": "cpu"}, "cache='device' with a ClipSampler"),
    ],
)
def test_what_clips_do_not_go_with(store: Path, options: dict[str, Any], message: str) -> None:
    """One line says what to drop."""
    with pytest.raises(ValueError, match=message):
        FastLoader(store, batch_sampler=ClipSampler(VIDEOS, frames=2), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frames": 0}, "frames=0"),
        ({"stride": 0}, "stride=0"),
        ({"step": 1, "clips_per_video": 1}, "expected one of the two"),
        ({"short": "pad"}, "short='pad'"),
        ({"frames": 99}, "the longest of 4 videos has 12"),
        ({"videos": "video"}, "only with a dataset"),
        ({"batch_size": 0}, "batch_size=0"),
    ],
)
def test_what_is_no_clip(options: dict[str, Any], message: str) -> None:
    """One line says what was expected."""
    with pytest.raises(ValueError, match=message):
        ClipSampler(VIDEOS, **options)


@pytest.mark.parametrize(
    ("sampler", "name"),
    [
        (ClipSampler(VIDEOS, frames=2, stride=1), "frames"),
        (LengthBucketSampler([3, 4, 5], batch_size=2), "batch_size"),
        (PackSampler([3, 4, 5], max_tokens=8), "max_tokens"),
        (ShapeBucketSampler([(8, 8)], shapes=[(8, 8)], batch_size=2), "drop_last"),
        (Mixture({"a": FastDataset.__new__(FastDataset)}, {"a": 1}), "batching"),
    ],
)
def test_options_cannot_be_set_later(sampler: Any, name: str) -> None:
    """Plans would not change: another sampler is to be built; names that nothing reads are refused, too."""
    kind = type(sampler).__name__
    with pytest.raises(AttributeError, match=rf"^{name} of a {kind} cannot be set: build another one, {kind}\(..., "):
        setattr(sampler, name, 1)
    with pytest.raises(AttributeError, match=rf"^{kind} has no attribute {name}s: did you mean {name}\? "):
        setattr(sampler, f"{name}s", 1)


def test_seed_and_weights_cannot_be_set_later() -> None:
    """What a user would try first; a subclass keeps attributes of its own."""

    class Own(ClipSampler):
        """With an attribute."""

    mixture = Mixture({"a": FastDataset.__new__(FastDataset)}, {"a": 1})
    with pytest.raises(AttributeError, match=r"^weights of a Mixture cannot be set: call at\(step=\.\.\., weights="):
        mixture.weights = {"a": 2}
    with pytest.raises(AttributeError, match=r"^seed of a ClipSampler cannot be set: build another one"):
        ClipSampler(VIDEOS, frames=2, stride=1).seed = 1
    own = Own(VIDEOS, frames=2, stride=1)
    own.note = "mine"  # type: ignore[attr-defined]
    assert "mine" == own.note  # type: ignore[attr-defined]
