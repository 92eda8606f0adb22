"""Servers end with the process that started them, and their folders go."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.servers.server_process import ServerProcess, free_ports, new_folder

SERVER = "import http.server, sys; http.server.test(http.server.SimpleHTTPRequestHandler, port=int(sys.argv[1]))"
STARTER = """
import sys
from tests.servers.test_server_process import started
server, port = started()
print(server.folder, port, flush=True)
sys.stdin.read()
"""


def answers(port: int) -> bool:
    """Whether somebody listens on a port."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def started() -> tuple[ServerProcess, int]:
    """A small server and its port."""
    (port,) = free_ports(1)
    folder = new_folder("test")
    return ServerProcess([sys.executable, "-c", SERVER, port], folder, lambda: answers(port)), port


def until_gone(port: int, folder: Path) -> None:
    """Wait, at most half a minute, until the server and its folder are no more."""
    latest = time.monotonic() + 30
    while (answers(port) or folder.exists()) and time.monotonic() < latest:
        time.sleep(0.01)
    assert (False, False) == (answers(port), folder.exists())


def test_stop() -> None:
    """A stopped server is gone, and may be stopped again."""
    server, port = started()
    server.stop()
    server.stop()

    assert (False, False) == (answers(port), server.folder.exists())


def test_killed_starter() -> None:
    """A server ends, and its folder goes, when the process that started it is killed."""
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout is not None
    with starter:
        folder, port = starter.stdout.readline().split()
        starter.kill()

    until_gone(int(port), Path(folder))


def test_command_that_ends() -> None:
    """A command that does not come up is reported with its output."""
    folder = new_folder("test")
    with pytest.raises(RuntimeError, match=r"status 3, no answer: because"):
        ServerProcess([sys.executable, "-c", "print('because'); raise SystemExit(3)"], folder, lambda: False)

    assert not folder.exists()
