"""Sets of shards that replace others: at every instant the old one or the new one, and messages that are true."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import tarfile
from pathlib import Path

import pytest

from fastio.errors import StoreError, StoreNotFound
from fastio.store import create_store, open_store
from fastio.store.journal import Record, claim, journal_path
from fastio.store.verify import verify_store
from tests.store.build import LABELLED, hidden, in_fork, make_batch, read_all, visible, write
from tests.store.faults import fail, fault, interrupt, kill

SHARD_BYTES = 2_000
SET, FILE = "out-%06d.tar", "out.tar"
OLD = {f"old{i}": bytes([i]) * 9 for i in range(3)}  # a shard each
NEW = {False: {"new": b"1"}, True: {f"new{i}": bytes([i]) * 8 for i in range(5)}}  # in fewer shards, in more
CHANGES = ("pwrite", "fsync", "ftruncate", "link", "rename", "unlink")  # a process killed before others is no news
UNTIL = 400  # calls: more than any of these packs makes


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of packs need not wait for the disk; that they would is tested elsewhere."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


def pack(folder: Path, name: str, samples: dict[str, bytes], *, overwrite: bool = True) -> None:
    """A store of these samples."""
    write(folder / name, samples, overwrite=overwrite, shard_bytes=SHARD_BYTES if "%" in name else None)


def packed(folder: Path, name: str) -> dict[str, bytes] | None:
    """The samples of the store as they are read, whose bytes are right; None where there is no store."""
    if not (visible(folder) or hidden(folder)):
        return None
    with open_store(folder / name) as store:
        assert verify_store(store) == []
        return read_all(store)


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
        assert is_new == ("untouched" not in text), text
    else:
        assert is_new == ("the new store is complete" in text), text


@pytest.mark.parametrize(("lasting", "longer"), [(False, True), (True, False)])
@pytest.mark.parametrize("call", ["rename", "fsync", "unlink", "close", "ftruncate", "open", "write", "fstat"])
def test_an_error_at_any_call(tmp_path: Path, call: str, lasting: bool, longer: bool) -> None:
    """Whatever fails while a set is overwritten, the old one or the new one opens, and the error says which."""
    new = NEW[longer]
    for at in range(1, UNTIL):
        pack(tmp_path, SET, OLD)
        with fault(at, fail, calls=(call,), lasting=lasting) as count:
            error = attempt(tmp_path, SET, new)
        found = packed(tmp_path, SET)
        assert found in (OLD, new)
        assert error is not None or found == new
        if error is not None:
            check_told(error, found == new)
            assert found == new or lasting or call == "unlink" or hidden(tmp_path) == []
            pack(tmp_path, SET, new)
        assert (hidden(tmp_path), packed(tmp_path, SET)) == ([], new)
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


@pytest.mark.parametrize("name", [SET, FILE])
def test_an_interrupt_at_any_call(tmp_path: Path, name: str) -> None:
    """Ctrl-C at any time leaves the old store or the new one, and the interrupt says which."""
    new = NEW[True]
    for at in range(1, UNTIL):
        pack(tmp_path, name, OLD)
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


@pytest.mark.parametrize(("longer", "is_read"), [(False, True), (True, True), (False, False)])
def test_killed_at_any_call(tmp_path: Path, longer: bool, is_read: bool) -> None:
    """A packer killed at any call leaves the old set or the new one, whether it is opened next or packed to."""
    new, states = NEW[longer], []
    for at in range(1, UNTIL):
        pack(tmp_path, SET, OLD)
        died = _killed(tmp_path, SET, new, at, overwrite=True)
        if is_read:
            states.append(packed(tmp_path, SET) == new)
            assert packed(tmp_path, SET) == (new if states[-1] else OLD)
            assert len(visible(tmp_path)) == len(new if states[-1] else OLD)  # what plain tar readers see
        pack(tmp_path, SET, NEW[not longer])
        assert (hidden(tmp_path), packed(tmp_path, SET)) == ([], NEW[not longer])
        if not died:
            break
    assert 10 < at < UNTIL
    assert states == sorted(states)  # never back


def test_a_first_set_killed_at_any_call(tmp_path: Path) -> None:
    """Without an old set there is none or the new one, never a part of it; what is there is not replaced unasked."""
    for at in range(1, UNTIL):
        died = _killed(tmp_path, SET, OLD, at, overwrite=False)
        try:
            found = packed(tmp_path, SET)
        except StoreNotFound:
            pack(tmp_path, SET, OLD, overwrite=False)
        else:
            if found is None:
                pack(tmp_path, SET, OLD, overwrite=False)
            with pytest.raises(StoreError, match="exists"):
                pack(tmp_path, SET, NEW[True], overwrite=False)
        assert (hidden(tmp_path), packed(tmp_path, SET)) == ([], OLD)
        for name in visible(tmp_path):
            (tmp_path / name).unlink()
        if not died:
            break
    assert 10 < at < UNTIL


def _half_named(folder: Path, monkeypatch: pytest.MonkeyPatch, new: dict[str, bytes]) -> None:
    """The set OLD and a new one that is complete, of which one shard has its name, after which nobody has locks."""
    pack(folder, SET, OLD)
    assert in_fork(lambda: _die_between_names(folder, new)) == -signal.SIGKILL
    monkeypatch.setattr(fcntl, "flock", _no_locks)


def _die_between_names(folder: Path, new: dict[str, bytes]) -> None:
    with fault(2, kill, calls=("rename",)):
        pack(folder, SET, new)


def _no_locks(*_: int) -> None:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


@pytest.mark.parametrize(
    "form", ["data/out-%06d.tar", "data/out-*.tar", "data/out-{000000..000004}.tar", "data", "d*a/out-*.tar"]
)
def test_a_reader_follows_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """A set whose shards cannot be given their names is read whole, whatever form names it; nothing is changed."""
    new, folder = NEW[True], tmp_path / "data"
    folder.mkdir()
    _half_named(folder, monkeypatch, new)
    before = visible(folder), hidden(folder)
    with open_store(tmp_path / form) as store:
        assert new == read_all(store)
        assert verify_store(store) == []
    assert before == (visible(folder), hidden(folder))
    assert {"old", "new"} == {_first_sample(folder / name)[:3] for name in visible(folder)}  # the reader is spared that


def _first_sample(shard: Path) -> str:
    with tarfile.open(shard) as tar:
        return tar.getnames()[1]


def test_a_set_of_one_shard_is_followed_by_its_file_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard that is a set alone may be opened by its own name, also before it has it."""
    pack(tmp_path, SET, OLD)
    assert _killed(tmp_path, SET, NEW[False], 1, overwrite=True)
    assert in_fork(lambda: _die_at_the_last_name(tmp_path)) == -signal.SIGKILL
    monkeypatch.setattr(fcntl, "flock", _no_locks)
    with open_store(tmp_path / "out-000000.tar") as store:
        assert read_all(store) == NEW[False]
    assert len(hidden(tmp_path)) == 2


