"""Token streams as other programs write them: rows of ids, Megatron's two files, .npy, stores of documents."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import TokenStream
from fastio.types.schema import TOKENS, Field
from tests.conftest import write_store

CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}


def documents_of(lengths: Sequence[int], seed: int = 0, highest: int = 250) -> list[NDArray[np.int64]]:
    """Documents of random ids, 1 to ``highest``, of which the last is 0."""
    random = np.random.default_rng(seed)
    return [np.append(random.integers(1, highest + 1, length - 1), 0) for length in lengths]


def write_bin(path: Path, ids: Any, dtype: str = "uint16") -> Path:
    """A row of ids, as nanoGPT has them."""
    np.asarray(ids).astype(dtype).tofile(path)
    return path


def write_megatron(prefix: Path, documents: Sequence[Any], dtype: str = "uint16", per_document: int = 1) -> Path:
    """Megatron's .bin and .idx, written from the description of their layout; each document in so many sequences."""
    pieces = [piece for document in documents for piece in np.array_split(np.asarray(document), per_document)]
    item = np.dtype(dtype).itemsize
    sizes = [len(piece) for piece in pieces]
    pointers = [item * sum(sizes[:number]) for number in range(len(sizes))]
    borders = [per_document * number for number in range(len(documents) + 1)]
    write_bin(prefix.with_name(prefix.name + ".bin"), np.concatenate(pieces), dtype)
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, CODES[dtype], len(sizes), len(borders))
    tables = struct.pack(f"<{len(sizes)}i", *sizes) + struct.pack(f"<{len(pointers)}q", *pointers)
    index = head + tables + struct.pack(f"<{len(borders)}q", *borders)
    prefix.with_name(prefix.name + ".idx").write_bytes(index)
    return prefix


def write_documents(path: Path, documents: Sequence[Any], dtype: str = "<u2") -> Path:
    """A store whose samples are documents."""
    values = [np.asarray(ids).astype(dtype).tobytes() for ids in documents]
    field = Field("tokens", TOKENS, dtype, (None,))
    return write_store(path, values, field=field, metadata={"tokenizer": {"vocab_size": 300, "special": {"pad": 0}}})


def stream_of(path: Path, documents: Sequence[Any], kind: str) -> TokenStream:
    """Documents as a stream of this kind, which knows where they begin; each ends with 0 in "bin" and "npy"."""
    ids = np.concatenate([np.asarray(document) for document in documents])
    if kind == "bin":
        return TokenStream(write_bin(path / "train.bin", ids), dtype="uint16", eos=0)
    if kind == "npy":
        np.save(path / "train.npy", ids.astype(np.int64))
        return TokenStream(path / "train.npy", eos=0)
    if kind == "megatron":
        return TokenStream(write_megatron(path / "train", documents, "int32"))
    if kind == "folder":
        folder = path / "many"
        folder.mkdir()
        for number, document in enumerate(documents):
            write_bin(folder / f"part-{number:03}.bin", document, "uint32")
        return TokenStream(folder, dtype="uint32", eos=0)
    return TokenStream(write_documents(path / f"train.{kind}", documents))


KINDS = ("bin", "npy", "megatron", "folder", "lmdb", "h5", "tar")
