"""WarmPython: runs scripts as ``python -c`` does, in forks of an interpreter that has imported what they need."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Self

from tests.forking import start_ranks, wait_for_ranks

__all__ = ["WarmPython"]

ROOT = Path(__file__).parents[1]
_SERVE = "from tests.warm_python import serve; exec(serve(), {'__name__': '__main__'})"
_RANKS = "from tests.warm_python import be_ranks; be_ranks()"
_SECONDS = 250  # after which ranks that wait for one another are given up


class WarmPython:
    """
    One interpreter that has imported these modules.

    Each script begins in a fork of it and ends as an interpreter does. Scripts that look at what is imported need an
    interpreter of their own. torch computes with one thread: others would not come along into a fork.
    """

    def __init__(self, *modules: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump(None, self._process.stdin)  # workers forked meanwhile may hold the other end open: it sees no end
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

    def run_ranks(self, script: str, *args: str, count: int, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a script in ``count`` processes at once, each with its number as a further argument."""
        return self.run(_RANKS, *args, script, str(count), cwd=cwd)


def be_ranks() -> None:
    """Run the script that is the last argument but one in as many processes as the last one says, and end."""
    *_, script, count = sys.argv

    def run(rank: int) -> None:
        signal.alarm(_SECONDS)
        sys.argv[-2:] = [str(rank)]
        exec(script, {"__name__": "__main__"})

    sys.exit(any(wait_for_ranks(start_ranks(run, int(count)))))


@contextmanager
def _file() -> Iterator[Path]:
    with tempfile.NamedTemporaryFile() as file:
        yield Path(file.name)


def serve() -> str:
    """Run each script that is asked for in a fork, which returns it; returns an empty one when none is to follow."""
    for module in sys.argv[1:]:
        import_module(module)
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    while True:
        try:
            request = pickle.load(requests)
        except EOFError:  # whoever asked was killed
            return ""
        if request is None:
            return ""
        script, args, folder, out, err = request
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
