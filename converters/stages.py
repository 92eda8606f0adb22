"""Makes the stages that change pictures: one for each file that is packed, all with the same results."""

from __future__ import annotations

from collections.abc import Callable

from fastio.converters.new_names import shared_stems
from fastio.converters.raw import Raw
from fastio.converters.source import Source, Stage
from fastio.converters.transcode import Transcode

__all__ = ["stages_of"]


def stages_of(pictures: Transcode | Raw, source: Source) -> Callable[[], Stage]:
    """
    Return a function that makes a stage, for one run over any part of ``source``.

    What a stage makes of a sample must not depend on the samples before it, so what it needs to know of the others is
    gathered here: names that a picture cannot take, and the size that all raw pictures have.
    """
    if isinstance(pictures, Raw):
        firsts = pictures.first_pictures(source)
        return lambda: pictures.stage(firsts)
    stems = {} if pictures.is_lossless else shared_stems(source)
    return lambda: pictures.stage(stems)
