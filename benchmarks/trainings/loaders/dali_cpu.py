"""NVIDIA DALI's pipelines for CPUs: photos are decoded once, then cropped and coloured for each view."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.auto_aug import rand_augment

from benchmarks.trainings.work import (
    CROPS,
    FRAMES,
    IGNORED,
    MEAN,
    STD,
    STRIDE,
    TRAININGS,
    Batch,
    Epochs,
    Work,
    photos_of,
    scenes_of,
)

__all__ = ["LOADERS"]

_LEVELS = {"mean": [255 * value for value in MEAN], "std": [255 * value for value in STD]}


def _photos(work: Work, repeats: int = 1) -> Any:
    files = [str(path) for path, _ in photos_of(work)] * repeats
    encoded, _ = fn.readers.file(files=files, random_shuffle=True, name="files")
    return encoded


def _decoded(work: Work) -> Any:
    return fn.decoders.image(_photos(work), adjust_orientation=False)


def _crop(images: Any, side: int, scale: tuple[float, float], interpolation: Any = types.INTERP_LINEAR) -> Any:
    ratio = [3 / 4, 4 / 3]
    crop = fn.random_resized_crop(
        images, size=side, random_area=list(scale), random_aspect_ratio=ratio, interp_type=interpolation
    )
    return fn.flip(crop, horizontal=fn.random.coin_flip())


def _views(training: str, work: Work) -> Any:
    images = _decoded(work)
    return tuple(_crop(images, crop.side, crop.scale) for crop in CROPS[training] for _ in range(crop.count))


def _repeats(work: Work) -> Any:
    """Three crops of a decoded photo, as three outputs."""
    images = _decoded(work)
    return tuple(_crop(images, 224, (0.08, 1.0)) for _ in range(3))


def _coloured(images: Any, saturation: float) -> Any:
    """ColorJitter of four views in five, and one in five grey; the order of changes is DALI's."""
    jittered = fn.random.coin_flip(probability=0.8)

    def factor(most: float) -> Any:
        return 1 + jittered * fn.random.uniform(range=[-most, most])

    kept = 1 - fn.random.coin_flip(probability=0.2)
    return fn.color_twist(
        images,
        brightness=factor(0.4),
        contrast=factor(0.4),
        saturation=factor(saturation) * kept,
        hue=jittered * fn.random.uniform(range=[-36.0, 36.0]),
    )


def _simclr_colours(work: Work) -> Any:
    images = _decoded(work)
    return tuple(_coloured(_crop(images, 224, (0.08, 1.0)), 0.4) for _ in range(2))


def _blurred(images: Any) -> Any:
    return fn.gaussian_blur(images, window_size=9, sigma=fn.random.uniform(range=[0.1, 2.0]))


def _dinov2(work: Work) -> Any:
    images = _decoded(work)
    views = []
    for number in range(10):
        side, scale = (224, (0.32, 1.0)) if number < 2 else (96, (0.05, 0.32))
        view = _coloured(_crop(images, side, scale, types.INTERP_CUBIC), 0.2)
        if number == 0 or fn.random.coin_flip(probability=0.1 if number == 1 else 0.5, dtype=types.BOOL):
            view = _blurred(view)
        if number == 1:
            view = _solarized(view)
        views.append(fn.crop_mirror_normalize(view, dtype=types.FLOAT, output_layout="CHW", **_LEVELS))
    return tuple(views)


def _solarized(view: Any) -> Any:
    if fn.random.coin_flip(probability=0.2, dtype=types.BOOL):
        bright = fn.cast(view >= 128, dtype=types.UINT8)
        view = fn.cast(view * (1 - bright) + (255 - view) * bright, dtype=types.UINT8)
    return view


def _randaugment(work: Work) -> Any:
    encoded = _photos(work)
    images = fn.decoders.image_random_crop(
        encoded, random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3], adjust_orientation=False
    )
    images = fn.flip(fn.resize(images, size=(224, 224), interp_type=types.INTERP_LINEAR), horizontal=_coin())
    return (rand_augment.rand_augment(images, n=2, m=9, fill_value=0, shape=(224, 224)),)


