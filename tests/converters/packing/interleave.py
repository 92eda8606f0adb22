"""
Lets two writers of one set proceed in a chosen order, step by step, and checks what is there afterwards.

    python -m tests.converters.packing.interleave --all               # each pair, the first one stopped at each step
    python -m tests.converters.packing.interleave --random 300        # any order of the steps of any pair

A step is a call that gives a file its name or takes it away. Between the steps of one process the other may make any
number of its own, or the first one is killed. Whatever the order, the set that is there opens, is whole, and is what
those who ended well have made, one after the other; whoever ends with an error has changed nothing.
"""

from __future__ import annotations

import argparse
import fcntl
import itertools
import json
import logging
import os
import random
import select
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fastio.converters import Part, open_source, pack, seal
from fastio.converters.packing.repair import repair
from fastio.errors import FastioError
from fastio.store import create_store, open_store
from fastio.store.index.verify import verify_store
from fastio.store.sets.merge import merge_stores
from tests.converters.trees import class_folders
from tests.forking import fork, in_fork
from tests.store.build import LABELLED, make_batch
from tests.store.faults import fault

PATTERN, OBJECT = "x-%06d.tar", "x.fastio-set"
COUNT = 2  # pictures in each of three classes
SHARD_BYTES = 3000
STEPS = ("link", "rename", "unlink")
DAMAGED = "x-000000.tar"  # while a set is repaired
KILLED = "killed"

Samples = frozenset[str]  # the sources of which a set has all samples, one letter each


@dataclass(frozen=True)
class Place:
    """Folders of one trial: the set, a copy of it as it was, and the sources."""

    root: Path

    @property
    def folder(self) -> Path:
        """Where the set lies that is written."""
        return self.root / "out"

    def source(self, letter: str) -> str:
        """The folder of pictures whose names begin with a letter."""
        return str(self.root.parent / f"source-{letter}")

    def pack(self, letter: str, **options: object) -> None:
        """Pack a source into the set."""
        source = open_source(self.source(letter))
        pack(source, self.folder / PATTERN, shard_bytes=SHARD_BYTES, jobs=1, **options)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Writer:
    """One way to write a set: what it runs, and what it makes of the samples that are there."""

    run: Callable[[Place], object]
    effects: Sequence[Callable[[Samples], Samples]]  # one of them


def _parts(place: Place) -> None:
    place.pack("p", overwrite=True, part=Part(0, 2))
    place.pack("p", overwrite=True, part=Part(1, 2))


def _sealed(place: Place) -> None:
    seal(place.folder / PATTERN, overwrite=True)


def _merged(place: Place) -> None:
    parts = [str(place.folder / OBJECT), str(place.folder / "y.fastio-set")]
    merge_stores(parts, parts[0], overwrite=True)


def _merged_elsewhere(place: Place) -> None:
    parts = [str(place.folder / OBJECT), str(place.folder / "y.fastio-set")]
    merge_stores(parts, str(place.folder / "z.fastio-set"), overwrite=True)


def _written(place: Place) -> None:
    with create_store(place.folder / PATTERN, LABELLED, overwrite=True, shard_bytes=600) as writer:
        for number in range(3):
            writer.append(make_batch([f"w{2 * number}", f"w{2 * number + 1}"], [b"1" * 500, b"2" * 500]))


def _stays(there: Samples) -> Samples:
    return there


def _is(letter: str) -> Callable[[Samples], Samples]:
    return lambda _: frozenset(letter)


def _grows(letter: str) -> Callable[[Samples], Samples]:
    return lambda there: there | {letter}


WRITERS: dict[str, Writer] = {
    "append": Writer(lambda place: place.pack("a", append=True), [_grows("a")]),
    "overwrite": Writer(lambda place: place.pack("b", overwrite=True), [_is("b")]),
    "part": Writer(_parts, [_is("p")]),
    "resume": Writer(lambda place: place.pack("r", overwrite=True, resume=True), [_is("r")]),
    "seal": Writer(_sealed, [_is("s"), _stays]),  # what another has replaced needs no sealing
    "merge": Writer(_merged, [_grows("y")]),
    "merge to z": Writer(_merged_elsewhere, [_stays]),
    "repair": Writer(lambda place: repair(str(place.folder / OBJECT), str(place.root / "copy")), [_stays]),
    "Writer": Writer(_written, [_is("w")]),
}
PAIRS = tuple(itertools.product(WRITERS, repeat=2))


