"""A server of another program on this machine: started on free ports, waited for, ended with its folder."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

__all__ = ["ServerProcess", "free_ports", "new_folder"]

_START_S = 60.0
_STOP_S = 20.0


class ServerProcess:
    """
    A command that serves until ``stop``; it ends with this process, even if that is killed.

    ``folder`` is the server's own and goes with it, and so do ``leftovers``. Raises RuntimeError with the end of its
    output if it does not come up.
    """

    def __init__(
        self,
        command: Sequence[object],
        folder: Path,
        is_up: Callable[[], bool],
        *,
        environment: Mapping[str, str] | None = None,
        leftovers: Sequence[Path] = (),
        max_file_bytes: int = 8 << 30,
    ) -> None:
        self.folder = folder
        paths = os.pathsep.join(map(str, [folder, *leftovers]))
        guard = [sys.executable, "-S", "-E", Path(__file__).with_name("guard.py"), os.getpid(), max_file_bytes, paths]
        self._output = folder / "output.log"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [str(word) for word in [*guard, *command]],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
            )
        try:
            self._wait(is_up)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server and remove its folder; twice does no harm."""
        self._process.terminate()
        self._process.wait(_STOP_S)
        shutil.rmtree(self.folder, ignore_errors=True)

    def reload(self) -> None:
        """Have the server read its configuration again."""
        self._process.send_signal(signal.SIGHUP)

    def _wait(self, is_up: Callable[[], bool]) -> None:
        latest = time.monotonic() + _START_S
        while not is_up():
            if self._process.poll() is not None or time.monotonic() > latest:
                output = self._output.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{self._process.args!r}: status {self._process.returncode}, no answer: {output}")
            time.sleep(0.02)


def new_folder(name: str) -> Path:
    """Return a new folder with a short path: servers make sockets in it, whose paths may have 107 bytes."""
    return Path(tempfile.mkdtemp(prefix=f"fastio-{name}-"))


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, below those that the kernel gives to clients."""
    draw = random.SystemRandom()
    held: list[socket.socket] = []
    try:
        while len(held) < count:
            held.append(_bound(draw))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def _bound(draw: random.Random) -> socket.socket:
    while True:
        one = socket.socket()
        try:
            one.bind(("127.0.0.1", draw.randrange(10_000, 32_000)))
        except OSError:
            one.close()
        else:
            return one
