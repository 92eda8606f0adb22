"""How much memory the order is planned for: the same on all ranks, the same again tomorrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch.distributed

from fastio.machine import usable_memory
from fastio.samplers.memory import PageCache, held_memory, page_cache


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("1000", 1000), ("32MB", 32_000_000), ("1.5 GB", 1_500_000_000), ("2GiB", 2 << 30), ("0", 0), (" 7kB ", 7000)],
)
def test_the_environment_says_it(text: str, nbytes: int) -> None:
    """FASTIO_SHUFFLE_MEMORY is a size with or without a unit, for one rank and for many."""
    for world_size in (1, 8):
        assert PageCache(nbytes) == page_cache(world_size, environ={"FASTIO_SHUFFLE_MEMORY": text})


@pytest.mark.parametrize("text", ["", "much", "-1", "1 XB", "GB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    """One line that names the variable and gives an example."""
    with pytest.raises(ValueError, match=r"FASTIO_SHUFFLE_MEMORY=.*expected a size such as 2GB"):
        page_cache(1, environ={"FASTIO_SHUFFLE_MEMORY": text})


def test_half_of_the_memory_is_taken() -> None:
    """What is free just now has no say: the order would be another in the next run."""
    assert PageCache(usable_memory() // 2) == page_cache(1, environ={})


def test_ranks_that_cannot_ask_each_other_take_a_fixed_number() -> None:
    """Machines may differ; the number may change as soon as there is a process group."""
    assert PageCache(1 << 30, is_final=False) == page_cache(2, environ={})


@pytest.mark.parametrize("kind", ["FileStore", "HashStore", "TCPStore"])
def test_the_first_rank_decides_for_all(tmp_path: Path, kind: str) -> None:
    """With torch.distributed, ranks of machines with different memory get one number, and none waits for another."""
    store: Any = {
        "FileStore": lambda: torch.distributed.FileStore(str(tmp_path / "store"), 1),
        "HashStore": lambda: torch.distributed.HashStore(),
        "TCPStore": lambda: torch.distributed.TCPStore("127.0.0.1", 0, is_master=True),
    }[kind]()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        first = page_cache(8, environ={"FASTIO_SHUFFLE_MEMORY": "5GB"})
        second = page_cache(8, environ={"FASTIO_SHUFFLE_MEMORY": "2GB"})
    finally:
        torch.distributed.destroy_process_group()

    assert PageCache(5_000_000_000) == first == second


def test_a_small_store_behind_a_url_is_not_read_whole_by_very_many_ranks() -> None:
    """Up to 8 ranks hold 64 MiB each; more hold 512 MiB together."""
    assert [64, 64, 16, 2] == [held_memory(ranks, environ={}).largest_whole >> 20 for ranks in (1, 8, 32, 256)]
    assert 5_000_000_000 == held_memory(256, environ={"FASTIO_SHUFFLE_MEMORY": "5GB"}).largest_whole
