"""Counts the floating point operations of matrix products and convolutions from the shapes in a trace."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["operator_flops"]

Shape = Sequence[int]


def operator_flops(event: Mapping[str, Any]) -> int | None:
    """
    Return the multiplications and additions of one call of a matrix product or a convolution, forward or backward.

    Returns None for other operators, and if the trace has no shapes (recorded without ``record_shapes``). As in
    torch's own ``with_flops``, a multiplication with its addition counts as two.
    """
    arguments = event.get("args", {})
    count = _COUNTS.get(event["name"])
    if count is None or "Input Dims" not in arguments:
        return None
    return count(arguments["Input Dims"], arguments.get("Concrete Inputs", ()))


def _product(left: Shape, right: Shape) -> int:
    """Count (..., m, k) times (..., k, n)."""
    return 2 * math.prod(left) * right[-1]


def _of_mm(dims: Sequence[Shape], _: Sequence[str]) -> int:
    return _product(dims[0], dims[1])


def _of_addmm(dims: Sequence[Shape], _: Sequence[str]) -> int:
    return _product(dims[1], dims[2])


def _of_convolution(dims: Sequence[Shape], arguments: Sequence[str]) -> int:
    images, weights = dims[0], dims[1]  # (n, channels, ...), (channels out, channels in / groups, ...)
    stride, padding, dilation, is_transposed = (json.loads(word.lower()) for word in arguments[3:7])
    places = math.prod(images[2:])
    if not is_transposed:
        sizes = zip(images[2:], weights[2:], stride, padding, dilation, strict=True)
        places = math.prod(
            (size + 2 * pad - gap * (width - 1) - 1) // step + 1 for size, width, step, pad, gap in sizes
        )
    return 2 * images[0] * places * math.prod(weights)


def _of_convolution_backward(dims: Sequence[Shape], arguments: Sequence[str]) -> int:
    """Count the gradients of images and of weights, if they are asked for: each takes as much as the forward pass."""
    gradient, images, weights = dims[0], dims[1], dims[2]
    is_transposed = json.loads(arguments[7].lower())
    gradients = arguments[10].strip("[]").replace(" ", "").split(",")[:2].count("True")
    places = math.prod((images if is_transposed else gradient)[2:])
    return 2 * images[0] * places * math.prod(weights) * gradients


_COUNTS: dict[str, Callable[[Sequence[Shape], Sequence[str]], int]] = {
    "aten::mm": _of_mm,
    "aten::bmm": _of_mm,
    "aten::addmm": _of_addmm,
    "aten::baddbmm": _of_addmm,
    "aten::convolution": _of_convolution,
    "aten::convolution_backward": _of_convolution_backward,
}
