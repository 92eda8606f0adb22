"""``one_pass`` as two Triton kernels: each pixel is read once and written once.

Imported only if there is a CUDA device and Triton, which torch for CUDA includes.

A card that copies at full speed has time for about ten instructions per value. So nothing is divided per value: what
a run of neighbours, a row or a column has in common is computed once for it. Each thread writes 16 bytes at a time
and exchanges nothing with others.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from fastio.transforms.batch.finish import Finish
from fastio.transforms.batch.geometry import RenderTarget
from fastio.transforms.plain import colour_of
from fastio.transforms.plan import COLUMNS

__all__ = ["COMPILED", "triton_pass"]

# All products that are summed are written as fma below: it changes nothing, but Triton 3.9 warns unless it is told.
COMPILED = {"enable_fp_fusion": True}

_CHANNELS = 4  # channels that the kernels have numbers for
_WRITE = 16  # bytes that a thread writes at a time
_FLAT_BLOCK, _FLAT_WARPS = 4096, 8
_TILE, _TILE_WIDTH = 8192, 256  # values of a tile, and the most in one of its rows
_TILE_WARP = 1024  # values per warp of a tile


def triton_pass(
    images: torch.Tensor, finish: Finish, rows: torch.Tensor | None = None, target: RenderTarget | None = None
) -> torch.Tensor:
    """``one_pass`` for at most four channels and at least one pixel."""
    is_last = images.is_contiguous(memory_format=torch.channels_last)
    if rows is None and (is_last or (images.is_contiguous() and not finish.channels_last)):
        return _in_order(images, finish, 1 if is_last else images.shape[2] * images.shape[3])
    if target is None:
        target = RenderTarget(images.shape[2], images.shape[3])
    return _by_place(images, finish, rows, target)


def _in_order(images: torch.Tensor, finish: Finish, inner: int) -> torch.Tensor:
    """Run the pass over memory in its own order; a new channel begins every ``inner`` values."""
    channels, count = images.shape[1], images.numel()
    out = torch.empty_like(images, dtype=finish.dtype)
    run = _WRITE // out.element_size()
    if inner > 1 and inner % run:
        run = 1  # a run would span two channels
    _flat[(triton.cdiv(count, _FLAT_BLOCK),)](
        images,
        out,
        count,
        *_four(finish.scale, channels),
        *_four(finish.bias, channels),
        channels=channels,
        inner=inner,
        run=run,
        has_whole_runs=count % run == 0,
        block=_FLAT_BLOCK,
        num_warps=_FLAT_WARPS,
        **COMPILED,
    )
    return out


def _by_place(images: torch.Tensor, finish: Finish, rows: torch.Tensor | None, target: RenderTarget) -> torch.Tensor:
    """Run the pass in tiles of the result, fetching each value from its position in the source."""
    count, channels, height, width = images.shape
    shape = (count, channels, target.height, target.width)
    out = torch.empty(shape, dtype=finish.dtype, device=images.device, memory_format=torch.channels_last)
    wide = min(_TILE_WIDTH, triton.next_power_of_2(channels * target.width))
    tall = min(_TILE // wide, triton.next_power_of_2(target.height))
    tiles = triton.cdiv(channels * target.width, wide) * triton.cdiv(target.height, tall)
    # One dimension only: CUDA's second one ends at 65,535, and a batch of small pictures may need more.
    _placed[(tiles * count,)](
        images,
        out,
        images if rows is None else rows.contiguous(),  # not read without plans
        *images.stride(),
        *_four(finish.scale, channels),
        *_four(finish.bias, channels),
        *_four(tuple(map(float, colour_of(target.fill, channels))), channels),
        channels=channels,
        height=height,
        width=width,
        out_height=target.height,
        out_width=target.width,
        columns=len(COLUMNS),
        has_plans=rows is not None,
        tall=tall,
        wide=wide,
        num_warps=max(1, tall * wide // _TILE_WARP),
        **COMPILED,
    )
    return out


def _four(values: tuple[float, ...], channels: int) -> tuple[float, ...]:
    """Return one number per channel, filled up with zeros to four."""
    every = values * channels if len(values) == 1 else values
    return every + (0.0,) * (_CHANNELS - len(every))


@triton.jit  # type: ignore[untyped-decorator]
def _pick(channel, a, b, c, d, channels: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the number of this channel out of the first ``channels`` numbers."""
    picked = a
    if channels == 2:
        picked = tl.where(channel == 0, a, b)
    elif channels == 3:
        picked = tl.where(channel == 0, a, tl.where(channel == 1, b, c))
    elif channels == 4:
        picked = tl.where(channel == 0, a, tl.where(channel == 1, b, tl.where(channel == 2, c, d)))
    return picked


