"""Hides three lines of torch's profiler that tell people nothing; everything else on stderr is passed on."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["without_kineto_lines"]

_STDERR = 2
# Kineto writes the first two at its highest level since torch 2.13. KINETO_LOG_LEVEL hides them only if it hides errors
# too. The third is what a torch for CUDA says on a machine without a driver (35) or without a GPU (100).
_LINES = re.compile(
    rb"^USDT:.*\bprofiler_(?:start|stop)\n|^ERROR:.*\bgpuGetDeviceCount failed with code (?:35|100)\n", re.MULTILINE
)


@contextmanager
def without_kineto_lines() -> Iterator[None]:
    """
    Hold back what this process writes to stderr, and release it at the end without the lines in which Kineto reports
    its work, or that there is no GPU.

    Meant for the moments in which a profiler starts, steps and stops.
    """
    sys.stderr.flush()
    try:
        kept = os.dup(_STDERR)
    except OSError:  # nobody reads stderr
        yield
        return
    held = os.memfd_create("stderr")
    try:
        os.dup2(held, _STDERR)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, _STDERR)
            _write(_LINES.sub(b"", _read(held)))
    finally:
        os.close(held)
        os.close(kept)


def _read(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0) if size else b""


def _write(text: bytes) -> None:
    while text:
        text = text[os.write(_STDERR, text) :]
