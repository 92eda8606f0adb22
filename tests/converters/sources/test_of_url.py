"""Tables behind URLs: packed as the files that they are, and named by their URLs."""

from __future__ import annotations

import base64
import gc
import gzip
import tempfile
from pathlib import Path

import numpy as np
import pytest

from fastio.converters import open_source, pack
from fastio.converters.fields.types import parse_choice
from fastio.converters.sources.documents import Documents, TextSource
from fastio.converters.text import Encoder, Limits, Sequences, TextSamples, open_text
from fastio.errors import SourceError, StoreError
from fastio.store import open_store
from fastio.store.files.remote_options import Remote
from fastio.store.kinds.recognise import recognise
from tests.converters.trees import flat
from tests.servers.fault_server import Fault
from tests.servers.fixtures import Served

NO_RETRY = Remote(download_retry=0)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that copies are brought to."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    """Seven PNGs."""
    flat(tmp_path / "pngs")
    return sorted((tmp_path / "pngs").glob("*.png"))


def test_names_of_pictures_with_a_root(served: Served, pictures: list[Path], tmp_path: Path) -> None:
    """The store is that of the file, but for the URL and the version in its record; the copy goes with the source."""
    root = pictures[0].parent
    (served.root / "t.csv").write_text("\n".join(["file_name", *(each.name for each in pictures)]))
    url = f"{served.url}/t.csv"

    source = open_source(url, root=root)
    assert url == source.path
    pack(source, tmp_path / "a.lmdb")
    del source
    gc.collect()
    pack(open_source(served.root / "t.csv", root=root), tmp_path / "b.lmdb")

    assert not any((tmp_path / "temporary").iterdir())
    with open_store(tmp_path / "a.lmdb") as remote, open_store(tmp_path / "b.lmdb") as local:
        record = dict(remote.metadata["source"])
        assert url == record.pop("url")
        assert (served.root / "t.csv").stat().st_size == record.pop("version")["size"]
        assert {**local.metadata["source"], "root": str(root)} == record
        assert remote.keys(range(7)) == local.keys(range(7))
        assert len(pictures) == len(remote)


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "t.parquet"])
def test_pictures_in_the_table(served: Served, pictures: list[Path], tmp_path: Path, name: str) -> None:
    """As base64, compressed or not; or as bytes of Parquet."""
    values = [each.read_bytes() for each in pictures]
    _write(served.root / name, values)

    pack(open_source(f"{served.url}/{name}", fields=[parse_choice("image=image:image")]), tmp_path / "a.lmdb")

    with open_store(tmp_path / "a.lmdb") as store:
        spans = store.spans("image", np.arange(len(store)))
        assert values == [view.tobytes() for view in spans.views()]


def _write(path: Path, values: list[bytes]) -> None:
    if path.suffix == ".parquet":
        pa = pytest.importorskip("pyarrow")
        pq = pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table({"image": values}), path)
        return
    lines = "".join(f'{{"image": "{base64.b64encode(value).decode()}"}}\n' for value in values).encode()
    path.write_bytes(gzip.compress(lines) if path.suffix == ".gz" else lines)


def test_text(served: Served, tmp_path: Path) -> None:
    """A column of text, and a .txt."""
    (served.root / "t.csv").write_text("text\none\ntwo\n")
    (served.root / "t.txt").write_text("one\ntwo\n")
    for name in ("t.csv", "t.txt"):
        source = open_text(f"{served.url}/{name}")
        report = pack(TextSamples(source, Encoder(None, Sequences())), tmp_path / f"{name}.lmdb")
        assert (f"{served.url}/{name}", 2) == (source.path, report.packed)


def test_a_label_file(served: Served, pictures: list[Path], tmp_path: Path) -> None:
    """Of a folder here; an error in it names the URL."""
    (served.root / "l.csv").write_text("".join(f"{each.name},{i}\n" for i, each in enumerate(pictures)))
    source = open_source(pictures[0].parent, labels=f"{served.url}/l.csv")
    assert "label" in source.schema
    (served.root / "l.csv").write_text("a,b,c\n")

    with pytest.raises(SourceError) as caught:
        open_source(pictures[0].parent, labels=f"{served.url}/l.csv")
    assert str(caught.value).startswith(f"{served.url}/l.csv: ")
    del caught  # with the frames that have the copy
    gc.collect()
    assert not any((tmp_path / "temporary").iterdir())


def test_errors_name_the_url(served: Served, temporary: Path) -> None:
    """Those of the table, and of the folder of the files that it names."""
    (served.root / "t.csv").write_text("file_name\nno.png\n")
    (served.root / "u.json").write_text('[{"a": 1')
    folder = f"none of which is in {served.url}: name their folder with --root"
    for name, words in (("t.csv", folder), ("u.json", "line 1")):
        with pytest.raises(SourceError, match=f"^{served.url}/{name}: ") as caught:
            open_source(f"{served.url}/{name}")
        assert words in str(caught.value)
        assert str(temporary) not in str(caught.value)


@pytest.mark.parametrize("name", ["", "a-*.csv", "photos/", "a.tar", "a.lmdb", "a.png", "a.csv?key=1"])
def test_what_is_not_one_table(served: Served, name: str) -> None:
    """One line, and no request is sent."""
    with pytest.raises(SourceError, match="from which only a single table or text is packed") as caught:
        open_source(f"{served.url}/{name}")
    assert "\n" not in str(caught.value)
    assert [] == served.server.requests()


def test_who_only_asks_what_a_url_is(served: Served) -> None:
    """Nothing is brought."""
    with pytest.raises(SourceError, match="a single table is packed from there by `fastio pack`"):
        recognise(f"{served.url}/a.csv")
    assert [] == served.server.requests()


def test_a_table_that_is_not_there(served: Served, temporary: Path) -> None:
    """The error of the server; no folder is left."""
    with pytest.raises(StoreError, match=f"{served.url}/no.csv"):
        open_source(f"{served.url}/no.csv", remote=NO_RETRY)
    assert not any(temporary.iterdir())


def test_a_connection_that_is_cut(served: Served, temporary: Path) -> None:
    """It is asked for again; and if that does not help, nothing is left."""
    (served.root / "t.csv").write_text("text\n" + "a line of text\n" * 200_000)
    served.server.set_faults(Fault(kind="cut", at=1000, path=".csv", count=2))
    assert 200_000 == sum(len(each.keys) for each in _documents(open_text(f"{served.url}/t.csv")))
    gc.collect()
    served.server.set_faults(Fault(kind="cut", at=1000, path=".csv"))
    with pytest.raises(StoreError, match=r"t\.csv"):
        open_text(f"{served.url}/t.csv", remote=NO_RETRY)
    assert not any(temporary.iterdir())


def _documents(source: TextSource) -> list[Documents]:
    return list(source.read(Limits()))


def test_a_table_larger_than_the_disk(served: Served, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before it is brought."""
    (served.root / "t.csv").write_text("text\na\n")
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 3}))
    with pytest.raises(SourceError, match=r"which it is brought to, has 3 B left: free space there, .*TMPDIR"):
        open_text(f"{served.url}/t.csv")
    assert not any(temporary.iterdir())


def test_what_the_record_says_of_a_url(served: Served) -> None:
    """A password in it is not kept."""
    (served.root / "t.csv").write_text("text\na\n")
    record = open_text(f"{served.url}/t.csv".replace("://", "://me:secret@")).metadata["source"]
    assert f"{served.url}/t.csv" == record["url"]