def make_sources(root: Path) -> None:
    """Write the sources: pictures in class folders, whose names begin with the letter of their source."""
    for letter in "oabprsy":
        folder = root / f"source-{letter}"
        class_folders(folder, COUNT)
        for number, file in enumerate(sorted(folder.rglob("*.*"))):
            file.rename(file.with_name(f"{letter}{number}{file.suffix}"))


def kind_of(names: Sequence[str]) -> str:
    """Which set these writers begin with."""
    return "-".join(sorted({"resume", "seal", "repair"} & set(names))) or "plain"


def begin(root: Path, names: Sequence[str]) -> Place:
    """Return a new folder with a set of source "o", and with what these writers need."""
    model = Place(root / f"model-{kind_of(names)}")
    if not model.root.exists():
        model.folder.mkdir(parents=True)
        assert 0 == in_fork(lambda: _make_model(model, names))
    place = Place(root / "trial")
    shutil.rmtree(place.root, ignore_errors=True)
    shutil.copytree(model.root, place.root)
    return place


def _make_model(place: Place, names: Sequence[str]) -> None:
    place.pack("o")
    source = open_source(place.source("y"))
    pack(source, place.folder / "y-%06d.tar", shard_bytes=SHARD_BYTES, jobs=1)
    shutil.copytree(place.folder, place.root / "copy")
    if "repair" in names:
        damaged = bytearray((place.folder / DAMAGED).read_bytes())
        damaged[1500] ^= 4
        (place.folder / DAMAGED).write_bytes(damaged)
    if "resume" in names:
        place.pack("r", overwrite=True, part=Part(0, 2))
    if "seal" in names:  # all shards are there, but nobody has made the set
        place.pack("s", overwrite=True)
        (place.folder / OBJECT).unlink()
        shutil.copy(place.root / "copy" / OBJECT, place.folder / OBJECT)
        for shard in (place.root / "copy").glob("x-*.tar"):
            if not (place.folder / shard.name).exists():
                shutil.copy(shard, place.folder)


@dataclass
class Process:
    """A writer that stops before each step until it may go on."""

    number: int
    pid: int
    reports: int  # a pipe: "s" at a step, "w" where it waits for the other
    go_on: int
    is_ready: bool = False
    is_waiting: bool = False
    is_ended: bool = False
    steps: int = 0
    status: int = 0


def _start(number: int, work: Callable[[], object], result: Path) -> Process:
    reading, writing = os.pipe()
    waiting, telling = os.pipe()

    def run() -> None:
        os.close(reading)
        os.close(telling)
        logging.disable()
        lock = fcntl.flock

        def flock(fd: int, operation: int) -> None:
            try:
                lock(fd, operation | fcntl.LOCK_NB)
            except BlockingIOError:
                if operation & fcntl.LOCK_NB:
                    raise
                os.write(writing, b"w")
                lock(fd, operation)

        def step() -> None:
            os.write(writing, b"s")
            assert os.read(waiting, 1)

        fcntl.flock = flock  # type: ignore[assignment]
        os.fsync = lambda fd: None  # type: ignore[assignment]
        message = ""
        step()
        with fault(1, step, calls=STEPS, lasting=True):
            try:
                work()
            except FastioError as exc:
                message = "; ".join([str(exc), *getattr(exc, "__notes__", [])])
        result.write_text(json.dumps(message))

    process = fork(run)
    os.close(writing)
    os.close(waiting)
    return Process(number, process, reading, telling)