@triton.jit  # type: ignore[untyped-decorator]
def _pick_in_run(first, step, a, b, c, d, channels: tl.constexpr):  # type: ignore[no-untyped-def]
    """
    Return the numbers of runs (runs, 1) that begin with channel ``first``, for each ``step`` (1, values) of them.

    With three channels, the numbers are rotated once per run, and the compiler knows which of them a step takes.
    Other counts of channels divide a run, so each run begins with channel 0.
    """
    if channels == 3:
        begun = _pick(first, a, b, c, d, 3)
        picked = _pick(step % 3, begun, _pick(first, b, c, a, d, 3), _pick(first, c, a, b, d, 3), d, 3)
    else:
        picked = _pick(step % channels, a, b, c, d, channels)
    return picked


@triton.jit  # type: ignore[untyped-decorator]
def _flat(  # type: ignore[no-untyped-def] # noqa: PLR0913, PLR0917 - Triton passes by place; a tensor would be another copy
    images, out, count,
    scale_0, scale_1, scale_2, scale_3,
    bias_0, bias_1, bias_2, bias_3,
    channels: tl.constexpr, inner: tl.constexpr, run: tl.constexpr, has_whole_runs: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Process memory from front to back, in runs of ``run`` values (runs, run)."""
    start = tl.program_id(0).to(tl.int64) * block
    begin = tl.arange(0, block // run)[:, None] * run
    step = tl.arange(0, run)[None, :]
    if inner == 1:
        first = (tl.program_id(0) % channels * (block % channels) + begin) % channels
        scale = _pick_in_run(first, step, scale_0, scale_1, scale_2, scale_3, channels)
        bias = _pick_in_run(first, step, bias_0, bias_1, bias_2, bias_3, channels)
    else:
        plane = start // inner
        further = ((start - plane * inner).to(tl.int32) + begin) // inner
        channel = ((plane % channels).to(tl.int32) + further) % channels
        scale = _pick(channel, scale_0, scale_1, scale_2, scale_3, channels)
        bias = _pick(channel, bias_0, bias_1, bias_2, bias_3, channels)
    place = begin + step
    inside = (begin if has_whole_runs else place) < count - start
    value = tl.load(images + start + place, mask=inside).to(tl.float32)
    value = tl.math.fma(value, tl.broadcast_to(scale, value.shape), tl.broadcast_to(bias, value.shape))
    tl.store(out + start + place, value.to(out.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _placed(  # type: ignore[no-untyped-def] # noqa: PLR0913, PLR0917 - as above
    images, out, plans,
    stride_b, stride_c, stride_y, stride_x,
    scale_0, scale_1, scale_2, scale_3,
    bias_0, bias_1, bias_2, bias_3,
    fill_0, fill_1, fill_2, fill_3,
    channels: tl.constexpr, height: tl.constexpr, width: tl.constexpr,
    out_height: tl.constexpr, out_width: tl.constexpr,
    columns: tl.constexpr, has_plans: tl.constexpr, tall: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    """Process a tile of one picture in channels_last memory: ``tall`` rows of ``wide`` values."""
    line: tl.constexpr = channels * out_width
    across: tl.constexpr = (line + wide - 1) // wide
    tiles: tl.constexpr = across * ((out_height + tall - 1) // tall)
    sample = (tl.program_id(0) // tiles).to(tl.int64)
    tile = tl.program_id(0) % tiles
    column = tile % across * wide + tl.arange(0, wide)[None, :]
    row = tile // across * tall + tl.arange(0, tall)[:, None]
    channel = column % channels
    x, y = column // channels, row
    inside_x, inside_y = column < line, row < out_height
    target = out + sample * (out_height * line) + row * line + column
    shown = inside_x & inside_y
    if has_plans:  # the columns of Plan
        plan = plans + sample * columns
        flip = tl.load(plan + 12)
        x = tl.where(flip & 1 != 0, out_width - 1 - x, x) - tl.load(plan + 10)
        y = tl.where(flip & 2 != 0, out_height - 1 - y, y) - tl.load(plan + 11)
        inside_x = inside_x & (x >= 0) & (x < tl.load(plan + 8))
        inside_y = inside_y & (y >= 0) & (y < tl.load(plan + 9))
        x = x + tl.load(plan + 6) + tl.load(plan + 0)
        y = y + tl.load(plan + 7) + tl.load(plan + 1)
        inside_x = inside_x & (x >= 0) & (x < width)
        inside_y = inside_y & (y >= 0) & (y < height)
    inside = inside_x & inside_y
    source = images + sample * stride_b + y.to(tl.int64) * stride_y
    source = source + (channel.to(tl.int64) * stride_c + x.to(tl.int64) * stride_x)
    fill = _pick(channel, fill_0, fill_1, fill_2, fill_3, channels)
    scale = _pick(channel, scale_0, scale_1, scale_2, scale_3, channels)
    bias = _pick(channel, bias_0, bias_1, bias_2, bias_3, channels)
    value = tl.load(source, mask=inside, other=0).to(tl.float32)
    value = tl.where(inside, value, tl.broadcast_to(fill, value.shape))
    value = tl.math.fma(value, tl.broadcast_to(scale, value.shape), tl.broadcast_to(bias, value.shape))
    tl.store(target, value.to(out.dtype.element_ty), mask=shown)