def _coin() -> Any:
    return fn.random.coin_flip()


def _scenes(training: str, work: Work) -> Any:
    pairs = scenes_of(work)
    pictures, masks = (
        fn.readers.file(files=[str(pair[part]) for pair in pairs], name=name, seed=1, random_shuffle=True)[0]
        for part, name in enumerate(("files", "masks"))
    )
    kinds = ((pictures, types.RGB, 128, types.INTERP_LINEAR), (masks, types.GRAY, IGNORED, types.INTERP_NN))
    angle, x, y, mirror = fn.random.uniform(range=[-10.0, 10.0]), _share(), _share(), fn.random.coin_flip()
    outputs = []
    for encoded, kind, fill, interpolation in kinds:
        image = fn.decoders.image(encoded, output_type=kind)
        image = fn.crop(
            image, crop=(512, 512), crop_pos_x=x, crop_pos_y=y, out_of_bounds_policy="pad", fill_values=fill
        )
        image = fn.flip(image, horizontal=mirror)
        if training == "rotation":
            image = fn.rotate(image, angle=angle, keep_size=True, fill_value=fill, interp_type=interpolation)
        outputs.append(image)
    return tuple(outputs)


def _share() -> Any:
    return fn.random.uniform(range=[0.0, 1.0])


def _clips(work: Work) -> Any:
    """Clips begin at any frame. DALI's reader counts all of them; an epoch here has as many as there are videos."""
    frames = fn.readers.sequence(
        file_root=str(work.videos), sequence_length=FRAMES, stride=STRIDE, random_shuffle=True, name="files"
    )
    return (_crop(frames, 224, (0.08, 1.0)),)


def _epochs(training: str, define: Callable[[Work], Any], work: Work) -> Epochs:
    """Epoch after epoch of one pipeline."""
    size = TRAININGS[training].batch or work.batch_size

    @pipeline_def(enable_conditionals=True)
    def pipeline() -> Any:
        return define(work)

    built = pipeline(batch_size=size, num_threads=max(work.workers, 1), device_id=None, seed=1)
    built.build()

    def batches() -> Iterator[Batch]:
        count = len(list(work.videos.iterdir())) if training == "clips" else built.epoch_size("files")
        for _ in range(count // size):
            yield _arrays(training, [output.as_array() for output in built.run()])

    return Epochs(batches)


def _arrays(training: str, arrays: Sequence[Any]) -> Batch:
    """Channels first, as views of DALI's arrays; masks without theirs."""
    if training in ("segmentation", "rotation"):
        pictures, masks = arrays
        return [pictures.transpose(0, 3, 1, 2), masks[..., 0]], len(pictures)
    if training == "clips":
        return [arrays[0].transpose(0, 1, 4, 2, 3)], len(arrays[0])
    if training == "dinov2":
        return arrays, len(arrays[0])
    views = [array.transpose(0, 3, 1, 2) for array in arrays]
    if training == "repeats":
        import numpy as np

        return [np.concatenate(views)], 3 * len(views[0])
    return views, len(views[0])


_PIPELINES: dict[str, Callable[[Work], Any]] = {
    "dinov2-crops": partial(_views, "dinov2-crops"),
    "dinov2": _dinov2,
    "simclr": partial(_views, "simclr"),
    "simclr-colours": _simclr_colours,
    "randaugment": _randaugment,
    "segmentation": partial(_scenes, "segmentation"),
    "rotation": partial(_scenes, "rotation"),
    "clips": _clips,
    "repeats": _repeats,
}
LOADERS: dict[str, dict[str, Callable[[Work], Iterable[Batch]]]] = {
    "DALI": {training: partial(_epochs, training, define) for training, define in _PIPELINES.items()}
}
