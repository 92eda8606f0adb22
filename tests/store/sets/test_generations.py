"""Sets of shards that replace others: at every instant the old one or the new one, and messages that are true."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from fastio.errors import SchemaError, StoreError, StoreIncomplete, StoreNotFound
from fastio.store import FORMATS, create_shard, create_store, open_store
from fastio.store.index.verify import verify_store
from fastio.store.sets.seal import seal_set
from fastio.store.sets.set_object import current_set
from tests.forking import fork, in_fork, status_of
from tests.store import build
from tests.store.build import LABELLED, make_batch, read_all, visible, write
from tests.store.faults import fail, fault, interrupt, kill
from tests.store.version_1 import make_version_1

SHARD_BYTES = 2_000
SET, FILE, OBJECT = "out-%06d.tar", "out.tar", "out.fastio-set"
OLD = {f"old{i}": bytes([i]) * 9 for i in range(3)}  # a shard each
NEW = {False: {"new": b"1"}, True: {f"new{i}": bytes([i]) * 8 for i in range(5)}}  # in fewer shards, in more
CHANGES = ("pwrite", "fsync", "ftruncate", "link", "rename", "unlink")  # a process killed before others is no news
REFUSED = 2  # the exit status of a packer that leaves the set to another one
UNTIL = 400  # calls: more than any of these packs makes


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of packs need not wait for the disk; that they would is tested elsewhere."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


def hidden(folder: Path) -> list[str]:
    """Hidden files, but the locks of writers: where removing one fails, or its writer was killed, it does no harm."""
    return [name for name in build.hidden(folder) if not name.endswith(".lock")]


def pack(folder: Path, name: str, samples: dict[str, bytes], *, overwrite: bool = True) -> None:
    """A store of these samples."""
    write(folder / name, samples, overwrite=overwrite, shard_bytes=SHARD_BYTES if "%" in name else None)


def pack_old(folder: Path, name: str, version: int) -> None:
    """The store that is replaced: of a set, with a set object (2) or by seals that know it (1)."""
    pack(folder, name, OLD)
    if version == 1:
        make_version_1(folder / name)


def packed(folder: Path, name: str) -> dict[str, bytes] | None:
    """The samples of the store as they are read, whose bytes are right; None where there is no store."""
    if not (visible(folder) or hidden(folder)):
        return None
    with open_store(folder / name) as store:
        assert verify_store(store) == []
        return read_all(store)


def check_nothing_left(folder: Path) -> None:
    """Only the set object and the shards that it lists."""
    known = current_set(str(folder / OBJECT))
    assert known is not None
    assert sorted([OBJECT, *(member.name for member in known.members)]) == visible(folder)
    assert [] == hidden(folder)


def attempt(folder: Path, name: str, samples: dict[str, bytes]) -> BaseException | None:
    """Pack, and what came of it."""
    try:
        pack(folder, name, samples)
    except (StoreError, KeyboardInterrupt) as exc:
        return exc
    return None


def check_told(error: BaseException, is_new: bool) -> None:
    """What the error says of the store is what lies there."""
    text = "; ".join([str(error), *getattr(error, "__notes__", [])])
    if isinstance(error, StoreError):
        assert str(error).count(": ") >= 1
        assert is_new == (" complete" in text), text
        assert not (is_new and "untouched" in text), text
    else:
        assert is_new == ("the new store is complete" in text), text


@pytest.mark.parametrize(("lasting", "longer", "version"), [(False, True, 2), (True, False, 1)])
@pytest.mark.parametrize("call", ["rename", "fsync", "unlink", "close", "link", "open", "write", "fstat"])
def test_an_error_at_any_call(tmp_path: Path, call: str, lasting: bool, longer: bool, version: int) -> None:
    """Whatever fails while a set is overwritten, the old one or the new one opens, and the error says which."""
    new = NEW[longer]
    for at in range(1, UNTIL):
        pack_old(tmp_path, SET, version)
        with fault(at, fail, calls=(call,), lasting=lasting) as count:
            error = attempt(tmp_path, SET, new)
        found = packed(tmp_path, SET)
        assert found in (OLD, new)
        assert error is not None or found == new
        if error is not None:
            check_told(error, found == new)
            assert found == new or lasting or call == "unlink" or hidden(tmp_path) == []
            pack(tmp_path, SET, new)
        assert new == packed(tmp_path, SET)
        check_nothing_left(tmp_path)
        if count.made < at:
            break
    assert 2 <= at < UNTIL


@pytest.mark.parametrize("name", [SET, FILE])
def test_errors_behind_the_end_of_a_writer(tmp_path: Path, name: str) -> None:
    """Whatever ends a block whose writer has closed has a note that the store is complete, once."""
    for error in (StoreError("later"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught:
            _pack_and_raise(tmp_path / name, error)
        assert [f"{tmp_path / name}: the new store is complete under its name"] == caught.value.__notes__


def _pack_and_raise(path: Path, error: BaseException) -> None:
    with create_store(path, LABELLED, overwrite=True) as writer:
        writer.append(make_batch(["a"], [b"1"]))
        writer.close()
        raise error


@pytest.mark.parametrize(("name", "version"), [(SET, 2), (FILE, 2)])
def test_an_interrupt_at_any_call(tmp_path: Path, name: str, version: int) -> None:
    """Ctrl-C at any time leaves the old store or the new one, and the interrupt says which."""
    new = NEW[True]
    for at in range(1, UNTIL):
        pack_old(tmp_path, name, version)
        with fault(at, interrupt) as count:
            error = attempt(tmp_path, name, new)
        found = packed(tmp_path, name)
        assert found in (OLD, new)
        if error is not None:
            check_told(error, found == new)
        assert hidden(tmp_path) == []
        if count.made < at:
            break
    assert 10 < at < UNTIL


def _killed(folder: Path, name: str, samples: dict[str, bytes], at: int, *, overwrite: bool) -> bool:
    """Whether a packer came to the call at which it is killed."""

    def work() -> None:
        with fault(at, kill, calls=CHANGES):
            pack(folder, name, samples, overwrite=overwrite)

    return in_fork(work) == -signal.SIGKILL


@pytest.mark.parametrize(("longer", "is_read", "version"), [(False, True, 1), (True, True, 2), (False, False, 2)])
def test_killed_at_any_call(tmp_path: Path, longer: bool, is_read: bool, version: int) -> None:
    """A packer killed at any call leaves the old set or the new one, whether it is opened next or packed to."""
    new, states = NEW[longer], []
    for at in range(1, UNTIL):
        pack_old(tmp_path, SET, version)
        died = _killed(tmp_path, SET, new, at, overwrite=True)
        if is_read:
            states.append(packed(tmp_path, SET) == new)
            assert packed(tmp_path, SET) == (new if states[-1] else OLD)
        pack(tmp_path, SET, NEW[not longer])
        assert NEW[not longer] == packed(tmp_path, SET)
        check_nothing_left(tmp_path)
        if not died:
            break
    assert 10 < at < UNTIL
    assert states == sorted(states)  # never back


def test_a_first_set_killed_at_any_call(tmp_path: Path) -> None:
    """Without an old set there is none or the new one, never a part of it; what is there is not replaced unasked."""
    unfinished = 0
    for at in range(1, UNTIL):
        died = _killed(tmp_path, SET, OLD, at, overwrite=False)
        found = None
        if any(tmp_path.glob("out-*.tar")) and not (tmp_path / OBJECT).exists():
            with pytest.raises(StoreIncomplete, match="no set object: packing has not finished"):
                packed(tmp_path, SET)
            unfinished += 1
        elif visible(tmp_path):
            found = packed(tmp_path, SET)
            assert found == OLD
        if visible(tmp_path):
            with pytest.raises(StoreError, match="exists" if found else r"shards? of a pack that was interrupted"):
                pack(tmp_path, SET, NEW[True], overwrite=False)
        pack(tmp_path, SET, OLD, overwrite=bool(visible(tmp_path)))
        assert OLD == packed(tmp_path, SET)
        check_nothing_left(tmp_path)
        for name in visible(tmp_path):
            (tmp_path / name).unlink()
        if not died:
            break
    assert 10 < at < UNTIL
    assert unfinished > 3


def _no_locks(*_: int) -> None:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def test_without_locks_nobody_is_taken_for_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system without locks a set can be packed and replaced; another packer's hidden file is an error."""
    monkeypatch.setattr(fcntl, "flock", _no_locks)
    pack(tmp_path, SET, OLD)
    pack(tmp_path, SET, NEW[True])
    assert NEW[True] == packed(tmp_path, SET)
    check_nothing_left(tmp_path)
    (tmp_path / ".out.fastio-set.packing.lock").write_text("other\nprocess 1 of node7\n")
    with pytest.raises(StoreError, match=r"another process .*process 1 of node7.*no locks: remove .*packing\.lock"):
        pack(tmp_path, SET, OLD)
    assert packed(tmp_path, SET) == NEW[True]


