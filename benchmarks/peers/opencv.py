"""Decoding and cropping with OpenCV: what people take who find Pillow slow. Its bilinear resize is not antialiased."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.crops import center_places, random_box

__all__ = ["center_224", "decoded", "random_224", "transform"]

# As Pillow reads them: a note of the camera's orientation turns nothing.
FLAGS = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION

cv2.setNumThreads(0)  # the workers are the parallelism


def random_224(data: Any) -> NDArray[np.uint8]:
    """RandomResizedCrop(224), RandomHorizontalFlip() of an encoded picture: (224, 224, 3) in RGB."""
    image = _decode(data)
    left, top, width, height = random_box(image.shape[1], image.shape[0])
    image = cv2.resize(image[top : top + height, left : left + width], (224, 224), interpolation=cv2.INTER_LINEAR)
    if random.random() < 0.5:
        image = cv2.flip(image, 1)
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB)


def center_224(data: Any) -> NDArray[np.uint8]:
    """Resize(256), CenterCrop(224) of an encoded picture: (224, 224, 3) in RGB."""
    image = _decode(data)
    width, height, left, top = center_places(image.shape[1], image.shape[0])
    image = cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
    return cv2.cvtColor(image[top : top + 224, left : left + 224], cv2.COLOR_BGR2RGB)


def decoded(data: Any) -> NDArray[np.uint8]:
    """An encoded picture as (H, W, 3) in RGB."""
    return cv2.cvtColor(_decode(data), cv2.COLOR_BGR2RGB)


def transform(task: str) -> Callable[[Any], NDArray[np.uint8]]:
    """The function for a task."""
    return {"random_224": random_224, "center_224": center_224}[task]


def _decode(data: Any) -> NDArray[np.uint8]:
    image = cv2.imdecode(np.frombuffer(data, np.uint8), FLAGS)
    if image is None:
        raise ValueError(f"OpenCV cannot decode a picture of {len(data)} bytes")
    return image
