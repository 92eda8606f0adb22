"""Python that reads stores of text without fastio: the lines that ``fastio info`` and the guide of formats show."""

from __future__ import annotations

from fastio.types.schema import TOKENS, Field

__all__ = ["text_reader"]

_TOKENS = {
    "lmdb": """\
import lmdb, numpy as np
with lmdb.open(path, subdir=False, readonly=True, lock=False) as env, env.begin() as txn:
    flat = np.concatenate([np.frombuffer(v, "<u2") for k, v in txn.cursor() if k.startswith(b"tokens/")])
    stops = np.cumsum(np.frombuffer(txn.get(b"_tokens_sizes"), "<i8"))
    samples = np.split(flat, stops[:-1])
    labels = np.frombuffer(txn.get(b"_label"), "<i8")
""",
    "hdf5": """\
import h5py
with h5py.File(path) as f:
    spans = zip(f["tokens_starts"][:], f["tokens_sizes"][:])
    samples = [f["tokens"][start : start + size] for start, size in spans]
    labels = f["label"][:]
""",
    "tar": """\
import io, numpy as np, webdataset
dataset = webdataset.WebDataset(path, shardshuffle=False, empty_check=False)
samples = [np.load(io.BytesIO(sample["tokens.npy"])) for sample in dataset]
labels = [int(sample["cls"]) for sample in dataset]
""",
}
_TEXT = {
    "lmdb": """\
import lmdb, numpy as np
with lmdb.open(path, subdir=False, readonly=True, lock=False) as env, env.begin() as txn:
    samples = [value.decode() for key, value in txn.cursor() if key.endswith(b"/text")]
    labels = np.frombuffer(txn.get(b"_label"), "<i8")
""",
    "hdf5": """\
import h5py
with h5py.File(path) as f:
    spans = zip(f["text_starts"][:], f["text_sizes"][:])
    samples = [f["data"][start : start + size].tobytes().decode() for start, size in spans]
    labels = f["label"][:]
""",
    "tar": """\
import webdataset
dataset = webdataset.WebDataset(path, shardshuffle=False, empty_check=False)
samples = [sample["txt"].decode() for sample in dataset]
labels = [int(sample["cls"]) for sample in dataset]
""",
}


def text_reader(format_name: str, field: Field) -> str:
    """
    Python that reads a store whose only payload is this field of tokens or text, without fastio.

    It expects ``path`` and leaves ``samples`` and ``labels``, in order.
    """
    if field.codec == TOKENS:
        return _TOKENS[format_name].replace("<u2", field.dtype).replace("tokens", field.name)
    return _TEXT[format_name].replace("text", field.name) if field.name != "text" else _TEXT[format_name]