def test_a_shard_of_a_set_is_not_replaced_alone(tmp_path: Path) -> None:
    """One file over one shard would leave neither: refused, unless it is a set of version 1 with one shard."""
    for version in (2, 1):
        pack_old(tmp_path, SET, version)
        shard = min(tmp_path.glob("out-*.tar"))
        with pytest.raises(StoreError, match=rf"{shard.name}: is shard 0 of a set.*%06d"):
            write(shard, NEW[False], overwrite=True)
        assert (hidden(tmp_path), packed(tmp_path, SET)) == ([], OLD)
    pack(tmp_path, SET, NEW[False])
    (alone,) = make_version_1(tmp_path / SET)
    write(alone, OLD, overwrite=True)
    assert packed(tmp_path, SET) == OLD


def test_a_shard_is_not_opened_alone(tmp_path: Path) -> None:
    """It would be a part of the samples; the message says what to open."""
    pack(tmp_path, SET, OLD)
    with pytest.raises(StoreIncomplete, match=r"out-000001\.tar: is one shard of a set: open .*fastio-set.*%06d\.tar"):
        open_store(tmp_path / "out-000001.tar")


def test_a_set_over_a_single_file(tmp_path: Path) -> None:
    """A file that has the name of a shard gives way to a set."""
    write(tmp_path / "out-000002.tar", OLD)
    pack(tmp_path, SET, NEW[True])
    assert NEW[True] == packed(tmp_path, SET)
    check_nothing_left(tmp_path)