def interleave(
    works: Sequence[Callable[[], object]], choose: Callable[[list[Process]], tuple[Process, bool]], scratch: Path
) -> list[str]:
    """
    Run these in processes, of which ``choose`` picks one that makes its next step, or is killed (True).

    Returns the error of each, empty if it ended well, KILLED if it was.
    """
    results = [scratch / f"result-{number}" for number in range(len(works))]
    processes = [_start(number, *each) for number, each in enumerate(zip(works, results, strict=True))]
    killed: set[int] = set()
    try:
        _listen(processes, until=lambda: all(each.is_ready or each.is_ended for each in processes))
        while ready := [each for each in processes if each.is_ready]:
            chosen, kill = choose(ready)
            chosen.is_ready = chosen.is_waiting = False
            if kill:
                killed.add(chosen.number)
                os.kill(chosen.pid, signal.SIGKILL)
            else:
                chosen.steps += 1
                os.write(chosen.go_on, b"g")
            _listen(processes, until=lambda each=chosen: each.is_ready or each.is_ended or each.is_waiting)  # type: ignore[misc]
            _listen(processes, until=lambda: any(p.is_ready for p in processes) or all(p.is_ended for p in processes))
    finally:
        for each in processes:
            if not each.is_ended:
                os.kill(each.pid, signal.SIGKILL)
                os.waitpid(each.pid, 0)
            os.close(each.reports)
            os.close(each.go_on)
    assert all(each.status == 0 for each in processes if each.number not in killed), "a traceback"
    return [KILLED if n in killed else json.loads(result.read_text()) for n, result in enumerate(results)]


def _listen(processes: Sequence[Process], until: Callable[[], bool]) -> None:
    while not until():
        living = {each.reports: each for each in processes if not each.is_ended}
        for pipe in select.select(list(living), [], [], 60)[0] or [None]:
            assert pipe is not None, "no process makes a step"
            each, report = living[pipe], os.read(pipe, 1)
            each.is_ready, each.is_waiting, each.is_ended = report == b"s", report == b"w", not report
            if each.is_ended:
                each.status = os.waitstatus_to_exitcode(os.waitpid(each.pid, 0)[1])


@dataclass
class Trial:
    """Two writers, what became of them, and of the set."""

    names: Sequence[str]
    messages: list[str]
    there: Samples | None
    problems: list[str] = field(default_factory=list)


def trial(root: Path, names: Sequence[str], choose: Callable[[list[Process]], tuple[Process, bool]]) -> Trial:
    """Let these writers write one set, and check what is there."""
    place = begin(root, names)
    works = [lambda name=name: WRITERS[name].run(place) for name in names]
    done = Trial(names, interleave(works, choose, root), None)
    try:
        _check(place, done)
    except (FastioError, AssertionError) as exc:  # reported with its trial
        done.problems.append(f"{type(exc).__name__}: {exc}")
    return done


def _check(place: Place, done: Trial) -> None:
    possible, merged = _possible(done)
    done.there = _samples(place.folder / OBJECT, place, done)
    assert done.there in possible, f"holds {sorted(done.there)}, expected one of {sorted(map(sorted, possible))}"
    if any(name == "merge to z" and not text for name, text in zip(done.names, done.messages, strict=True)):
        z = _samples(place.folder / "z.fastio-set", place, done)
        assert z in merged, f"z holds {sorted(z)}"


def _samples(path: Path, place: Place, done: Trial) -> Samples:
    """Open a set, compare all its bytes, and return the sources of its samples, each of which must be complete."""
    with open_store(path) as store:
        problems = [each for each in verify_store(store) if not _may_be_damaged(each.shard, place, done)]
        assert not problems, problems[0]
        counts = Counter(key.rpartition("/")[2][0] for key in store.keys(range(len(store))))
    assert set(counts.values()) == {3 * COUNT}, counts
    return frozenset(counts)


def _may_be_damaged(path: str, place: Place, done: Trial) -> bool:
    """Whether a problem was there before, and nobody says that it was mended."""
    mended = any(name == "repair" and not text for name, text in zip(done.names, done.messages, strict=True))
    return "repair" in done.names and not mended and Path(path).name == DAMAGED


def _possible(done: Trial) -> tuple[set[Samples], set[Samples]]:
    """What the set may hold after those who ended well, and perhaps those who were killed; and what others may hold."""
    ended: set[Samples] = set()
    between: set[Samples] = {frozenset("o")}
    sure = [name for name, text in zip(done.names, done.messages, strict=True) if not text or "complete" in text]
    perhaps = [name for name, text in zip(done.names, done.messages, strict=True) if text == KILLED]
    some = (each for count in range(len(perhaps) + 1) for each in itertools.combinations(perhaps, count))
    for killed in some:
        for order in itertools.permutations([*sure, *killed]):
            for effects in itertools.product(*(WRITERS[name].effects for name in order)):
                there: Samples = frozenset("o")
                for effect in effects:
                    there = effect(there)
                    between.add(there)
                ended.add(there)
    return ended, {there | {"y"} for there in between}


