"""What every format must do while a store is written: a whole one under its name, or nothing."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest

from fastio.errors import SampleError, SchemaError, StoreError
from fastio.store import SampleBatch, create_store, open_store
from fastio.types.schema import COLUMN, Field, Schema
from fastio.types.spans import Spans
from tests.store.build import IMAGE_FIELD, LABELLED, hidden, make_batch, names, read_all, visible, write
from tests.store.format_case import FormatCase


class WritingConformance(FormatCase):
    """What StoreConformance inherits about writing."""

    def test_nothing_before_close(self, path: str) -> None:
        """Nothing lies under the final name before close; afterwards nothing beside it."""
        folder = Path(path).parent
        writer = create_store(path, LABELLED)
        writer.append(make_batch(["a"], [b"1"]))
        assert visible(folder) == []
        writer.close()
        writer.close()
        writer.abort()
        assert ([Path(path).name], []) == (visible(folder), hidden(folder))

    def test_abort(self, path: str) -> None:
        """An aborted writer leaves nothing and takes nothing more."""
        writer = create_store(path, LABELLED)
        writer.append(make_batch(["a"], [b"1"]))
        writer.abort()
        writer.abort()
        assert names(Path(path).parent) == []
        with pytest.raises(StoreError, match="closed or aborted"):
            writer.append(make_batch(["b"], [b"1"]))

    @pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
    def test_exception_in_the_block(self, path: str, kind: type[BaseException]) -> None:
        """An exception in the block removes everything."""
        with pytest.raises(kind), create_store(path, LABELLED) as writer:  # noqa: PT012
            writer.append(make_batch(["a"], [b"1"]))
            raise kind
        assert names(Path(path).parent) == []

    def test_existing_target(self, path: str) -> None:
        """An existing file is kept, unless it is to be overwritten."""
        write(path, {"old": b"1"})
        with pytest.raises(StoreError, match="exists"):
            create_store(path, LABELLED)
        writer = create_store(path, LABELLED, overwrite=True)
        writer.append(make_batch(["new"], [b"2"]))
        with open_store(path) as store:
            assert read_all(store) == {"old": b"1"}
        writer.close()
        with open_store(path) as store:
            assert read_all(store) == {"new": b"2"}
        assert hidden(Path(path).parent) == []

    def test_target_that_appears_meanwhile(self, path: str) -> None:
        """A file that appears while we pack is not replaced."""
        writer = create_store(path, LABELLED)
        Path(path).write_bytes(b"precious")
        with pytest.raises(StoreError, match="exists"):
            writer.close()
        assert Path(path).read_bytes() == b"precious"
        assert hidden(Path(path).parent) == []

    def test_folder_missing(self, tmp_path: Path) -> None:
        """A folder that does not exist is named."""
        with pytest.raises(StoreError, match="no folder does not exist"):
            create_store(tmp_path / "no folder" / f"out{self.suffix}", LABELLED)

    def test_refused_batches_leave_the_writer_usable(self, path: str) -> None:
        """A batch that does not fit is refused as a whole; the next one is taken."""
        good = make_batch(["a"], [b"1"])
        outside = Spans(good.spans["image"].buffers, np.zeros(1, np.int32), np.array([0]), np.array([9]))
        wrong = Spans(
            *(getattr(good.spans["image"], n) for n in ("buffers", "shard", "starts", "sizes")), np.array([7], "u4")
        )
        bad = [
            (SchemaError, "comes twice", make_batch(["b", "b"], [b"1", b"2"])),
            (SchemaError, "comes twice", make_batch(["b", "a"], [b"1", b"2"])),
            (SchemaError, "no NUL", make_batch(["b", ""], [b"1", b"2"])),
            (SchemaError, "no NUL", make_batch(["b\0c"], [b"1"])),
            (SchemaError, "UTF-8", make_batch(["\ud800"], [b"1"])),
            (SchemaError, "expected 2 values", make_batch(["b", "c"], [b"1"])),
            (SchemaError, "expected fields", SampleBatch(["b"], good.spans, {})),
            (SchemaError, "expected fields", SampleBatch(["b"], {}, good.columns)),
            (SchemaError, "expected shape", SampleBatch(["b"], good.spans, {"label": np.zeros((1, 1), np.int64)})),
            (SchemaError, "values that fit", SampleBatch(["b"], good.spans, {"label": np.array([1.5])})),
            (SchemaError, "expected dtype", SampleBatch(["b"], good.spans, {"label": np.array([None])})),
            (SchemaError, "outside its buffer", SampleBatch(["b"], {"image": outside}, good.columns)),
            (SampleError, "CRC-32 00000007", SampleBatch(["b"], {"image": wrong}, good.columns)),
        ]
        with create_store(path, LABELLED) as writer:
            writer.append(good)
            for kind, message, batch in bad:
                with pytest.raises(kind, match=message):
                    writer.append(batch)
            writer.append(make_batch(["z"], [b"9"], [7]))
        with open_store(path) as store:
            assert read_all(store) == {"a": b"1", "z": b"9"}
            assert store.column("label").tolist() == [0, 7]

    def test_metadata_that_is_no_json(self, path: str) -> None:
        """Metadata that JSON cannot hold are refused by name, and nothing stays."""
        with pytest.raises(SchemaError, match="JSON"):
            create_store(path, LABELLED).close({"classes": {1, 2}})
        assert names(Path(path).parent) == []

    def test_taken_field_names(self, path: str) -> None:
        """Field names that meet names of the index are refused."""
        for name in ("keys", "metadata", "image_starts"):
            with pytest.raises(SchemaError, match="taken"):
                create_store(path, Schema((IMAGE_FIELD, Field(name, COLUMN, "<i8", ()))))
        assert names(Path(path).parent) == []

    def test_disk_full(self, path: str, samples: dict[str, bytes]) -> None:
        """A disk that is full, wherever the file stands then, is one error that names the path; nothing stays."""
        size = Path(write(path, samples)).stat().st_size
        Path(path).unlink()
        old = resource.getrlimit(resource.RLIMIT_FSIZE)
        for limit in range(0, size, size // 20):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, old[1]))
            try:
                with pytest.raises(StoreError, match=r"out\..*full.*free space"):
                    write(path, samples)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, old)
            assert names(Path(path).parent) == []