def test_shards_that_another_set_lists_stay(tmp_path: Path) -> None:
    """A set that was made of shards of others does not lose them when these are replaced."""
    pack(tmp_path, SET, OLD)
    listed = [path.name for path in sorted(tmp_path.glob("out-*.tar"))]
    seal_set(str(tmp_path / "both.fastio-set"), listed, FORMATS["tar"], metadata=b"{}")
    pack(tmp_path, SET, NEW[True])
    assert NEW[True] == packed(tmp_path, SET)
    assert OLD == packed(tmp_path, "both.fastio-set")


@pytest.mark.parametrize("overwrite", [True, False])
def test_packers_at_once(tmp_path: Path, overwrite: bool) -> None:
    """Of packers at work at once those that find another are refused; the set is whole and of one that succeeded."""
    sets = [{f"{who}.{i}": bytes([who]) for i in range(1 + who)} for who in range(4)]
    for _ in range(5):
        children = [_started(tmp_path, each, overwrite=overwrite) for each in sets]
        codes = [status_of(child) for child in children]
        assert set(codes) <= {0, REFUSED}
        assert 0 in codes
        found = packed(tmp_path, SET)
        assert found in [each for each, code in zip(sets, codes, strict=True) if code == 0]
        check_nothing_left(tmp_path)
        if not overwrite:
            assert 1 == codes.count(0)
            for name in visible(tmp_path):
                (tmp_path / name).unlink()


