"""Steps of colour programs, and the call of torchvision that each equals, for small pictures."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from fastio.transforms import (
    RandomAffine,
    RandomPerspective,
    RandomPhotometricDistort,
    RandomRotation,
    Transform,
)
from fastio.transforms.arguments import Fill
from fastio.transforms.batch import policy
from fastio.transforms.batch.program import PixelTransform, program_for
from fastio.transforms.matrices import Look, affine_matrices, warp_program
from fastio.transforms.program import Program, Step, paint, program_of

__all__ = [
    "CASES",
    "GOLDEN",
    "POLICIES",
    "SHARES",
    "WARPS",
    "Case",
    "by_fastio",
    "by_torchvision",
    "checksum",
    "pictures",
    "policy_by_fastio",
    "policy_by_torchvision",
    "run",
    "warps_by_fastio",
    "warps_by_torchvision",
]

Pixels = NDArray[np.uint8]  # (C, H, W)


class Case:
    """
    A program for a picture (C, H, W) and a number ``share`` in [0, 1), and the same by torchvision's functional v2.
    """

    def __init__(
        self,
        program: Callable[[Pixels, float], Program],
        theirs: Callable[[Any, Any, float], Any],
        *,
        levels: int = 0,
    ) -> None:
        self.program = program
        self.theirs = theirs  # of functional, the picture as a tensor, the number
        self.levels = levels  # by which the two may differ


def pictures() -> list[Pixels]:
    """Grey and colour, noise, flat, nearly flat, with equal channels; sides that fill no vector."""
    rng = np.random.default_rng(0)
    colour, dark = rng.integers(0, 256, (2, 3, 23, 37), np.uint8)
    pale = (colour // 16 + 90).astype(np.uint8)
    twins = colour.copy()
    twins[1] = twins[2]
    large = rng.integers(0, 256, (3, 19, 61), np.uint8)
    return [colour, dark // 5, pale, twins, large, colour[:1], pale[:1], np.full((3, 8, 9), 77, np.uint8)]


def run(picture: Pixels, program: Program) -> Pixels:
    """The picture after its program, natively."""
    pixels = np.ascontiguousarray(picture.transpose(1, 2, 0))[None].copy()
    paint(pixels, program)
    return np.ascontiguousarray(pixels[0].transpose(2, 0, 1))


def checksum(results: Sequence[Pixels]) -> int:
    return crc32(b"".join(np.ascontiguousarray(result).tobytes() for result in results))


def _step(step: Step, amounts: Callable[[float], Any] = lambda share: 0) -> Callable[[Pixels, float], Program]:
    return lambda picture, share: program_of(1, (step, np.atleast_1d(amounts(share))[None]))


def _read(fill: Fill | None, *, bilinear: bool) -> Look:
    return Look(bilinear, fill)


def _affine(look: Look) -> Case:
    def program(picture: Pixels, share: float) -> Program:
        own = {"angle": 60 * share - 30, "translate": (5 * share, 3.0), "scale": 0.7 + share, "shear": (20 * share, -3)}
        return warp_program(affine_matrices(**own), look)

    def theirs(functional: Any, image: Any, share: float) -> Any:
        return functional.affine(
            image, 60 * share - 30, [5 * share, 3.0], 0.7 + share, [20 * share, -3.0], **_words(look, image)
        )

    return Case(program, theirs)


def _rotate(look: Look) -> Case:
    def program(picture: Pixels, share: float) -> Program:
        return warp_program(affine_matrices(angle=-((360 * share) % 360)), look)

    return Case(program, lambda functional, image, share: functional.rotate(image, 360 * share, **_words(look, image)))


def _shear(look: Look) -> Case:
    def program(picture: Pixels, share: float) -> Program:
        centre = -picture.shape[2] / 2, -picture.shape[1] / 2
        return warp_program(affine_matrices(shear=(0.0, 20 * share), center=centre), look)

    def theirs(functional: Any, image: Any, share: float) -> Any:
        return functional.affine(image, 0.0, [0, 0], 1.0, [0.0, 20 * share], center=[0, 0], **_words(look, image))

    return Case(program, theirs)


def _words(look: Look, image: Any) -> dict[str, Any]:
    from torchvision.transforms import InterpolationMode

    fill = None if look.fill is None else [float(value) for value in look.fill[: image.shape[-3]]]
    mode = InterpolationMode.BILINEAR if look.is_bilinear else InterpolationMode.NEAREST
    return {"interpolation": mode, "fill": fill}


ORDERS = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]


def _permuted(functional: Any, image: Any, order: Sequence[int]) -> Any:
    return functional.permute_channels(image, list(order)) if image.shape[0] == 3 else image


CASES: dict[str, Case] = {
    "brightness": Case(_step(Step.BRIGHTNESS, lambda s: 2 * s), lambda f, x, s: f.adjust_brightness(x, 2 * s)),
    "contrast": Case(_step(Step.CONTRAST, lambda s: 2 * s), lambda f, x, s: f.adjust_contrast(x, 2 * s)),
    "saturation": Case(_step(Step.SATURATION, lambda s: 2 * s), lambda f, x, s: f.adjust_saturation(x, 2 * s)),
    "hue": Case(_step(Step.HUE, lambda s: s - 0.5), lambda f, x, s: f.adjust_hue(x, s - 0.5)),
    "permute": Case(
        _step(Step.PERMUTE, lambda s: ORDERS[int(6 * s)]), lambda f, x, s: _permuted(f, x, ORDERS[int(6 * s)])
    ),
    "grey": Case(_step(Step.GREY), lambda f, x, s: f.rgb_to_grayscale(x, x.shape[0])),
    "invert": Case(_step(Step.INVERT), lambda f, x, s: f.invert(x)),
    "solarize": Case(_step(Step.SOLARIZE, lambda s: 255 * s), lambda f, x, s: f.solarize(x, 255 * s)),
    "posterize": Case(_step(Step.POSTERIZE, lambda s: math.floor(9 * s)), lambda f, x, s: f.posterize(x, int(9 * s))),
    "autocontrast": Case(_step(Step.AUTOCONTRAST), lambda f, x, s: f.autocontrast(x)),
    "equalize": Case(_step(Step.EQUALIZE), lambda f, x, s: f.equalize(x)),
    "sharpness": Case(_step(Step.SHARPNESS, lambda s: 3 * s), lambda f, x, s: f.adjust_sharpness(x, 3 * s)),
    "blur": Case(
        _step(Step.BLUR, lambda s: [5, 3, 0.1 + 2 * s, 0.1 + 2 * s]),
        lambda f, x, s: f.gaussian_blur(x, [5, 3], [0.1 + 2 * s] * 2),
        levels=1,
    ),
    "large blur": Case(
        _step(Step.BLUR, lambda s: [17, 15, 0.9 + 3 * s, 0.9 + 3 * s]),
        lambda f, x, s: f.gaussian_blur(x, [17, 15], [0.9 + 3 * s] * 2),
        levels=1,
    ),
    "flip": Case(_step(Step.FLIP_X), lambda f, x, s: f.horizontal_flip(x)),
    "vertical flip": Case(_step(Step.FLIP_Y), lambda f, x, s: f.vertical_flip(x)),
    "affine, nearest": _affine(_read(None, bilinear=False)),
    "affine, bilinear": _affine(_read(None, bilinear=True)),
    "affine, filled": _affine(_read((7, 90, 180), bilinear=True)),
    "rotate, nearest": _rotate(_read((7, 90, 180), bilinear=False)),
    "rotate, bilinear": _rotate(_read((0,) * 3, bilinear=True)),
    "shear": _shear(_read(None, bilinear=False)),
}

SHARES = (0.03, 0.27, 0.5, 0.94)
GOLDEN = Path(__file__).with_name("golden_colours.json")


def by_torchvision(name: str) -> list[Pixels]:
    """What the installed torchvision makes of all pictures."""
    import torch
    from torchvision.transforms.v2 import functional

    theirs = CASES[name].theirs
    return [theirs(functional, torch.from_numpy(x), share).numpy() for x in pictures() for share in SHARES]


def by_fastio(name: str) -> list[Pixels]:
    """What native threads make of them."""
    return [run(x, CASES[name].program(x, share)) for x in pictures() for share in SHARES]


# The operations of policies, at several strengths.

_SPACES = {
    "RandAugment": (policy._RAND, 31),
    "TrivialAugmentWide": (policy._WIDE, 31),
    "AutoAugment": (policy._AUTO, 10),
    "AugMix": (policy._MIX, 10),
}
POLICIES = tuple(_SPACES)
_THEIR_NAMES = {"saturation": "Color", "autocontrast": "AutoContrast"}


def policy_by_fastio(name: str) -> list[Pixels]:
    """All operations of a policy, at three strengths, of either sign."""
    space, bins = _SPACES[name]
    done = []
    for kind, strength, sign in _operations(name):
        picture = pictures()[4]
        step = policy._operations(
            space,
            np.array([space.kinds.index(kind)]),
            np.array([strength]),
            np.array([sign]),
            bins=bins,
            size=(picture.shape[1], picture.shape[2]),
            look=Look(False, None),
        )
        done.append(run(picture, step))
    return done


def policy_by_torchvision(name: str) -> list[Pixels]:
    """The same by the installed torchvision."""
    import torch
    from torchvision.transforms import v2

    theirs, bins = getattr(v2, name)(interpolation="nearest"), _SPACES[name][1]
    done = []
    for kind, strength, sign in _operations(name):
        picture = torch.from_numpy(pictures()[4])
        key = _THEIR_NAMES.get(kind, kind.title().replace("_", ""))
        magnitudes, is_signed = theirs._AUGMENTATION_SPACE[key]
        values = magnitudes(bins, *picture.shape[1:])
        magnitude = 0.0 if values is None else float(values[strength]) * (sign if is_signed else 1)
        done.append(
            theirs._apply_image_or_video_transform(picture, key, magnitude, theirs.interpolation, theirs._fill).numpy()
        )
    return done


def _operations(name: str) -> list[tuple[str, int, float]]:
    space, bins = _SPACES[name]
    return [(kind, strength, sign) for kind in space.kinds for strength in (0, 4, bins - 1) for sign in (1.0, -1.0)]


# Rotations, affine maps, perspectives and photometric distortions with random amounts.


def _rotated(functional: Any, image: Any, q: Sequence[float]) -> Any:
    return functional.rotate(image, -40 + 110 * q[0], _bilinear(), center=[3, 9], fill=9)


def _moved(functional: Any, image: Any, q: Sequence[float]) -> Any:
    height, width = image.shape[-2:]
    shift = [round(0.1 * width * (2 * q[1] - 1)), round(0.3 * height * (2 * q[2] - 1))]
    return functional.affine(image, -30 + 60 * q[0], shift, 0.5 + q[3], [-10 + 30 * q[4], -5 + 10 * q[5]], fill=7)


def _distorted(functional: Any, image: Any, q: Sequence[float]) -> Any:
    sides = np.array([image.shape[-1], image.shape[-2]])
    bounds = (0.6 * (sides // 2)).astype(int) + 1
    starts = np.array([[0, 0], [1, 0], [1, 1], [0, 1]]) * (sides - 1)
    first = np.where(starts > 0, sides - bounds, 0)
    ends = first + (np.reshape(q[1:], (4, 2)) * bounds).astype(int)
    return functional.perspective(image, starts.tolist(), ends.tolist(), _nearest(), fill=0)


def _photometric(functional: Any, image: Any, q: Sequence[float]) -> Any:
    ranges = {"brightness": (0.875, 1.125), "contrast": (0.5, 1.5), "saturation": (0.5, 1.5), "hue": (-0.05, 0.05)}
    amounts = {name: low + (high - low) * q[4 + place] for place, (name, (low, high)) in enumerate(ranges.items())}
    names = (
        ["brightness", "contrast", "saturation", "hue"]
        if q[8] < 0.5
        else ["brightness", "saturation", "hue", "contrast"]
    )
    for name in names:
        if q[[*ranges].index(name)] < 0.5:
            image = getattr(functional, f"adjust_{name}")(image, amounts[name])
    return _permuted(functional, image, np.argsort(q[10:13]).tolist()) if q[9] < 0.5 else image


def _bilinear() -> Any:
    from torchvision.transforms import InterpolationMode

    return InterpolationMode.BILINEAR


def _nearest() -> Any:
    from torchvision.transforms import InterpolationMode

    return InterpolationMode.NEAREST


_WARPS: dict[str, tuple[Transform | PixelTransform, Callable[[Any, Any, Sequence[float]], Any]]] = {
    "RandomRotation": (RandomRotation((-40, 70), "bilinear", center=(3, 9), fill=9), _rotated),
    "RandomAffine": (RandomAffine(30, (0.1, 0.3), (0.5, 1.5), (-10, 20, -5, 5), fill=7), _moved),
    "RandomPerspective": (RandomPerspective(0.6, 1.0, "nearest"), _distorted),
    "RandomPhotometricDistort": (RandomPhotometricDistort(), _photometric),
}
WARPS = tuple(_WARPS)


def warps_by_fastio(name: str) -> list[Pixels]:
    """The transform with the numbers of four samples."""
    transform, _ = _WARPS[name]
    numbers = np.random.default_rng(5).random((4, 1, transform.draws))
    return [run(x, program_for(transform, row, (x.shape[1], x.shape[2]))) for x in pictures() for row in numbers]


def warps_by_torchvision(name: str) -> list[Pixels]:
    """The same by the installed torchvision."""
    import torch
    from torchvision.transforms.v2 import functional

    transform, theirs = _WARPS[name]
    numbers = np.random.default_rng(5).random((4, transform.draws)).tolist()
    return [theirs(functional, torch.from_numpy(x), row).numpy() for x in pictures() for row in numbers]


if __name__ == "__main__":  # with torchvision: python -m tests.transforms.batch.colour_cases
    steps = {name: checksum(by_torchvision(name)) for name in CASES}
    policies = {name: checksum(policy_by_torchvision(name)) for name in POLICIES}
    warps = {name: checksum(warps_by_torchvision(name)) for name in WARPS}
    GOLDEN.write_text(json.dumps({**steps, **policies, **warps}, indent=1) + "\n")
