"""A storm of faults while a set is read: nothing may be wrong, nothing may hang, each error says what and where.

python -m benchmarks.remote.storm [--faults 1000] [--seed 0]
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import click

from benchmarks.remote.known_set import Epoch, KnownSet, make_known_set
from fastio.errors import FastioError, SampleError
from tests.servers.fault_server import Fault, FaultServer, Kind, why_no_nginx

__all__ = ["KINDS", "Storm", "storm"]

KINDS: tuple[Kind, ...] = tuple(kind for kind in get_args(Kind) if kind not in ("delay", "pace", "lost"))
RETRIES, TIMEOUT_S = 2, 1.0
_LATE_S = 3.0  # what hangs, stalls and tails last: longer than the timeout
_HANG_S = 120.0
_ADVICE = re.compile(r"\b(open the store again|check|copy|pack again|repair|raise|stage|use|give|wait|upload)\b")


@dataclass(slots=True)
class Storm:
    """What came of it; the lists must be empty."""

    faults: Counter[str] = field(default_factory=Counter)  # that the server made, by kind
    epochs: int = 0
    untouched: int = 0  # epochs that ended before their fault's turn came
    mended: int = 0  # epochs with faults that gave every sample
    ended: int = 0  # by an error
    messages: Counter[str] = field(default_factory=Counter)  # their shapes: no numbers, no addresses
    wrong: list[str] = field(default_factory=list)  # samples with other pixels, epochs short without an error
    hangs: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)  # errors that are not fastio's
    nameless: list[str] = field(default_factory=list)  # errors that name no shard, or no key of a sample
    adviceless: list[str] = field(default_factory=list)

    def add(self, fault: Fault, epoch: Epoch | None, shards: str, *, faults: Counter[str]) -> None:
        """Judge an epoch; None: it did not end. ``faults`` are those that the server made meanwhile."""
        self.epochs += 1
        self.faults += faults
        if epoch is None:
            self.hangs.append(str(fault))
            return
        if epoch.wrong or (epoch.error is None and not epoch.complete):
            self.wrong.append(f"{fault}: {len(epoch.wrong)} wrong, {len(epoch.numbers)} samples")
        if epoch.error is None:
            self.mended += bool(faults)
            self.untouched += not faults
            return
        self.ended += 1
        message = str(epoch.error)
        if not isinstance(epoch.error, FastioError):
            self.foreign.append(f"{fault}: {epoch.error!r}")
            return
        self.messages[re.sub(r"http://\S+?/|\d+(\.\d+)?", "*", message)] += 1
        if shards not in message or (isinstance(epoch.error, SampleError) and epoch.error.key not in message):
            self.nameless.append(message)
        if not _ADVICE.search(message):
            self.adviceless.append(message)


def storm(
    server: FaultServer, sets: Sequence[tuple[str, KnownSet]], *, faults: int, seed: int, kinds: Sequence[Kind] = KINDS
) -> Storm:
    """
    Read epochs of ``sets``, URLs and what they hold, with one fault each, until the server has made so many.

    Faults come at any request from the first on, once, a few times (which retries mend) or from then on always.
    """
    result, draw = Storm(), random.Random(seed)
    while result.faults.total() < faults:
        url, known = sets[result.epochs // len(kinds) % len(sets)]
        fault = Fault(
            kind=kinds[result.epochs % len(kinds)],
            seconds=_LATE_S,
            by=draw.randint(1, 1000),
            skip=draw.randint(0, 12),
            count=draw.choice((1, 1, 2, 3, 0)),
            path=known.prefix,
        )
        server.clear()
        server.set_faults(fault)
        epoch = _bounded(known, url, result.epochs)
        server.set_faults()
        faults_made = Counter(request.fault for request in server.requests() if request.fault)
        result.add(fault, epoch, known.prefix, faults=faults_made)
    return result


def _bounded(known: KnownSet, url: str, number: int) -> Epoch | None:
    """Return the epoch, or None if it does not end."""
    epochs: list[Epoch] = []

    def read() -> None:
        epochs.append(known.epoch(url, number, download_retry=RETRIES, download_timeout=TIMEOUT_S))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(_HANG_S)
    return epochs[0] if epochs else None


@click.command()
@click.option("--faults", default=1000, show_default=True, help="How many faults the server makes, at least.")
@click.option("--seed", default=0, show_default=True)
def main(faults: int, seed: int) -> None:
    """Make two small sets, of JPEGs and raw, read them in a storm; the exit status is 1 if anything was wrong."""
    if reason := why_no_nginx():
        raise click.ClickException(reason)
    with tempfile.TemporaryDirectory() as scratch, FaultServer(Path(scratch), seed=seed) as server:
        sets = [
            (f"{server.url}/{name}", make_known_set(Path(scratch) / name, count=256, side=48, shards=4, raw=raw))
            for name, raw in (("jpeg", False), ("raw", True))
        ]
        result = storm(server, sets, faults=faults, seed=seed)
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(result.faults.items()))
    click.echo(f"{result.faults.total()} faults ({kinds}) in {result.epochs} epochs")
    click.echo(
        f"{result.mended} epochs gave every sample in spite of theirs, {result.untouched} met none, "
        f"{result.ended} ended with an error:"
    )
    for message, count in result.messages.most_common():
        click.echo(f"{count:6} {message}")
    bad = {
        "wrong": result.wrong, "hanging": result.hangs, "not fastio's errors": result.foreign,
        "without a name": result.nameless, "without advice": result.adviceless,
    }  # fmt: skip
    for name, lines in bad.items():
        click.echo(f"{name}: {len(lines)}" + "".join(f"\n    {line}" for line in lines[:5]))
    sys.exit(any(bad.values()))


if __name__ == "__main__":
    main()