def _started(folder: Path, samples: dict[str, bytes], *, overwrite: bool) -> int:
    """A process that packs; its exit status is REFUSED if it met another one, or a set."""
    refusals = (": exists; choose", "another process is packing this set", "pack that was interrupted")

    def work() -> None:
        try:
            pack(folder, SET, samples, overwrite=overwrite)
        except StoreError as exc:
            if not any(words in str(exc) for words in refusals):
                raise
            os._exit(REFUSED)

    return fork(work)


def test_readers_of_a_set_that_is_replaced(tmp_path: Path) -> None:
    """Whoever opens a set while it is replaced again and again gets one of the two, never an error."""
    pack(tmp_path, SET, OLD)

    def replace() -> None:
        for round_ in range(20):
            pack(tmp_path, SET, OLD if round_ % 2 else NEW[True])

    child = fork(replace)
    opened = 0
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        with open_store(tmp_path / SET) as store:
            assert read_all(store) in (OLD, NEW[True])
        opened += 1
    assert opened > 0


def test_a_store_that_is_open_while_its_set_is_replaced(tmp_path: Path) -> None:
    """It goes on reading the old samples; its copy in another process is refused."""
    pack(tmp_path, SET, OLD)
    with open_store(tmp_path / SET) as store:
        pack(tmp_path, SET, NEW[True])
        assert OLD == read_all(store)


def test_a_shard_that_somebody_removed_meanwhile(tmp_path: Path) -> None:
    """A shard that is gone before the set is sealed is an error, and the old set stays."""
    pack(tmp_path, SET, OLD)
    writer = create_store(tmp_path / SET, LABELLED, overwrite=True, shard_bytes=1)
    writer.append(make_batch(["a", "b"], [b"1", b"2"]))
    (tmp_path / "out-000003.tar").unlink()
    with pytest.raises(StoreError, match=r"out-000003\.tar"):
        writer.close()
    assert packed(tmp_path, SET) == OLD
    check_nothing_left(tmp_path)


def _replaced(tmp_path: Path, change: Callable[[Path], object]) -> str:
    """What opening says of a set whose second shard was changed."""
    for path in tmp_path.iterdir():
        path.unlink()
    pack(tmp_path, SET, OLD)
    change(tmp_path / "out-000001.tar")
    with pytest.raises(StoreIncomplete) as caught:
        open_store(tmp_path / SET)
    return str(caught.value)


def test_shards_that_are_not_as_listed(tmp_path: Path) -> None:
    """The message names the shard, what is expected and what is there, and how to mend it."""
    missing = _replaced(tmp_path, lambda path: path.unlink())
    assert "out-000001.tar: is missing; the set " in missing
    assert "lists it with 1 sample" in missing
    shorter = _replaced(tmp_path, lambda path: path.write_bytes(path.read_bytes()[:-512]))
    assert "out-000001.tar: expected 12800 bytes" in shorter
    assert "got 12288" in shorter
    other = _replaced(tmp_path, lambda path: path.write_bytes((path.parent / "out-000000.tar").read_bytes()))
    assert "out-000001.tar: is another shard than the set" in other
    assert all("fastio repair" in message for message in (missing, shorter, other))


