"""
Kills packers, parts and sealers of one set at random moments, and checks what is there after each kill.

    python -m tests.converters.packing.kill_packing --count 200

After a kill, every file under a final name is one that a whole pack writes, to the byte; a set object is there only if
all shards are. Then the pack goes on with resume, reads only what is missing, and ends with the files of a whole pack.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from fastio.converters import Part, open_source, pack, seal
from fastio.store import open_store
from tests.converters.trees import class_folders
from tests.forking import INTERRUPTED, fork, in_fork, status_of
from tests.store.faults import fault

PATTERN = "out-%06d.tar"
SHARD_BYTES = 24_000
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def packing(classes: Path, folder: Path, *, part: Part | None = None) -> None:
    """Pack all shards that are missing, or those of a part."""
    pack(open_source(classes), folder / PATTERN, shard_bytes=SHARD_BYTES, resume=True, part=part, jobs=2)


def visible(folder: Path) -> dict[str, bytes]:
    """What other programs see."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}


def whole_set(classes: Path, folder: Path) -> dict[str, bytes]:
    """The files of a pack that nobody disturbs."""
    folder.mkdir()
    assert 0 == in_fork(lambda: packing(classes, folder))
    return visible(folder)


def calls_of(run: Callable[[], object], scratch: Path) -> int:
    """How many calls to the system a run makes, of those before which it may be killed."""
    counted = scratch / "calls"

    def count() -> None:
        with fault(0, lambda: None) as calls:
            run()
        counted.write_text(str(calls.made))

    assert 0 == in_fork(count)
    return int(counted.read_text())


def disturb(draw: random.Random, classes: Path, folder: Path, calls: int) -> str:
    """Let one of several processes be killed; the others end well. Returns what was killed, in a word."""
    kind = draw.choice(("packer", "packer", "part", "part", "twin", "sealer"))
    count = draw.choice((1, 2, 3))
    parts = {
        "packer": [None],
        "part": [Part(index, count) for index in range(count)],
        "twin": [Part(0, 1), Part(0, 1)],
        "sealer": [None, None],
    }[kind]
    runs: list[Callable[[], object]] = [
        (lambda: seal(folder / PATTERN))
        if kind == "sealer"
        else (lambda part=part: packing(classes, folder, part=part))
        for part in parts
    ]
    if kind == "sealer":
        packing(classes, folder)
        (folder / "out.fastio-set").unlink()
        calls = 60
    at, number = draw.randrange(1, calls // len(runs) + 1), draw.choice(SIGNALS)

    def victim() -> None:
        with fault(at, lambda: os.kill(os.getpid(), number)):
            runs[0]()

    children = [fork(victim), *(fork(run) for run in runs[1:])]
    statuses = [status_of(child) for child in children]
    assert statuses[0] in (0, -number, INTERRUPTED), statuses
    assert not any(statuses[1:]), statuses
    return kind if statuses[0] else f"{kind} (ended before)"


def check(folder: Path, expected: dict[str, bytes]) -> None:
    """Every file is whole, and a set is complete."""
    there = visible(folder)
    for name, data in there.items():
        assert data == expected[name], f"{name}: other bytes than those of a whole pack"
    if "out.fastio-set" in there:
        assert there.keys() == expected.keys(), "a set object without its shards"
        with open_store(folder / "out.fastio-set") as store:
            assert len(store) == len(store.keys(range(len(store))))


def go_on(classes: Path, folder: Path, expected: dict[str, bytes]) -> None:
    """Pack what is missing: nothing else is packed, and nothing else is left."""
    shards = sum(name.endswith(".tar") for name in visible(folder))

    def run() -> None:
        report = pack(open_source(classes), folder / PATTERN, shard_bytes=SHARD_BYTES, resume=True)
        assert report.kept_shards == shards, (report.kept_shards, shards)

    assert 0 == in_fork(run)
    assert visible(folder) == expected
    # The empty lock of a sealer that was killed does no harm: the next one takes it over, and removes it.
    hidden = [path.name for path in folder.glob(".*") if path.suffix != ".lock"]
    assert not hidden, hidden


def main(arguments: list[str] | None = None) -> None:
    """Kill ``--count`` times, from ``--seed`` on."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    killed: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        classes = Path(scratch) / "classes"
        class_folders(classes, 20)
        expected = whole_set(classes, Path(scratch) / "whole")
        calls = calls_of(lambda: packing(classes, _empty(Path(scratch) / "counted")), Path(scratch))
        for number in range(options.count):
            draw = random.Random(options.seed + number)
            folder = _empty(Path(scratch) / "out")
            try:
                for _ in range(draw.choice((1, 1, 2))):
                    killed[disturb(draw, classes, folder, calls)] += 1
                    check(folder, expected)
                go_on(classes, folder, expected)
            except BaseException as exc:
                exc.add_note(f"--seed {options.seed + number} --count 1")
                raise
    total = sum(count for kind, count in killed.items() if "before" not in kind)
    kinds = dict(sorted(killed.items()))
    sys.stdout.write(f"{total} kills, 0 wrong: {kinds}; {len(expected) - 1} shards, {calls} calls a pack\n")


def _empty(folder: Path) -> Path:
    if folder.exists():
        for path in folder.iterdir():
            path.unlink()
    folder.mkdir(exist_ok=True)
    return folder


if __name__ == "__main__":
    main()
