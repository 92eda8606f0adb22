"""
Trainings on text, by fastio and by what people write for them: ``python -m benchmarks.text.run``.

Every run is a fresh process with one thread and no workers (tokenising: all cores); rounds of all trainings are
interleaved, and every epoch is checked before it is timed. Rates are samples per CPU-second. Texts are made from a
seed; --text takes a file for tokenising instead. Peers get environments of their own (see ``benchmarks/peers``).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from benchmarks.rounds import CaseError
from benchmarks.side_by_side import Comparison
from benchmarks.text.data import MAKERS
from benchmarks.text.work import LENGTHS, TRAININGS, Work, plan_name, to_json

__all__ = ["CASES", "COMPARISON", "LOADERS", "PACKED", "main"]

_DATA = Path(__file__).parent.parent / ".data"

# Name in the table: its file in ``loaders``, and its environment in ``benchmarks/peers``; "" is this one.
LOADERS = {
    "fastio": ("native", ""),
    "fastio, ids alone": ("native", ""),
    "fastio, by length": ("native", ""),
    "fastio, longest first": ("native", ""),
    "fastio, side by side": ("native", ""),
    "fastio to .lmdb": ("tokenising", ""),
    "fastio to .h5": ("tokenising", ""),
    "fastio to .tar": ("tokenising", ""),
    "fastio to .lmdb, bytes": ("tokenising", ""),
    "tokenizers, encode_batch": ("tokenising", ""),
    "DataLoader": ("dataloader_tensors", "files_pil"),
    "DataLoader, by length": ("dataloader_tensors", "files_pil"),
    "transformers, by length": ("trl_collators", "trl"),
    "TRL": ("trl_collators", "trl"),
    "TRL, packed before": ("trl_collators", "trl"),
    "nanoGPT": ("nanogpt", "files_pil"),
    "Megatron": ("megatron_core", "megatron"),
    "Hugging Face, by length": ("hf_datasets", "hf_datasets"),
    "LitData": ("litdata_chunks", "litdata"),
    "Streaming": ("streaming_mds", "streaming"),
    "webdataset": ("webdataset_tar", "webdataset"),
    "Grain": ("grain_records", "grain"),
}

# The first is what the others are compared with.
CASES: dict[str, Sequence[str]] = {
    "packed": ("fastio", "fastio, ids alone", "TRL", "TRL, packed before"),
    "pairs": ("fastio", "fastio, by length", "TRL"),
    "windows": ("fastio", "fastio, side by side", "nanoGPT", "Megatron", "LitData"),
    "padded": (
        "fastio, by length", "fastio", "DataLoader", "DataLoader, by length", "transformers, by length",
        "Hugging Face, by length", "LitData", "Streaming", "webdataset", "Grain",
    ),
    **{plan_name(kind): ("fastio", "fastio, longest first", "TRL") for kind in LENGTHS},
    "tokenise": (
        "fastio to .lmdb", "fastio to .h5", "fastio to .tar", "tokenizers, encode_batch", "fastio to .lmdb, bytes",
    ),
}  # fmt: skip

# Which files pack what a training reads, once before the rounds; the others read the texts as they are.
PACKED: dict[str, Sequence[str]] = {
    "packed": ("native", "trl_collators"),
    "pairs": ("native", "trl_collators"),
    "windows": ("megatron_core", "litdata_chunks"),
    "padded": (
        "native",
        "trl_collators",
        "hf_datasets",
        "litdata_chunks",
        "streaming_mds",
        "webdataset_tar",
        "grain_records",
    ),
}

COMPARISON = Comparison("benchmarks.text", LOADERS, CASES, absent={})


def _work_of(work: Work, training: str, name: str) -> Work:
    """With a folder of the loader's own for what it packs."""
    return replace(work, packed=work.packed / f"{training}-{LOADERS[name][0]}".replace(" ", "-"))


def _variables(training: str) -> Mapping[str, str]:
    """One thread, but for tokenising, which is for all cores."""
    return {} if training == "tokenise" else {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}


def _pack(work: Work, chosen: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Let every file pack what its loaders read; returned are the cases that cannot be run, and why."""
    failed: dict[str, str] = {}
    reasons: dict[tuple[str, str], str] = {}
    for training, names in chosen.items():
        for name in names:
            module, _ = LOADERS[name]
            mine = _work_of(work, training, name)
            if module in PACKED.get(training, ()) and not mine.packed.exists():
                mine.packed.mkdir(parents=True)
                try:
                    COMPARISON.run(name, "pack", training, to_json(mine), variables=_variables(training))
                except CaseError as exc:
                    reasons[training, module] = f"packing: {exc}"
            if (training, module) in reasons:
                failed[f"{training}: {name}"] = reasons[training, module]
    return failed


@click.command(help=__doc__)
@click.option("--text", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Paragraphs to tokenise.")
@click.option("--rounds", default=5, show_default=True, help="Interleaved rounds.")
@click.option("--seconds", default=0.5, show_default=True, help="Seconds of each run after its first epoch.")
@click.option("--workers", default=0, show_default=True, help="Workers of a DataLoader, threads of fastio; 0: neither.")
@click.option("--training", "trainings", multiple=True, type=click.Choice(list(CASES)), help="Only this; repeatable.")
@click.option("--only", multiple=True, type=click.Choice(list(LOADERS)), help="Only this loader; repeatable.")
@click.option("--keep/--no-keep", default=True, show_default=True, help="Write all runs into benchmarks/results.")
def main(
    text: Path | None, rounds: int, seconds: float, workers: int, trainings: Sequence[str], only: Sequence[str],
    keep: bool,
) -> None:  # fmt: skip
    """Make the texts, pack, measure, print, and keep all runs."""
    chosen = {
        training: names
        for training in trainings or CASES
        if (names := [name for name in CASES[training] if not only or name in only])
    }
    folder = _DATA / "text"
    shutil.rmtree(folder, ignore_errors=True)
    work = Work(folder / "source", folder / "packed", workers)
    work.packed.mkdir(parents=True)
    for training in chosen:
        MAKERS[training](work, text)
    failed = _pack(work, chosen)

    def measure(training: str, name: str) -> dict[str, Any]:
        mine = to_json(_work_of(work, training, name))
        return COMPARISON.run(name, "load", training, name, mine, str(seconds), variables=_variables(training))

    results = COMPARISON.rounds(measure, chosen=chosen, failed=failed, rounds=rounds)
    for training in chosen:
        click.echo(f"\n{COMPARISON.table(training, TRAININGS[training], results)}")
    if keep:
        settings = {"rounds": rounds, "seconds": seconds, "workers": workers, "text": text.name if text else "made"}
        click.echo(f"\nall runs: {COMPARISON.keep(results, 'text', *trainings, *only, settings=settings)}")


if __name__ == "__main__":
    main()
