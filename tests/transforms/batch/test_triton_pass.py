"""The Triton kernels without a card: their results in Triton's interpreter, and what its compiler makes of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton", minversion="3.4", reason="older ones are not used")

from triton import compile as compile_kernel
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from fastio.transforms import Compose, RandomCrop, RandomHorizontalFlip
from fastio.transforms.batch import triton_pass
from fastio.transforms.batch.finish import Finish
from fastio.transforms.batch.geometry import RenderTarget
from fastio.transforms.batch.one_pass import plain_pass
from fastio.transforms.plan import Plan

COUNT = 5
CARDS = [80, 90]  # compute capabilities: A100, H100 and H200


@pytest.fixture(scope="module")
def interpreted() -> Iterator[ModuleType]:
    """The module as Triton's interpreter runs it, on the CPU."""
    spec = find_spec(triton_pass.__name__)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        spec.loader.exec_module(module)
        yield module


def pictures(channels: int, size: tuple[int, int], layout: torch.memory_format, dtype: torch.dtype) -> torch.Tensor:
    """Random pixels."""
    values = np.random.default_rng(0).integers(0, 256, (COUNT, channels, *size), np.uint8)
    return torch.from_numpy(values).to(dtype).contiguous(memory_format=layout)


def finish_of(channels: int, dtype: torch.dtype, *, channels_last: bool) -> Finish:
    """Another number for each channel."""
    scale, bias = tuple(np.linspace(0.01, 0.02, channels)), tuple(np.linspace(-1, 1, channels))
    return Finish(dtype, scale, bias, channels_last=channels_last)


def assert_equal(expected: torch.Tensor, got: torch.Tensor) -> None:
    """Equal but for the last rounding, in the same layout."""
    assert expected.dtype == got.dtype
    torch.testing.assert_close(got, expected, rtol=torch.finfo(got.dtype).eps, atol=1e-6)
    last = torch.channels_last
    assert expected.is_contiguous(memory_format=last) == got.is_contiguous(memory_format=last)


@pytest.mark.parametrize("size", [(32, 32), (7, 41)], ids=["whole runs", "odd"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    "dtypes", [(torch.uint8, torch.float16), (torch.uint8, torch.float32), (torch.float32, torch.bfloat16)]
)
def test_values(
    interpreted: ModuleType,
    size: tuple[int, int],
    channels: int,
    layout: torch.memory_format,
    channels_last: bool,
    dtypes: tuple[torch.dtype, torch.dtype],
) -> None:
    """The kernels' values are those of torch's operations, whatever lies where."""
    images = pictures(channels, size, layout, dtypes[0])
    finish = finish_of(channels, dtypes[1], channels_last=channels_last)

    assert_equal(plain_pass(images, finish), interpreted.triton_pass(images, finish))


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("crop", [RandomCrop((30, 90)), RandomCrop((37, 97), padding=6, fill=7), RandomCrop((5, 4))])
def test_crops_and_flips(interpreted: ModuleType, channels: int, layout: torch.memory_format, crop: RandomCrop) -> None:
    """With plans too, edges included, in one tile and in several."""
    images = pictures(channels, (37, 97), layout, torch.uint8)
    finish = finish_of(channels, torch.float16, channels_last=True)
    plan = Plan(np.array([37]), np.array([97]))
    Compose([crop, RandomHorizontalFlip()]).run(plan, np.random.default_rng(1).random((COUNT, 3)))
    rows, target = torch.from_numpy(plan.rows(COUNT)), RenderTarget(*crop.size, plan.fill or (0,))

    assert_equal(plain_pass(images, finish, rows, target), interpreted.triton_pass(images, finish, rows, target))


def test_unsigned_pixels_stay_what_they_are(interpreted: ModuleType) -> None:
    """Without numbers a crop leaves uint8 as it is, to the bit."""
    images = pictures(3, (37, 41), torch.channels_last, torch.uint8)
    plan = Plan(np.array([37]), np.array([41]))
    Compose([RandomCrop((20, 16)), RandomHorizontalFlip()]).run(plan, np.random.default_rng(1).random((COUNT, 3)))
    rows, target = torch.from_numpy(plan.rows(COUNT)), RenderTarget(20, 16)
    expected, got = (run(images, Finish(torch.uint8), rows, target) for run in (plain_pass, interpreted.triton_pass))

    assert torch.equal(expected, got)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compiled is kept where the test is."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def compiled(kernel: Any, card: int, pointers: dict[str, str], constants: dict[str, int | bool]) -> Any:
    """A kernel as Triton compiles it for a card, with numbers and memory as they are for pictures 224x224."""
    names = [parameter.name for parameter in kernel.params]
    kinds = {name: "fp32" for name in names if name.startswith(("scale", "bias", "fill"))}
    kinds |= pointers | dict.fromkeys(constants, "constexpr")
    kinds = {name: kinds.get(name, "i32") for name in names}
    aligned = {
        (names.index(name),): [["tt.divisibility", 16]]
        for name, kind in kinds.items()
        if kind[0] == "*" or kind == "i32"
    }
    source = ASTSource(kernel, kinds, constants, aligned)
    return compile_kernel(source, target=GPUTarget("cuda", card, 32), options=triton_pass.COMPILED)


def instructions(ptx: str) -> int:
    """How many a thread goes through; the kernels have no loops."""
    return len(re.findall(r"^\t(?![./])", ptx, re.MULTILINE))


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("inner", [1, 224 * 224], ids=["channels_last", "contiguous"])
@pytest.mark.parametrize(("dtype", "run", "read"), [("fp16", 8, "v2.b32"), ("fp32", 4, "b32")])
def test_memory_is_moved_in_whole_runs(card: int, inner: int, dtype: str, run: int, read: str) -> None:
    """16 bytes a write, nothing by way of shared memory, few enough instructions a value not to wait for them."""
    constants = {"channels": 3, "inner": inner, "run": run, "has_whole_runs": True, "block": 4096}
    kernel = compiled(triton_pass._flat, card, {"images": "*u8", "out": f"*{dtype}"}, constants)
    ptx = kernel.asm["ptx"]

    assert set(re.findall(r"st\.global\.(\S+)", ptx)) == {"v4.b32"}
    assert set(re.findall(r"ld\.global\.(\S+)", ptx)) == {read}
    assert kernel.metadata.shared == 0
    assert instructions(ptx) <= 12 * 4096 // (32 * kernel.metadata.num_warps)


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("card", CARDS)
def test_crops_are_written_in_whole_runs(card: int) -> None:
    """The reads begin at any pixel; the writes do not."""
    constants = {
        "channels": 3, "height": 224, "width": 224, "out_height": 224, "out_width": 224, "stride_c": 1,
        "columns": 13, "has_plans": True, "tall": 32, "wide": 256,
    }  # fmt: skip
    kernel = compiled(triton_pass._placed, card, {"images": "*u8", "out": "*fp16", "plans": "*i32"}, constants)
    ptx = kernel.asm["ptx"]

    assert set(re.findall(r"st\.global\.(\S+)", ptx)) == {"v4.b32"}
    assert kernel.metadata.shared == 0
