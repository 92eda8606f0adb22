"""A store whose samples are their own index, and what every trainer is checked by."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fastio.types.schema import RAW, Field
from tests.conftest import write_store

COUNT = 23


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """23 samples: a float32 vector of one number, its index, with the index as label too."""
    values = [np.float32([index]).tobytes() for index in range(COUNT)]
    path = tmp_path_factory.mktemp("integrations") / "indices.h5"
    return write_store(path, values, np.arange(COUNT), field=Field("number", RAW, "<f4", (1,)))
