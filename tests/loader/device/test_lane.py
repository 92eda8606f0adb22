"""What a lane asks of torch for tensors of every layout."""

from __future__ import annotations

import pytest
import torch

from fastio.loader.device.lane import dense_parts

LAYOUTS = {
    torch.sparse_coo: {},
    torch.sparse_csr: {},
    torch.sparse_csc: {},
    torch.sparse_bsr: {"blocksize": (1, 1)},
    torch.sparse_bsc: {"blocksize": (1, 1)},
}


@pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta state")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_sparse_tensors_lie_in_dense_ones(layout: torch.layout) -> None:
    """Every part is one whose use the caching allocator can be told."""
    parts = dense_parts(torch.eye(3).to_sparse(layout=layout, **LAYOUTS[layout]))

    assert {torch.strided} == {part.layout for part in parts}
    assert 3 == max(part.numel() for part in parts[-1:])


def test_a_dense_tensor_is_itself() -> None:
    """The tensor that came."""
    tensor = torch.ones(2)

    assert (tensor,) == dense_parts(tensor)
