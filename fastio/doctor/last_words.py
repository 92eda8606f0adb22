"""Says how a training ended whose process could not say it: killed, crashed, or left by ``os._exit``."""

from __future__ import annotations

import faulthandler
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

__all__ = ["last_words"]

_WORDS: Final = (
    "the training's process is gone, and with it what was measured: without a fatal error of Python's above, it was "
    "killed (SIGKILL, most often for lack of memory: dmesg or the job's limit tells) or ended by os._exit"
)
# Runs beside the training, as nobody's child: a script may wait for all of its own. Where there is no pidfd, the end of
# the pipe tells, which workers of the training hold open as well.
_WATCH: Final = """
import os, select, shutil, sys
pid, folder, words = int(sys.argv[1]), sys.argv[2], sys.argv[3]
try:
    ends = [os.pidfd_open(pid), 0]
except (OSError, AttributeError):  # the kernel's; a Python that was built with old headers
    ends = [0]
if os.fork():
    os._exit(0)
if 0 not in select.select(ends, [], [])[0] or not os.read(0, 1):
    shutil.rmtree(folder, ignore_errors=True)
    print(words, file=sys.stderr)
"""


@contextmanager
def last_words(folder: Path) -> Iterator[None]:
    """
    If this process ends within the ``with`` block, one line says so on stderr, and ``folder`` is removed.

    A crash in native code also shows where in Python it happened.
    """
    own, is_enabled = os.getpid(), faulthandler.is_enabled()
    with suppress(OSError, ValueError, io.UnsupportedOperation):  # stderr may be no file
        faulthandler.enable()
    watch = subprocess.Popen(  # noqa: S603 - this interpreter
        [sys.executable, "-I", "-S", "-c", _WATCH, str(own), str(folder), _WORDS],
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is not for it
    )
    assert watch.stdin is not None
    watch.wait()
    try:
        yield
    finally:
        if os.getpid() == own:  # not in a fork of the training
            with suppress(BrokenPipeError):
                watch.stdin.write(b".")
                watch.stdin.close()
            if not is_enabled:
                faulthandler.disable()
