"""WarmPython: runs scripts as ``python -c`` does, each in a fork of an interpreter that has imported fastio already."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

__all__ = ["WarmPython"]

ROOT = Path(__file__).parents[1]
_SERVE = "from tests.warm_python import serve; exec(serve(), {'__name__': '__main__'})"


class WarmPython:
    """
    One interpreter with fastio's commands and packers, but without torch.

    Each script begins in a fork of it and ends as an interpreter does. Scripts that look at what is imported need an
    interpreter of their own.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def run(self, script: str, *args: str, cwd: Path, stdout: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a script, and return its exit code and what it printed; ``stdout`` is a file to print to instead."""
        with _file() as out, _file() as err:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            pickle.dump((script, ["-c", *args], str(cwd), str(stdout or out), str(err)), self._process.stdin)
            self._process.stdin.flush()
            code: int = pickle.load(self._process.stdout)
            return subprocess.CompletedProcess([script], code, out.read_text(), err.read_text())


@contextmanager
def _file() -> Iterator[Path]:
    with tempfile.NamedTemporaryFile() as file:
        yield Path(file.name)


def serve() -> str:
    """Run each script that is asked for in a fork, which returns it; returns an empty one when nobody asks any more."""
    import fastio.cli
    import fastio.converters.packer
    import fastio.store  # noqa: F401

    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    while True:
        try:
            script, args, folder, out, err = pickle.load(requests)
        except EOFError:
            return ""
        child = os.fork()
        if child == 0:
            _become(args, folder, out, err)
            requests.close()
            answers.close()
            return str(script)
        pickle.dump(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), answers)
        answers.flush()


def _become(args: list[str], folder: str, out: str, err: str) -> None:
    """Take the arguments, the folder and the files of a script."""
    sys.argv = args
    os.chdir(folder)
    for number, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, out, os.O_WRONLY | os.O_APPEND),
        (2, err, os.O_WRONLY | os.O_APPEND),
    ):
        fd = os.open(path, flags)
        os.dup2(fd, number)
        os.close(fd)
