"""Keys that count up are kept as a rule, which gives the same keys."""

from __future__ import annotations

import json
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastio.errors import StoreCorrupt
from fastio.store import open_store
from fastio.store.beside.match import match_keys
from fastio.store.index import arrays
from fastio.store.index.numbered_keys import KeyRun, NumberedKeys, are_apart, encoded_runs, runs_of
from tests.store.build import write

Run = tuple[int, bytes, int, int, bytes]
PARTS = st.binary(max_size=4).filter(lambda part: not set(part) & set(b"\x000123456789"))


def keys_of(run: Run) -> list[bytes]:
    """The keys of a run, one by one."""
    count, prefix, first, width, suffix = run
    return [prefix + str(first + i).zfill(width).encode() + suffix for i in range(count)]


RUNS = st.lists(
    st.tuples(st.integers(1, 300), PARTS, st.integers(0, 2000) | st.integers(0, 10**15), st.integers(1, 16), PARTS),
    min_size=1,
    max_size=4,
)


@given(RUNS)
@example([(3, b"train/", 99, 3, b""), (5, b"1", 998, 1, b"\xff.txt")])
def test_keys_of_runs(runs: list[Run]) -> None:
    """Each key, and any range of keys, is what it was, however many pieces they came in."""
    keys = [key for run in runs for key in keys_of(run)]
    pieces = [b"\0".join(keys[at : at + 97]) for at in range(0, len(keys), 97)]
    found = runs_of(pieces)
    assert found is not None
    assert len(found) <= len(keys)
    read = NumberedKeys(encoded_runs(found), len(keys), path="p")
    assert read.joined(0, len(keys)) == b"\0".join(keys)
    for index in {0, len(keys) // 2, len(keys) - 1}:
        assert read[index] == keys[index]
        assert read.joined(index, len(keys)) == b"\0".join(keys[index:])
        assert read.joined(len(keys) // 3, index) == b"\0".join(keys[len(keys) // 3 : index])
        assert read.part(index // 3, index).array.tobytes() == b"\0".join(keys[index // 3 : index])
    assert read.nbytes == len(read.array)


@given(RUNS, st.integers(1, 97), st.data())
def test_runs_of_runs(runs: list[Run], piece: int, data: st.DataObject) -> None:
    """Keys that come partly as text and partly as runs are the same keys; what goes on is one run."""
    keys = [key for run in runs for key in keys_of(run)]
    pieces: list[bytes | KeyRun] = []
    for run in runs:
        at = 0
        while at < run[0]:
            stop = min(at + data.draw(st.integers(1, 200)), run[0])
            as_run = KeyRun(*run).part(at, stop)
            pieces.append(as_run if data.draw(st.booleans()) else b"\0".join(keys_of(run)[at:stop]))
            at = stop
    found = runs_of(pieces)
    assert found is not None
    assert [key for run in found for key in keys_of(astuple(run))] == keys
    cut = [KeyRun(*run).part(at, min(at + piece, run[0])) for run in runs for at in range(0, run[0], piece)]
    again = runs_of(cut)
    assert again is not None
    assert len(again) <= len(runs)
    assert [key for run in again for key in keys_of(astuple(run))] == keys


# Few bytes and small numbers, so that keys of several runs meet: prefixes that end in digits, widths that overflow.
CLOSE = st.tuples(
    st.integers(1, 30),
    st.sampled_from([b"", b"0", b"1", b"10", b"a", b"a1"]),
    st.integers(0, 12) | st.integers(85, 120),
    st.integers(1, 4),
    st.sampled_from([b"", b"0", b"1", b"10", b"x", b"y", b"1x"]),
)


@given(st.lists(CLOSE, max_size=4))
@example([(3, b"a", 9, 1, b""), (1, b"a1", 1, 1, b"")])  # a11 is in both
@example([(1, b"", 1, 1, b"0"), (1, b"", 10, 1, b"")])
def test_runs_apart_have_no_key_in_common(runs: list[Run]) -> None:
    """What arithmetic says is what a set of all keys says; where it is silent, keys may come once or twice."""
    keys = [key for run in runs for key in keys_of(run)]
    if are_apart([KeyRun(*run) for run in runs]):
        assert len(set(keys)) == len(keys)
    elif len({(run[1], run[4]) for run in runs}) == 1 and len({run[3] for run in runs}) == 1:
        assert len(set(keys)) < len(keys)


def test_runs_that_lie_apart() -> None:
    """Parts of one count, whatever their order; other folders; other ends; numbers that gain a digit."""
    for runs in (
        [(10**9, b"", 10**9, 10, b""), (10**9, b"", 0, 10, b"")],
        [(1000, b"a/", 0, 4, b""), (1000, b"b/", 500, 4, b"")],
        [(1000, b"", 0, 4, b".jpg"), (1000, b"", 0, 4, b".png")],
        [(1000, b"x", 0, 1, b""), (9000, b"x", 1000, 1, b"")],
        [],
    ):
        assert are_apart([KeyRun(*run) for run in runs])
    assert not are_apart([KeyRun(1001, b"x", 0, 1, b""), KeyRun(9000, b"x", 1000, 1, b"")])


def test_one_rule_for_lines() -> None:
    """Numbered lines are one run, whether their numbers are padded or not."""
    for run in [(70_000, b"a/", 0, 5, b""), (70_000, b"", 1, 1, b".txt"), (1000, b"x", 9_990, 4, b"")]:
        keys = keys_of(run)
        assert runs_of([b"\0".join(keys[:500]), b"\0".join(keys[500:])]) == [KeyRun(*run)]


def test_keys_that_follow_no_rule() -> None:
    """Keys without numbers, too many short runs, and numbers too long for int64 are kept as they are."""
    assert runs_of([b"a\0b"]) is None
    assert runs_of([]) is None
    assert runs_of([b"1" * 19]) is None
    rng = np.random.default_rng(0)
    assert runs_of([b"\0".join(b"%d" % number for number in rng.permutation(1000))]) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "[[1]]",
        '[[2,"a",0,1,""]]',
        '[[1,"a",0,0,""]]',
        '[[1,"a",-1,1,""]]',
        '[["1","a",0,1,""]]',
        "[[1,2,0,1,3]]",
    ],
)
def test_rules_that_lie(text: str) -> None:
    """What is no rule, or gives another number of keys than there are samples, is refused."""
    with pytest.raises(StoreCorrupt, match=r"p: index array 'index\.key_runs'"):
        NumberedKeys(np.frombuffer(text.encode(), np.uint8), 1, path="p")


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every index is large."""
    monkeypatch.setattr(arrays, "LARGE_FROM", 0)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("name", ["out.h5", "out.lmdb", "out-%06d.tar"])
def test_stores_of_numbered_samples(name: str, tmp_path: Path) -> None:
    """Their keys are a rule, of a set in its object, and all that asks for keys gets them."""
    samples = {f"b{i:05d}": b"value of %d" % i for i in range(995, 1300)}
    path = write(tmp_path / name, samples, shard_bytes=100_000 if "%" in name else None)
    own = Path(path.replace("-%06d.tar", ".fastio-set")).read_bytes()
    assert json.dumps([[305, "b", 995, 5, ""]], separators=(",", ":")).encode() in own
    with open_store(path) as store:
        assert store.keys(np.arange(len(store))) == list(samples)
        assert [key for shard in store.shards for key in map(shard.key, range(shard.count))] == list(samples)
        store.check_index()


@pytest.mark.usefixtures("large")
def test_matching_of_numbered_keys(tmp_path: Path) -> None:
    """They are matched with those of another store, in the same order and in another one."""
    samples = {f"{i:04d}.jpg": b"%d" % i for i in range(400)}
    first = write(tmp_path / "first.h5", samples)
    same = write(tmp_path / "same.lmdb", samples)
    turned = write(tmp_path / "turned.h5", dict(reversed(samples.items())))
    with open_store(first) as ours, open_store(same) as theirs, open_store(turned) as others:
        assert match_keys(ours, theirs).rows is None
        rows = match_keys(ours, others).rows
        assert rows is not None
        assert rows.tolist() == list(range(400))[::-1]
        assert match_keys(ours, others, stems=True).rows is not None