def test_keys_that_come_twice(tmp_path: Path) -> None:
    """Sealing names the key and both shards, whether keys ascend or not; nothing is sealed."""
    for number, keys in enumerate((["b", "c"], ["a", "z"], ["y", "c"])):
        with create_shard(tmp_path / f"out-{number:06d}.tar", LABELLED, plan=7, number=number) as writer:
            writer.append(make_batch(keys, [b"1", b"2"]))
    names = visible(tmp_path)
    with pytest.raises(SchemaError, match=r"key 'c' is in .*out-000000\.tar and in .*out-000002\.tar"):
        seal_set(str(tmp_path / OBJECT), names, FORMATS["tar"], metadata=b"{}")
    assert names == visible(tmp_path)
    assert [] == hidden(tmp_path)
    assert 4 == len(seal_set(str(tmp_path / OBJECT), names[:2], FORMATS["tar"], metadata=b"{}"))


def test_two_sealers(tmp_path: Path) -> None:
    """The second that writes the same is content; one that writes something else is refused by name."""
    pack(tmp_path, SET, OLD)
    names = sorted(path.name for path in tmp_path.glob("out-*.tar"))
    path, form = str(tmp_path / "c.fastio-set"), FORMATS["tar"]
    seal_set(path, names, form, metadata=b"{}")
    before = Path(path).stat().st_ino
    seal_set(path, names, form, metadata=b"{}")
    assert before == Path(path).stat().st_ino
    with pytest.raises(StoreError, match=r"c\.fastio-set: exists"):
        seal_set(path, names[:1], form, metadata=b"{}")
    seal_set(path, names[:1], form, metadata=b"{}", generation=2, replace=True)
    with pytest.raises(StoreError, match=r"expected generation 1 of this set, got 2: another process has replaced it"):
        seal_set(path, names[:2], form, metadata=b"{}", generation=2, replace=True)
    assert 1 == len(open_store(path))
    assert [] == hidden(tmp_path)


def test_names_of_generations(tmp_path: Path) -> None:
    """A new set never takes a name that the old one lists; the set object counts generations."""
    for generation in (1, 2, 3):
        pack(tmp_path, SET, OLD)
        known = current_set(str(tmp_path / OBJECT))
        assert known is not None
        assert (generation, generation * 3 - 3) == (known.generation, int(known.members[0].name[4:10]))


@pytest.mark.parametrize("live", [False, True])
def test_a_journal_of_an_older_fastio(tmp_path: Path, live: bool) -> None:
    """It is an error by name that says what to do, for readers and packers."""
    make_old_journal(tmp_path, live=live)
    message = r"out-000001\.tar.*give them their names|Give them their" if live else "remove this file"
    for work in (lambda: open_store(tmp_path / SET), lambda: pack(tmp_path, SET, OLD)):
        with pytest.raises(StoreError, match=rf"\.out-#\.tar\.publishing: an older fastio.*({message})"):
            work()


def make_old_journal(folder: Path, *, live: bool) -> None:
    """A set of version 1 whose journal is there, with a shard that has no name yet if it is live."""
    import json
    import zlib

    pack(folder, SET, OLD)
    shards = make_version_1(folder / SET)
    record = {"fastio": 1, "token": "1-0", "replace": True, "shards": [path.name for path in shards], "remove": []}
    line = json.dumps(record).encode() + b"\n"
    (folder / ".out-#.tar.publishing").write_bytes(line + b"%08x\n" % zlib.crc32(line))
    if live:
        shards[-1].rename(folder / f".{shards[-1].name}.partial-1-0")


def test_killed_at_random(tmp_path: Path) -> None:
    """Packers killed at random moments, twenty in a row, overwriting or not: the set is one that was packed whole."""
    rng = random.Random(5)
    whole: dict[str, bytes] | None = None
    for round_ in range(20):
        new = {f"{round_}.{i}": rng.randbytes(rng.randrange(3000)) for i in range(rng.randrange(1, 9))}
        died = _killed(tmp_path, SET, new, rng.randrange(1, 60), overwrite=True)
        try:
            found = packed(tmp_path, SET)
        except (StoreIncomplete, StoreNotFound):
            found = None
        assert found in ([whole, new] if died else [new])
        whole = found
    assert whole is not None
