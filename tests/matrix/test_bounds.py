"""The bounds that ``run.py`` tests are those of pyproject.toml."""

from __future__ import annotations

import pytest

from tests.matrix.run import oldest_versions

PROJECT = {
    "dependencies": [
        "click>=8.1",
        "numpy>=1.26; python_version < '3.13'",
        "numpy>=2.1; python_version >= '3.13'",
        "pillow>=10.1,<14",
    ],
    "optional-dependencies": {"interop": ["lmdb>=1.4"], "docs": ["furo"]},
}


def test_the_oldest_versions_are_the_lower_bounds() -> None:
    """Each dependency of the project and of the extras asked for, and no other."""
    expected = ["click==8.1", "numpy==1.26", "pillow==10.1", "lmdb==1.4"]

    assert expected == list(oldest_versions(PROJECT, "3.11", ["interop"]))


def test_bounds_may_differ_between_pythons() -> None:
    """A requirement counts where its marker applies."""
    assert "numpy==2.1" in list(oldest_versions(PROJECT, "3.13", []))
    assert "numpy==1.26" not in list(oldest_versions(PROJECT, "3.13", []))


def test_a_dependency_without_a_bound_is_refused() -> None:
    """What has no lower bound cannot have been tested."""
    with pytest.raises(ValueError, match="furo"):
        list(oldest_versions(PROJECT, "3.11", ["docs"]))
