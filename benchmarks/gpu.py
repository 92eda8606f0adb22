"""What a GPU shows, in one command: five figures, a table, and all rounds as JSON in benchmarks/results.

python -m benchmarks.gpu [--rounds 5]                    (--device cpu --tiny tries it out anywhere)
python -m benchmarks.gpu --only resnet50 --only decoding --folder data --out gpu.json

1. Normalising against copying on the card, in bytes read and written per second. 2. Copies to it hidden behind steps,
and what a step waits for a loader. 3. The small CNN on CIFAR-like pictures, from a store and from files. 4. ResNet-50
between its two limits. 5. JPEGs decoded by the GPU. Cases are measured in turn in every round; figures are medians.

Each figure is written as soon as it is there, and one that fails does not end the others. ``--only`` with the same
``--out`` adds to what lies there; ``--folder`` keeps the data for the next call.
"""

from __future__ import annotations

import datetime
import json
import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.gpu_copies import loader, normalise, overlap
from benchmarks.gpu_sizes import Sizes
from benchmarks.gpu_training import cifar_cnn, decoding, resnet
from benchmarks.report import write_result
from fastio.loader.device.lane import lane_to

__all__ = ["FIGURES", "TINY", "main"]

Figure = Callable[[torch.device, Path, Sizes], dict[str, Any]]

RESULTS = Path(__file__).parent / "results"
FIGURES: dict[str, Figure] = {
    "normalise": normalise,
    "overlap": overlap,
    "loader": loader,
    "cifar_cnn": cifar_cnn,
    "resnet50": resnet,
    "decoding": decoding,
}
TINY = Sizes(
    rounds=1, seconds=0.0, repeats=1, transfer_batch=4, side=16, transfer_steps=6, loader_batches=12, pngs=24,
    photos=6, entries=12, batch=4, photo_batch=2, crop=32, short_side=40, workers=(0,),
)  # fmt: skip


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Rounds, all cases in turn in each.")
@click.option("--device", default="cuda", show_default=True, help="Where to measure.")
@click.option("--tiny", is_flag=True, help="So little that it only shows that everything runs.")
@click.option("--only", multiple=True, type=click.Choice(list(FIGURES)), help="This figure alone; may come again.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where data are made, and kept; by default not kept.")
@click.option("--out", type=click.Path(path_type=Path), help="The JSON; by default in benchmarks/results.")
def main(rounds: int, device: str, tiny: bool, only: tuple[str, ...], folder: Path | None, out: Path | None) -> None:
    """Measure, print a table, and keep all rounds."""
    try:
        where = lane_to(device).device
    except ValueError as exc:
        raise click.ClickException(str(exc)) from exc
    sizes = TINY if tiny else Sizes(rounds=rounds)
    path = out or RESULTS / f"{datetime.date.today().isoformat()}-gpu.json"
    before = json.loads(path.read_text()) if only and path.exists() else {}
    result = {**before, "gpu": _machine(where), "settings": asdict(sizes)}
    with _folder(folder) as place:
        for name in only or FIGURES:
            begun = perf_counter()
            try:
                result[name] = FIGURES[name](where, place, sizes)
            except Exception as exc:  # whatever it is, the other figures are not to be lost with it
                traceback.print_exc()
                result[name] = {"failed": f"{type(exc).__name__}: {exc}"}
            result[name]["seconds"] = perf_counter() - begun
            write_result(path, result)
            Console().print(_table({name: result[name]}))
    Console().print(_table(result))
    Console().print(f"all rounds: {path}")
    failed = [name for name in FIGURES if "failed" in result.get(name, {})]
    if failed:
        raise click.ClickException(f"failed: {', '.join(failed)}; again with --only NAME --out {path}")


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def _table(result: dict[str, Any]) -> Table:
    """The figures that are there, and what they should be."""
    table = Table("figure", "measured", "wanted", "took")
    for name, rows in ROWS.items():
        found = result.get(name)
        if found is None:
            continue
        left_out = found.get("failed", found.get("left_out"))
        for number, row in enumerate([(name, left_out, "")] if left_out else rows(found)):
            table.add_row(*row, f"{found['seconds']:.0f} s" if number == 0 else "")
    return table


Row = tuple[str, str, str]


def _normalise_rows(found: dict[str, Any]) -> Iterator[Row]:
    for case, share in found["of_copy"].items():
        rate = found["bytes_per_s"][case]["median"]
        wanted = ">= 0.8" if case == "one_pass channels_last" else ""
        yield f"normalise: {case}", f"{rate / 1e9:,.0f} GB/s, {share:.3f} of copying", wanted


def _overlap_rows(found: dict[str, Any]) -> Iterator[Row]:
    for name, case in found["cases"].items():
        yield f"step, of its limit: {name}", f"{case['prefetcher_of_limit']:.3f}", "<= 1.02"


def _loader_rows(found: dict[str, Any]) -> Iterator[Row]:
    yield "waiting for the loader", f"{found['waiting_share']:.3%} of a step of {found['step_ms']:.1f} ms", "< 0.23 %"


def _cifar_rows(found: dict[str, Any]) -> Iterator[Row]:
    for name, case in found["cases"].items():
        use = case["gpu_use_percent"]
        words = f"{case['step_ms']:.2f} ms, {case['loading_share']:.1%} waiting"
        yield f"CNN: {name}", words if use is None else f"{words}, GPU {use:.0f} %", ""


def _resnet_rows(found: dict[str, Any]) -> Iterator[Row]:
    for name, rate in found["medians"].items():
        yield f"ResNet-50: {name}", f"{rate:,.0f} images/s", ""
    yield "ResNet-50, of its limit", f"{found['of_limit']:.3f}", ""


def _decoding_rows(found: dict[str, Any]) -> Iterator[Row]:
    for name, rate in found["medians"].items():
        yield f"crops, decoded by {name}", f"{rate:,.0f} images/s", ""
    yield "decoded by the GPU itself", f"{found['decoded_on_device']:.1%}", ""
    apart = found["levels_apart"]
    yield "their pixels apart, levels", f"mean {apart['mean']:.2f}, most {apart['most']}", ""


ROWS: dict[str, Callable[[dict[str, Any]], Iterator[Row]]] = {
    "normalise": _normalise_rows,
    "overlap": _overlap_rows,
    "loader": _loader_rows,
    "cifar_cnn": _cifar_rows,
    "resnet50": _resnet_rows,
    "decoding": _decoding_rows,
}


def _machine(device: torch.device) -> dict[str, Any]:
    about = {"device": "CPU", "torch": torch.__version__, "cuda": torch.version.cuda, "threads": os.cpu_count()}
    if device.type == "cuda":
        known = torch.cuda.get_device_properties(device)
        about |= {"device": known.name, "memory_bytes": known.total_memory, "cache_bytes": known.L2_cache_size}
    return about


if __name__ == "__main__":
    main()
