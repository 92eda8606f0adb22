"""What is said of a training whose process is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastio.doctor import last_words


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="is what is taken away")
def test_a_python_without_pidfd(tmp_path: Path) -> None:
    """Built with old headers, as conda's: the end of the pipe tells."""
    folder = tmp_path / "folder"
    folder.mkdir()
    code = f"import os; del os.pidfd_open\n{last_words._WATCH}"
    command = [sys.executable, "-c", code, str(os.getpid()), str(folder), "is gone"]
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=60, check=False)

    assert (0, "is gone\n") == (done.returncode, done.stderr)
    assert not folder.exists()