def stopped_at(step: int, *, kill: bool) -> Callable[[list[Process]], tuple[Process, bool]]:
    """The first process makes some steps; then the other one runs to its end; then the first one goes on, or dies."""

    def choose(ready: list[Process]) -> tuple[Process, bool]:
        first = next((each for each in ready if each.number == 0), None)
        second = next((each for each in ready if each.number == 1), None)
        if first is not None and first.steps < step:
            return first, False
        if first is not None and kill:
            return first, True
        return (first, False) if second is None and first is not None else (second or ready[0], False)

    return choose


def at_random(draw: random.Random) -> Callable[[list[Process]], tuple[Process, bool]]:
    """Any process makes the next step; now and then one of them is killed."""
    bias, deadly = draw.random(), draw.random() < 0.3

    def choose(ready: list[Process]) -> tuple[Process, bool]:
        chosen = ready[0] if len(ready) == 1 or draw.random() < bias else ready[1]
        return chosen, deadly and draw.random() < 0.05

    return choose


def steps_of(root: Path, name: str, names: Sequence[str]) -> int:
    """How many steps a writer makes alone, in a folder that is made for these."""
    place, steps = begin(root, names), [0]

    def choose(ready: list[Process]) -> tuple[Process, bool]:
        steps[0] = ready[0].steps + 1
        return ready[0], False

    assert [""] == interleave([lambda: WRITERS[name].run(place)], choose, root), name
    return steps[0]


_COUNTED: dict[tuple[str, str], int] = {}  # by the writer and what it begins with


def counted(root: Path, names: tuple[str, str]) -> int:
    """How many steps the first of two writers makes, if the other does not disturb it."""
    if names[0] == "append" and {"resume", "seal"} & set(names):
        return 1  # there are shards that the set does not list: refused from the beginning
    known = names[0], kind_of(names)
    if known not in _COUNTED:
        _COUNTED[known] = steps_of(root, names[0], names)
    return _COUNTED[known]


def systematic(root: Path, pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[str, Trial]]:
    """Yield a trial of each pair for each step at which the first one is stopped, and at which it is killed."""
    for names in pairs:
        for step in range(counted(root, names)):
            yield "stopped", trial(root, names, stopped_at(step, kill=False))
            yield "killed", trial(root, names, stopped_at(step, kill=True))


def outcome(messages: Sequence[str]) -> str:
    """How two writers ended, in a word each."""
    return ", ".join("well" if not text else text if text == KILLED else "refused" for text in messages)


def main(arguments: list[str] | None = None) -> None:
    """Print how often each pair ended how, and how many trials were wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    counts: Counter[tuple[str, str, str]] = Counter()
    wrong: list[str] = []
    texts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        make_sources(root)
        for how, done in systematic(root, PAIRS) if options.all else ():
            counts[how, " / ".join(done.names), outcome(done.messages)] += 1
            wrong += [f"{how} {done.names}: {problem} {done.messages}" for problem in done.problems]
            texts.update(text.replace(scratch, "") for text in done.messages if text)
        for number in range(options.random):
            draw = random.Random(options.seed + number)
            done = trial(root, draw.choice(PAIRS), at_random(draw))
            counts["random", " / ".join(done.names), outcome(done.messages)] += 1
            wrong += [f"--seed {options.seed + number}: {done.names}: {text} {done.messages}" for text in done.problems]
            texts.update(text.replace(scratch, "") for text in done.messages if text)
    for (how, names, ended), count in sorted(counts.items()):
        sys.stdout.write(f"{count:5} {how:8} {names:24} {ended}\n")
    for text, count in texts.most_common():
        sys.stdout.write(f"{count:5} {text}\n")
    sys.stdout.write("\n".join([*wrong, f"{counts.total()} interleavings, {len(wrong)} wrong\n"]))


if __name__ == "__main__":
    main()
