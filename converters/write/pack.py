"""fastio.pack: a whole dataset into a store."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

from fastio.converters.write.encoder import KeyRule
from fastio.converters.write.fields import FieldsAsked
from fastio.converters.write.writer import Writer, WriteReport
from fastio.types.options import explains_names

__all__ = ["pack"]


@explains_names()
def pack(  # noqa: PLR0913 - an option each
    dataset: Any,
    path: str | os.PathLike[str],
    *,
    fields: FieldsAsked = None,
    key: KeyRule = None,
    rename: Mapping[str, str] | None = None,
    jobs: int | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    overwrite: bool = False,
    progress: Callable[[int, int], object] | None = None,
    jump: bool = True,
) -> WriteReport:
    """
    Pack a dataset of any library into a new store, in its order, and return what was written.

    ``dataset`` is a torch ``Dataset`` or ``IterableDataset``, one of Hugging Face ``datasets``, a generator or a list.
    Its samples are dicts, tuples in the order of ``fields``, pairs of a value and its label, or single values.
    ``fields`` gives their types as for ``fastio.Writer``, or only their names; what it leaves open is inferred.

    * Hugging Face: features are the types, ``ClassLabel`` brings the names of classes, and the ``Image`` column's bytes
      stay as they are. Fields have the columns' names in lower case.
    * torchvision's ``ImageFolder`` without transforms: the files' bytes stay as they are, and keys are their names.
    * A FastDataset without transforms: encoded pictures and masks keep their stored bytes, fields their types, and
      samples their keys. To pack a whole store again, ``fastio pack STORE OUT`` is faster.
    * PIL images become PNGs, which lose nothing but may be larger than the files that they were read from; images
      opened by Pillow and not touched since keep their file's bytes. ``str(report)`` counts the PNGs.

    ``rename`` gives fields of dicts other names, ``{"img": "image", "fine_label": "label"}``; all other options mean
    the new ones, and names of classes go with their field. Raises SchemaError for a field that the samples lack.

    ``key`` is the field with a sample's key (which the store then leaves out, unless ``fields`` names it), or a
    function of the sample; by default samples are numbered. ``jobs`` processes read and encode a dataset with a length
    (default: this process alone); the store does not depend on their number. ``on_error``, ``overwrite``,
    ``progress`` and ``jump`` are those of ``fastio.Writer``, which takes more options, and whose ``write_all`` does the
    work. Raises SourceError for what is no dataset, SampleError for a wrong sample, StoreError if a worker dies.
    """
    with Writer(path, fields, overwrite=overwrite, on_error=on_error, progress=progress, jump=jump) as writer:
        writer.write_all(dataset, key=key, jobs=jobs, rename=rename)
        writer.flush()  # a sample that proves wrong here leaves nothing; in close(), the store would stay
    return writer.report
