"""An option that FastLoader does not have is one line, which says what to write instead."""

from __future__ import annotations

from typing import Any

import pytest

from fastio import FastLoader


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"num_workers": 4}, "no option num_workers: pass threads=N, or leave it out for all CPUs"),
        ({"num_worker": 4}, "no option num_worker: pass threads=N"),
        ({"collate_fn": list}, r"no option collate_fn: collate= .* DataLoader\(FastDataset\(path\), collate_fn=...\)"),
        ({"prefetch_factor": 2}, "no option prefetch_factor: pass prefetch_batches=N"),
        ({"persistent_workers": True}, "no option persistent_workers: leave it out"),
        ({"worker_init_fn": print}, "no option worker_init_fn: leave it out"),
        ({"multiprocessing_context": "fork"}, "no option multiprocessing_context: leave it out"),
        ({"timeout": 60}, "no option timeout: leave it out"),
        ({"generator": None}, "no option generator: pass seed=N"),
        ({"pin_memory_device": "cuda"}, 'no option pin_memory_device: pass device="cuda"'),
        ({"in_order": True}, "no option in_order: leave it out"),
        ({"transform": None}, r"no option transform: pass transforms=\[...\]"),
        ({"fields": ("image",)}, r"no option fields: FastDataset has it: pass FastLoader\(FastDataset\(path, fields="),
        ({"shufle": True}, r"^FastLoader has no option shufle: did you mean shuffle\?$"),
        ({"num_threads": 2}, r"no option num_threads: did you mean threads\?"),
        ({"batchsize": 2}, r"no option batchsize: did you mean batch_size\?"),
        ({"zzz": 1}, "no option zzz: it has dataset, batch_size, indices, "),
        ({"shufle": True, "num_workers": 4}, "did you mean shuffle.; FastLoader has no option num_workers: pass"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)
def test_what_to_write_instead(arguments: dict[str, Any], expected: str) -> None:
    """Options of a DataLoader and of FastDataset, and misspelt ones, lead to the right ones; nothing is opened."""
    with pytest.raises(TypeError, match=expected) as caught:
        FastLoader("nowhere.lmdb", 4, **arguments)

    assert "\n" not in str(caught.value)


def test_the_third_value_needs_a_name() -> None:
    """A DataLoader's third value is ``shuffle``; here it says so itself."""
    with pytest.raises(TypeError, match=r"^FastLoader\(dataset, batch_size\): got 3 values without .*shuffle=True"):
        FastLoader("nowhere.lmdb", 4, True)  # type: ignore[misc] # what is tested