def _die_at_the_last_name(folder: Path) -> None:
    with fault(1, kill, calls=("rename",)):
        pack(folder, SET, NEW[False])


def test_without_locks_nobody_is_taken_for_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system without locks a set can be packed and replaced; another packer's journal is an error."""
    monkeypatch.setattr(fcntl, "flock", _no_locks)
    pack(tmp_path, SET, OLD)
    pack(tmp_path, SET, NEW[True])
    assert (hidden(tmp_path), packed(tmp_path, SET)) == ([], NEW[True])
    (tmp_path / ".out-#.tar.publishing").touch()
    with pytest.raises(StoreError, match=r"\.out-#\.tar\.publishing: another pack .* no locks .* remove the file"):
        pack(tmp_path, SET, OLD)
    assert packed(tmp_path, SET) == NEW[True]


def test_a_newer_journal_is_refused(tmp_path: Path) -> None:
    """What a newer fastio has begun is not guessed at."""
    pack(tmp_path, SET, OLD)
    record = Record(token="1-0", shards=["out-000000.tar"], remove=[], replace=True)
    journal = tmp_path / ".out-#.tar.publishing"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastio.store.journal._VERSION", 2)
        journal.write_bytes(record.to_bytes())
    with pytest.raises(StoreError, match=r"newer fastio.*upgrade"):
        open_store(tmp_path / SET)


