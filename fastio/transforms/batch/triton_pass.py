"""``one_pass`` as two Triton kernels: each pixel is read once and written once.

Imported only where there is a CUDA device and Triton, which torch for CUDA brings along.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from fastio.transforms.batch.finish import Finish
from fastio.transforms.batch.geometry import Target
from fastio.transforms.plain import colour_of
from fastio.transforms.plan import COLUMNS

__all__ = ["triton_pass"]

_BLOCK = 4096  # 16 values for each of 256 threads: 16-byte reads of uint8
_WARPS = 8
_CHANNELS = 4  # that the kernels have numbers for


def triton_pass(
    images: torch.Tensor, finish: Finish, rows: torch.Tensor | None = None, target: Target | None = None
) -> torch.Tensor:
    """As ``one_pass``, for at most four channels and at least one pixel."""
    channels = images.shape[1]
    scale, bias = (_four(values, channels) for values in (finish.scale, finish.bias))
    is_last = images.is_contiguous(memory_format=torch.channels_last)
    if rows is None and (is_last or (images.is_contiguous() and not finish.channels_last)):
        out = torch.empty_like(images, dtype=finish.dtype)
        inner = 1 if is_last else images.shape[2] * images.shape[3]
        count = images.numel()
        _flat[(triton.cdiv(count, _BLOCK),)](
            images, out, count, *scale, *bias, channels=channels, inner=inner, block=_BLOCK, num_warps=_WARPS
        )
        return out
    if target is None:
        target = Target(images.shape[2], images.shape[3])
    fill = _four(tuple(map(float, colour_of(target.fill, channels))), channels)
    shape = (len(images), channels, target.height, target.width)
    out = torch.empty(shape, dtype=finish.dtype, device=images.device, memory_format=torch.channels_last)
    count = channels * target.height * target.width
    plans = images if rows is None else rows.contiguous()  # not read without plans
    blocks = triton.cdiv(count, _BLOCK)
    # One dimension: CUDA's second one ends at 65,535, and a batch of small pictures may have more.
    _placed[(blocks * len(images),)](
        images,
        out,
        plans,
        count,
        blocks,
        *images.stride(),
        *scale,
        *bias,
        *fill,
        channels=channels,
        height=images.shape[2],
        width=images.shape[3],
        out_width=target.width,
        columns=len(COLUMNS),
        has_plans=rows is not None,
        block=_BLOCK,
        num_warps=_WARPS,
    )
    return out


def _four(values: tuple[float, ...], channels: int) -> tuple[float, ...]:
    """One number for each channel, and zeros for those that are not there."""
    every = values * channels if len(values) == 1 else values
    return every + (0.0,) * (_CHANNELS - len(every))


@triton.jit
def _pick(channel, a, b, c, d):  # type: ignore[no-untyped-def]
    """The channel's own of four numbers."""
    return tl.where(channel == 0, a, tl.where(channel == 1, b, tl.where(channel == 2, c, d)))


@triton.jit  # type: ignore[untyped-decorator]
def _flat(  # type: ignore[no-untyped-def] # noqa: PLR0913, PLR0917 - Triton passes by place; a tensor would be another copy
    images, out, count,
    scale_0, scale_1, scale_2, scale_3,
    bias_0, bias_1, bias_2, bias_3,
    channels: tl.constexpr, inner: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Memory from front to back: every ``inner`` values the next channel begins."""
    place = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    channel = (place // inner) % channels
    value = tl.load(images + place, mask=place < count).to(tl.float32)
    scale = _pick(channel, scale_0, scale_1, scale_2, scale_3)
    bias = _pick(channel, bias_0, bias_1, bias_2, bias_3)
    tl.store(out + place, (value * scale + bias).to(out.dtype.element_ty), mask=place < count)


@triton.jit  # type: ignore[untyped-decorator]
def _placed(  # type: ignore[no-untyped-def] # noqa: PLR0913, PLR0917 - as above
    images, out, plans, count, blocks,
    stride_b, stride_c, stride_y, stride_x,
    scale_0, scale_1, scale_2, scale_3,
    bias_0, bias_1, bias_2, bias_3,
    fill_0, fill_1, fill_2, fill_3,
    channels: tl.constexpr, height: tl.constexpr, width: tl.constexpr, out_width: tl.constexpr,
    columns: tl.constexpr, has_plans: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """One picture's values as they lie in channels_last memory, each fetched from where its plan says."""
    sample = (tl.program_id(0) // blocks).to(tl.int64)
    place = tl.program_id(0) % blocks * block + tl.arange(0, block)
    channel = place % channels
    x = (place // channels) % out_width
    y = place // (channels * out_width)
    inside = place < count
    if has_plans:  # the columns of Plan
        plan = plans + sample * columns
        flip = tl.load(plan + 12)
        x = tl.where(flip != 0, out_width - 1 - x, x) - tl.load(plan + 10)
        y = y - tl.load(plan + 11)
        inside = inside & (x >= 0) & (x < tl.load(plan + 8)) & (y >= 0) & (y < tl.load(plan + 9))
        x = x + tl.load(plan + 6) + tl.load(plan + 0)
        y = y + tl.load(plan + 7) + tl.load(plan + 1)
        inside = inside & (x >= 0) & (x < width) & (y >= 0) & (y < height)
    source = images + sample * stride_b + channel * stride_c + y.to(tl.int64) * stride_y + x * stride_x
    fill = _pick(channel, fill_0, fill_1, fill_2, fill_3)
    value = tl.where(inside, tl.load(source, mask=inside, other=0).to(tl.float32), fill)
    scale = _pick(channel, scale_0, scale_1, scale_2, scale_3)
    bias = _pick(channel, bias_0, bias_1, bias_2, bias_3)
    tl.store(out + sample * count + place, (value * scale + bias).to(out.dtype.element_ty), mask=place < count)
