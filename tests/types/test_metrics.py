"""The counters of a loader."""

from __future__ import annotations

from fastio.types.metrics import LoaderStats


def test_waits_are_counted_by_size() -> None:
    """A wait lies in the bucket of the next power of two of microseconds; the first of an epoch in none."""
    stats = LoaderStats()
    stats.count(4, 100, waited_s=1.0, first=True)
    stats.count(4, 100, waited_s=3e-6, first=False)
    stats.count(4, 120, waited_s=3.5e-6, first=False)
    stats.count(2, 50, waited_s=1e-3, first=False)

    assert stats.stalls == {4e-6: 2, 1024e-6: 1}
    assert (stats.batches, stats.samples, stats.batch_bytes) == (4, 14, 120)
    assert stats.first_batch_s == 1.0


def test_a_wait_of_hours_is_counted() -> None:
    """The last bucket takes whatever is longer."""
    stats = LoaderStats()
    stats.count(1, 1, waited_s=1e5, first=False)

    assert sum(stats.stalls.values()) == 1


def test_counters_are_shown() -> None:
    """What a user prints has the numbers, also those that native code counts."""
    stats = LoaderStats(threads=2)
    stats.count(4, 100, waited_s=1.0, first=True)

    assert "LoaderStats(batches=1, samples=4, loading_s=1.0, first_batch_s=1.0, batch_bytes=100, " in repr(stats)
    assert "threads=2" in repr(stats)