@pytest.mark.parametrize("name", ["../out-000000.tar", "/out-000000.tar", "..", ""])
def test_a_journal_of_other_folders_is_refused(tmp_path: Path, name: str) -> None:
    """A journal that leads out of its folder is not followed."""
    (tmp_path / "data").mkdir()
    pack(tmp_path / "data", SET, OLD)
    record = Record(token="1-0", shards=["out-000000.tar"], remove=[name], replace=True)
    (tmp_path / "data" / ".out-#.tar.publishing").write_bytes(record.to_bytes())
    with pytest.raises(StoreError, match="names files in other folders"):
        open_store(tmp_path / "data" / SET)


@pytest.mark.parametrize("cut", [0, 10, -1, -9])
def test_a_torn_journal_commits_nothing(tmp_path: Path, cut: int) -> None:
    """A record that is not whole changes nothing, and goes."""
    pack(tmp_path, SET, OLD)
    (tmp_path / ".out-000000.tar.partial-1-0").touch()
    record = Record(token="1-0", shards=["out-000000.tar"], remove=["out-000001.tar"], replace=True)
    (tmp_path / ".out-#.tar.publishing").write_bytes(record.to_bytes()[:cut])
    assert packed(tmp_path, SET) == OLD
    pack(tmp_path, SET, NEW[True])
    assert (hidden(tmp_path), packed(tmp_path, SET)) == ([], NEW[True])


def test_a_record_without_its_shards_removes_nothing(tmp_path: Path) -> None:
    """A record that came to light after its hidden shards were removed leaves the old set alone."""
    pack(tmp_path, SET, OLD)
    record = Record(token="1-0", shards=["out-000000.tar"], remove=["out-000001.tar", "out-000002.tar"], replace=True)
    (tmp_path / ".out-#.tar.publishing").write_bytes(record.to_bytes())
    assert packed(tmp_path, SET) == OLD
    assert hidden(tmp_path) == []


def test_a_shard_that_is_gone_after_a_crash(tmp_path: Path) -> None:
    """A complete set that lost a hidden shard before it had its names is an error that names the shard."""
    assert in_fork(lambda: _die_between_names(tmp_path, NEW[True])) == -signal.SIGKILL
    (gone,) = tmp_path.glob(".out-000003.tar.partial-*")
    gone.unlink()
    with pytest.raises(
        StoreError, match=r"\.out-000003\.tar\.partial-.*: a shard .* is gone: remove .*publishing and pack again"
    ):
        pack(tmp_path, SET, OLD)
    (tmp_path / ".out-#.tar.publishing").unlink()
    pack(tmp_path, SET, OLD)
    assert (packed(tmp_path, SET), hidden(tmp_path)) == (OLD, [])


def test_a_name_that_is_taken_after_the_record(tmp_path: Path) -> None:
    """Without leave to overwrite, what appears under a name meanwhile is kept; the error names it."""

    def appear() -> None:
        (tmp_path / "out-000001.tar").write_bytes(b"precious")

    with (
        fault(1, appear, calls=("link",)),
        pytest.raises(StoreError, match=r"new set is complete, but .*File exists.*out-000001\.tar"),
    ):
        pack(tmp_path, SET, OLD, overwrite=False)
    assert (tmp_path / "out-000001.tar").read_bytes() == b"precious"
    (tmp_path / "out-000001.tar").unlink()
    assert (packed(tmp_path, SET), hidden(tmp_path)) == (OLD, [])


def test_a_shard_of_a_set_is_not_replaced_alone(tmp_path: Path) -> None:
    """One file over one shard would leave neither: refused, unless the set has one shard."""
    pack(tmp_path, SET, OLD)
    with pytest.raises(StoreError, match=r"out-000001\.tar: is shard 1 of a set of 3.*%06d"):
        write(tmp_path / "out-000001.tar", NEW[False], overwrite=True)
    assert (hidden(tmp_path), packed(tmp_path, SET)) == ([], OLD)
    pack(tmp_path, SET, NEW[False])
    write(tmp_path / "out-000000.tar", OLD, overwrite=True)
    assert packed(tmp_path, SET) == OLD


