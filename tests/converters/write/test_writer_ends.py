"""How a fastio.Writer ends: a whole store, or nothing that is half-written, whatever the process meets."""

from __future__ import annotations

import os
import pickle
import threading

import pytest

import fastio
from fastio.converters.write import encoder
from fastio.errors import StoreError
from fastio.store import open_store
from tests.converters.write.writing import values, visible, written
from tests.forking import in_fork
from tests.store.faults import fault, kill


def broken_off(path):
    """A block in which a thousand samples are written, and then an exception comes."""
    with fastio.Writer(path, {"a": "text"}, overwrite=True) as writer:
        for i in range(1000):
            writer.write({"a": str(i)})
        raise ZeroDivisionError


def test_an_exception_leaves_nothing(out):
    """The old store stays, and no new one appears."""
    with pytest.raises(ZeroDivisionError):
        broken_off(out)
    assert [] == visible(out.parent)
    written(out, [{"a": "old"}], {"a": "text"})
    with pytest.raises(StoreError, match="exists"):
        fastio.Writer(out, {"a": "text"})
    with pytest.raises(ZeroDivisionError):
        broken_off(out)
    with open_store(out) as store:
        assert [b"old"] == values(store, "a")


def test_closed_and_aborted(out):
    """close() twice is one; abort() after it does nothing; a closed or aborted writer takes no more."""
    writer = fastio.Writer(out, {"a": "text"})
    writer.write({"a": "x"})
    with pytest.raises(StoreError, match="is not complete"):
        _ = writer.report
    writer.close()
    writer.close()
    writer.abort()
    with pytest.raises(StoreError, match="the writer is closed: make another"):
        writer.write({"a": "x"})
    writer = fastio.Writer(out, {"a": "text"}, overwrite=True)
    writer.write({"a": "y"})
    writer.abort()
    with pytest.raises(StoreError, match="the writer is aborted: make another"):
        writer.close()
    with open_store(out) as store:
        assert [b"x"] == values(store, "a")


@pytest.mark.parametrize("fields", [None, {"a": "text"}])
def test_nothing_written_is_no_store(out, fields):
    """Without a sample there is no store, and the error says so; with wrong ones alone it names the first."""
    with pytest.raises(StoreError, match="nothing was kept, no sample was written"), fastio.Writer(out, fields):
        pass
    with pytest.raises(StoreError, match="nothing was kept, all 2 samples have problems; the first: '00000000' has a"):
        written(out, [{"a": 3}, {"a": None}], {"a": "text"}, on_error="skip")
    assert [] == visible(out.parent)


def test_a_dropped_writer_is_told(tmp_path):
    """A writer that nobody closes warns, and leaves nothing."""
    writer = fastio.Writer(tmp_path / "out.lmdb", {"a": "text"})
    writer.write({"a": "x"})
    with pytest.warns(RuntimeWarning, match="was dropped without close"):
        del writer

    assert [] == visible(tmp_path)


def test_other_processes_are_refused(tmp_path):
    """A pickled or forked writer says what to do instead, and a child that fails removes nothing."""
    with fastio.Writer(tmp_path / "out.lmdb", {"a": "text"}) as writer:
        writer.write({"a": "x"})
        with pytest.raises(TypeError, match="belongs to one process and cannot be pickled: write in one process"):
            pickle.dumps(writer)

        def child():
            with pytest.raises(StoreError, match=f"belongs to process {os.getppid()}, not to a child of it"):
                writer.write({"a": "child"})
            with pytest.raises(ZeroDivisionError), writer:
                raise ZeroDivisionError

        assert 0 == in_fork(child)
        writer.write({"a": "y"})
    with open_store(tmp_path / "out.lmdb") as store:
        assert [b"x", b"y"] == values(store, "a")


def test_threads_may_share_a_writer(tmp_path):
    """Every sample of every thread is there once, and whole."""
    with fastio.Writer(tmp_path / "out.lmdb", {"a": "text", "b": "int"}) as writer:

        def work(start):
            for i in range(start, start + 500):
                writer.write({"a": str(i), "b": i})

        threads = [threading.Thread(target=work, args=(start,)) for start in (0, 500, 1000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with open_store(tmp_path / "out.lmdb") as store:
        assert list(range(1500)) == sorted(store.column("b").tolist())
        assert [str(i).encode() for i in store.column("b").tolist()] == values(store, "a")


def test_a_full_disk(out, monkeypatch):
    """The error arrives, the writer is given up, nothing stays."""
    monkeypatch.setattr(encoder, "PIECE_SAMPLES", 2)

    def full():
        raise OSError(28, "No space left on device")

    messages = []
    for at in range(1, 1000):
        try:
            with (
                fastio.Writer(out, {"a": "bytes", "label": "int"}) as writer,
                fault(at, full, calls=("write", "pwrite"), lasting=True) as count,
            ):
                for i in range(10):
                    writer.write({"a": bytes(100_000), "label": i})
                writer.close()
        except StoreError as exc:
            messages.append(str(exc))
            assert [] == visible(out.parent)
        if count.made < at:
            break
    with open_store(out) as store:
        assert list(range(10)) == store.column("label").tolist()
    assert len(messages) > 3
    assert all("No space left on device" in message for message in messages)


def test_a_killed_writer_leaves_nothing_under_the_name(tmp_path):
    """Killed anywhere before close returns, there is no store or a complete one; the next writer cleans up."""
    path, outcomes = tmp_path / "out.lmdb", set()

    def die(at):
        with fault(at, kill), fastio.Writer(path, {"a": "bytes"}, overwrite=True) as writer:
            for i in range(40):
                writer.write({"a": bytes([i]) * 300_000})

    for at in range(1, 40, 2):
        in_fork(lambda at=at: die(at))
        if path.exists():
            with open_store(path) as store:
                outcomes.add(len(store))
            path.unlink()
        else:
            outcomes.add(0)
    assert {0, 40} >= outcomes >= {0}
    written(path, [{"a": b"x"}], {"a": "bytes"})
    assert ["out.lmdb"] == visible(tmp_path)


def test_a_writer_left_open_at_the_end_of_the_program(out, warm_python):
    """One line says so, whoever still holds the writer, and nothing stays."""
    program = "import builtins, sys, fastio; builtins.held = fastio.Writer(sys.argv[1], {'a': 'text'})"
    done = warm_python.run(program, str(out), cwd=out.parent)

    assert 0 == done.returncode
    assert [f"{out}: a Writer was dropped without close(): nothing was kept"] == [
        line.split("RuntimeWarning: ")[-1] for line in done.stderr.splitlines()
    ]
    assert [] == visible(out.parent)
