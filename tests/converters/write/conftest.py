"""Names of files for tests of fastio.Writer."""

from __future__ import annotations

import pytest

from tests.converters.write.writing import OUTPUTS


@pytest.fixture(params=OUTPUTS)
def out(request, tmp_path):
    """A name of each format that can be written."""
    return tmp_path / request.param