def test_a_set_over_a_single_file(tmp_path: Path) -> None:
    """A file that has the name of a shard gives way to a set."""
    write(tmp_path / "out-000002.tar", OLD)
    pack(tmp_path, SET, NEW[True])
    assert (len(visible(tmp_path)), packed(tmp_path, SET)) == (5, NEW[True])


@pytest.mark.parametrize("overwrite", [True, False])
def test_packers_at_once(tmp_path: Path, overwrite: bool) -> None:
    """Of packers at work at once the last stays, whole; those that may not overwrite leave the first."""
    sets = [{f"{who}.{i}": bytes([who]) for i in range(1 + who)} for who in range(4)]
    for _ in range(5):
        children = [_started(tmp_path, each, overwrite=overwrite) for each in sets]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        assert codes.count(0) == (len(sets) if overwrite else 1)
        found = packed(tmp_path, SET)
        assert found in sets
        assert (len(found), []) == (len(visible(tmp_path)), hidden(tmp_path))
        if not overwrite:
            assert sets.index(found) == codes.index(0)
            for name in visible(tmp_path):
                (tmp_path / name).unlink()


def _started(folder: Path, samples: dict[str, bytes], *, overwrite: bool) -> int:
    """A process that packs; its exit code tells whether it could."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            pack(folder, SET, samples, overwrite=overwrite)
            code = 0
        except StoreError as exc:
            code = 1 if ": exists; choose" in str(exc) else 2
        finally:
            os._exit(code)
    return child


def test_a_packer_waits_for_its_turn(tmp_path: Path) -> None:
    """While another process holds the journal nothing is published; then it is."""
    pack(tmp_path, SET, OLD)
    ready, go = os.pipe(), os.pipe()

    def hold() -> None:
        journal = claim(journal_path(str(tmp_path / SET)))
        os.write(ready[1], b"1")
        os.read(go[0], 1)
        assert packed(tmp_path, SET) == OLD
        assert journal is not None
        journal.close()

    holder = os.fork()
    if holder == 0:
        code = 1
        try:
            hold()
            code = 0
        finally:
            os._exit(code)
    os.read(ready[0], 1)
    packer = _started(tmp_path, NEW[True], overwrite=True)
    assert packed(tmp_path, SET) == OLD
    os.write(go[1], b"1")
    assert [0, 0] == [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in (holder, packer)]
    assert (packed(tmp_path, SET), hidden(tmp_path)) == (NEW[True], [])
    for end in (*ready, *go):
        os.close(end)


def test_readers_of_a_set_that_is_replaced(tmp_path: Path) -> None:
    """Whoever opens a set while it is replaced again and again gets one of the two, never an error."""
    pack(tmp_path, SET, OLD)

    def replace() -> None:
        for round_ in range(40):
            pack(tmp_path, SET, OLD if round_ % 2 else NEW[True])

    child = os.fork()
    if child == 0:
        try:
            replace()
        finally:
            os._exit(0)
    opened = 0
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        with open_store(tmp_path / SET) as store:
            assert read_all(store) in (OLD, NEW[True])
        opened += 1
    assert opened > 0


@pytest.mark.parametrize("index", [0, 1])
def test_a_hidden_shard_that_somebody_removed(tmp_path: Path, index: int) -> None:
    """A shard that is gone before the set has its names is an error, and the old set stays."""
    pack(tmp_path, SET, OLD)
    writer = create_store(tmp_path / SET, LABELLED, overwrite=True, shard_bytes=1)
    writer.append(make_batch(["a", "b"], [b"1", b"2"]))
    (tmp_path / hidden(tmp_path)[index]).unlink()
    with pytest.raises(StoreError, match=r"No such file.*untouched"):
        writer.close()
    assert packed(tmp_path, SET) == OLD
    assert hidden(tmp_path) == []
