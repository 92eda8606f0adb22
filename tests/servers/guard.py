"""
Run a server that ends, and whose files go, with the process that started it, whatever ends that.

Usage: ``python guard.py PARENT_PID MAX_FILE_BYTES PATHS COMMAND ...``; PATHS are separated by colons. SIGTERM ends the
server, SIGHUP is handed on to it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def _end_with_parent(number: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def main() -> int:
    """Return the server's status if it ends by itself, else 0."""
    parent, file_bytes, leftovers, *command = sys.argv[1:]
    awaited = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    _end_with_parent(signal.SIGTERM)
    if os.getppid() != int(parent):  # it ended before the line above
        _remove(leftovers)
        return 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(file_bytes), int(file_bytes)))

    def in_server() -> None:
        _end_with_parent(signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, awaited)

    server = subprocess.Popen(command, preexec_fn=in_server, process_group=0)  # Ctrl-C is the guard's to handle
    while (number := signal.sigwait(awaited)) != signal.SIGTERM:
        if number == signal.SIGHUP:
            server.send_signal(number)
        elif number == signal.SIGCHLD and server.poll() is not None:
            return server.returncode
    server.kill()  # it has nothing to save
    server.wait()
    _remove(leftovers)
    return 0


def _remove(leftovers: str) -> None:
    for path in map(Path, leftovers.split(os.pathsep)):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
