"""A root folder with files as the kernel shows them."""

from __future__ import annotations

from pathlib import Path


def written_root(tmp_path: Path, files: dict[str, str]) -> Path:
    """A root folder with these files."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path
