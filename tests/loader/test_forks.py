"""PerProcess: what a forked child inherits without its threads is made anew there, and left alone otherwise."""

from __future__ import annotations

import gc
import weakref

import pytest

from fastio.loader.forks import PerProcess


class Threads:
    """Something to be made."""


def fork(monkeypatch: pytest.MonkeyPatch, pid: int) -> None:
    """Let this process believe that it is another one."""
    monkeypatch.setattr(PerProcess, "_process", staticmethod(lambda: pid))


def test_one_for_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The value stays the same in its process; a child makes one of its own, once."""
    held = PerProcess(Threads)
    parents = held.here()
    assert held.here() is parents
    assert held.own is parents

    fork(monkeypatch, -1)
    assert held.own is None
    childs = held.here()
    assert childs is not parents
    assert held.here() is held.own is childs


def test_a_childs_that_failed_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where making it fails in a child, the parent's is not taken for the child's."""
    made = iter([Threads(), None, Threads()])

    def make() -> Threads:
        value = next(made)
        if value is None:
            raise OSError("no more threads")
        return value

    held = PerProcess(make)
    fork(monkeypatch, -1)
    with pytest.raises(OSError, match="no more threads"):
        held.here()
    assert held.own is None
    assert isinstance(held.here(), Threads)


def test_it_is_there_at_interpreter_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is deleted last still asks whose it is, though Python has emptied the module."""
    held = PerProcess(Threads)
    monkeypatch.setattr("fastio.loader.forks.os", None)

    assert held.own is held.here()


def test_it_dies_with_its_owner() -> None:
    """Nothing waits for the garbage collector: batches' memory is recycled by reference counts."""
    gc.disable()
    try:
        held = PerProcess(Threads)
        alive = weakref.ref(held.here())
        del held
        assert alive() is None
    finally:
        gc.enable()
