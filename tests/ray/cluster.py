"""A Ray cluster of two CPUs in a process and a network namespace of its own, which runs functions for the tests.

Nothing that Ray opens can be reached from outside, and all of it ends with this process: by ``close``, or because the
pipe from the tests ends.
"""

from __future__ import annotations

import os
import pickle
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from typing import Any, BinaryIO

import pytest

ROOT = Path(__file__).parents[2]
_UNSHARE = (["unshare", "--net"], ["unshare", "--user", "--map-root-user", "--net"])
_ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",  # or Ray writes a token into the home folder
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_LOG_TO_DRIVER": "0",
    "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
}
_LENGTH = struct.Struct("<Q")
STARTS = 5  # of a cluster that does not come up in Ray's half minute


class JobError(Exception):
    """What a function raised on the cluster; ``kinds`` are the names of its class and of that's bases."""

    def __init__(self, kinds: list[str], message: str) -> None:
        super().__init__(message)
        self.kinds = kinds


@dataclass
class Cluster:
    """A driver with a cluster of its own."""

    process: subprocess.Popen[bytes]
    folder: Path

    @classmethod
    def start(cls) -> Cluster:
        """Start one; skips the test where no network namespace can be made."""
        unshare = next((words for words in _UNSHARE if _works(words)), None)
        if unshare is None:
            pytest.skip("no network namespace can be made: Ray would open ports to the outside")
        folder = Path(tempfile.mkdtemp(prefix="fr-", dir="/tmp"))  # the paths of Ray's sockets must stay short
        with (folder / "stderr").open("wb") as stderr:
            process = subprocess.Popen(
                [*unshare, sys.executable, "-m", "tests.ray.cluster", str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=ROOT,
                env=os.environ | _ENVIRONMENT,
            )
        return cls(process, folder)

    def run(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a function of an importable module in the driver. Raises JobError."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        _send(self.process.stdin, (function.__module__, function.__qualname__, args, options))
        message = _receive(self.process.stdout)
        assert message is not None, (self.folder / "stderr").read_text()[-4000:]
        kinds, value = message
        if kinds:
            raise JobError(kinds, value)
        return value

    def close(self) -> None:
        """End the cluster, and remove what it wrote."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # a cluster that has ended reads nothing any more
                pipe.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _works(unshare: list[str]) -> bool:
    try:
        return subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def _send(pipe: BinaryIO | Any, message: Any) -> None:
    data = pickle.dumps(message)
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


def _receive(pipe: BinaryIO | Any) -> Any:
    """The next message; None at the end of the pipe."""
    head = pipe.read(_LENGTH.size)
    return pickle.loads(pipe.read(_LENGTH.unpack(head)[0])) if head else None


def _open_loopback() -> None:
    """Switch on the loopback device of a new namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x49))  # SIOCSIFFLAGS: up, loopback, running


def _serve(folder: str) -> None:
    """Run what the tests ask for, until their pipe ends."""
    from importlib import import_module

    import ray

    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever is printed
    _open_loopback()
    for attempt in range(1, STARTS + 1):
        try:
            ray.init(
                num_cpus=2,
                include_dashboard=False,
                object_store_memory=128 << 20,
                _node_ip_address="127.0.0.1",
                _temp_dir=f"{folder}/{attempt}",
                log_to_driver=False,
                logging_level="ERROR",
            )
            break
        except Exception:  # what Ray raises after half a minute, too short beside busy processes
            ray.shutdown()
            if attempt == STARTS:
                raise
    while (message := _receive(sys.stdin.buffer)) is not None:
        module, name, args, options = message
        try:
            answer: tuple[list[str], Any] = ([], getattr(import_module(module), name)(*args, **options))
        except Exception as exc:
            answer = ([each.__name__ for each in type(exc).__mro__], str(exc))
        _send(results, answer)
    ray.shutdown()


if __name__ == "__main__":
    _serve(sys.argv[1])
