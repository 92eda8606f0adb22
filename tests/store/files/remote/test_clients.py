"""Who brings the bytes behind a URL, and with which credentials: obstore, fsspec, the Hugging Face hub."""

from __future__ import annotations

import json
import os
import pickle
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastio.errors import StoreError, StoreNotFound
from fastio.store import open_store
from fastio.store.files import open_file
from fastio.store.files.remote.client import Precondition
from fastio.store.files.remote.clients import client_of, hub_url, with_token
from fastio.store.files.remote.obstore_client import client_config
from fastio.store.files.remote_options import Remote
from fastio.store.protocol import read_values
from tests.servers.fault_server import FaultServer, why_no_nginx
from tests.servers.fixtures import Bucket
from tests.servers.server_process import free_ports
from tests.store.build import make_samples, write
from tests.store.files.conformance import DATA, OTHER, FilesConformance, Put
from tests.store.files.range_server import RangeServer, Response, range_server

pytest.importorskip("obstore")


@pytest.fixture(autouse=True)
def plain_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials of whoever runs the tests."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "HF_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def server() -> Iterator[RangeServer]:
    """A server of objects."""
    with range_server() as running:
        yield running


@pytest.fixture
def aws(tmp_path: Path) -> Path:
    """The folder of AWS's settings, with a profile of keys and one of a command."""
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text("[work]\naws_access_key_id = FROM_FILE\naws_secret_access_key = s\n")
    printed = json.dumps({"Version": 1, "AccessKeyId": "FROM_COMMAND", "SecretAccessKey": "s"})
    (tmp_path / "keys.json").write_text(printed)
    (folder / "config").write_text(
        "[profile work]\nregion = eu-west-9\nendpoint_url = http://127.0.0.1:9\n"
        f"[profile command]\ncredential_process = cat {tmp_path}/keys.json\n"
        "[profile sso]\nsso_session = x\n"
        "[profile broken]\ncredential_process = false\n"
    )
    return folder


class TestFsspec(FilesConformance):
    """Files of a scheme that fsspec alone knows."""

    @pytest.fixture
    def put(self) -> Put:
        """Objects in fsspec's own memory, in a folder of this test."""
        fsspec = pytest.importorskip("fsspec")
        folder = f"memory://{uuid.uuid4().hex}"

        def put(name: str, data: bytes) -> str:
            with fsspec.open(f"{folder}/{name}", "wb") as file:
                file.write(data)
            return f"{folder}/{name}"

        return put

    def test_a_forked_child_reads_on(self, path: str) -> None:
        """It does not, as with every client: see test_remote.py."""

    def test_conditions(self, put: Put, tmp_path: Path) -> None:
        """What is there is replaced only if that was asked for; files are listed without folders."""
        url = put("one", DATA)
        client, key = client_of(url, Remote())
        etag = client.get_end(key, 1).etag
        with pytest.raises(Precondition):
            client.put(key, OTHER, if_absent=True)
        client.put(key, OTHER, etag=etag)
        with pytest.raises(Precondition):
            client.put(key, DATA, etag=etag)
        (tmp_path / "x").write_bytes(DATA)
        folder = key.rpartition("/")[0]
        client.put(f"{folder}/deep/two", tmp_path / "x", if_absent=True)
        prefix = f"{folder}/" if folder else ""
        assert [("one", 200_000)] == [(entry.name, entry.size) for entry in client.entries(prefix)]
        client.remove(key)
        client.remove(key)
        assert client.entries(prefix) == []

    def test_a_folder(self, put: Put) -> None:
        """It is no file."""
        url = put("deep/one", DATA)
        with pytest.raises(StoreError, match="expected a file, got a folder"):
            open_file(url.rpartition("/")[0])


def test_a_store_through_a_file_system(tmp_path: Path) -> None:
    """A path of fsspec's own local file system opens as a store."""
    pytest.importorskip("fsspec")
    path = write(tmp_path / "x.tar", make_samples(5))
    with open_store(f"file://{path}") as store, open_store(path) as local:
        both = [[view.tobytes() for view in read_values(s, "image", np.arange(5)).views()] for s in (store, local)]
        assert both[0] == both[1]


def test_an_unknown_scheme_of_fsspec() -> None:
    """A scheme whose package is missing names it."""
    pytest.importorskip("fsspec")
    if "paramiko" in sys.modules:
        pytest.skip("paramiko is installed")
    with pytest.raises(StoreError, match=r"sftp://host: sftp:// needs another package: .*paramiko"):
        open_file("sftp://host/x.tar")


def test_names_of_options() -> None:
    """Names of fsspec's file systems and of obstore mean the same."""
    ours = {"access_key_id": "k", "secret_access_key": "s", "endpoint": "http://x", "region": "r"}
    theirs = {"key": "k", "secret": "s", "client_kwargs": {"endpoint_url": "http://x", "region_name": "r"}}
    assert client_config("s3://b", ours) == client_config("s3a://b", theirs)
    assert client_config("s3://b", {"anon": True})["skip_signature"] is True
    assert client_config("gs://b", {"token": "anon"}) == {"skip_signature": True}
    assert client_config("gs://b", {"token": "/key.json"}) == {"application_credentials": "/key.json"}
    assert client_config("az://c", {"sas_token": "t"}) == {"sas_key": "t"}
    assert client_config("https://x", {"headers": {"a": "b"}}) == {"client_options": {"default_headers": {"a": "b"}}}


def test_aws_profiles(aws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys, region and address come from the profile's files, and are read again; the environment comes first."""
    config = client_config("s3://b", {"profile": "work"})
    assert ("eu-west-9", "http://127.0.0.1:9") == (config["region"], config["endpoint"])
    assert config["credential_provider"]()["access_key_id"] == "FROM_FILE"
    (aws / "credentials").write_text("[work]\naws_access_key_id = RENEWED\naws_secret_access_key = s\n")
    assert config["credential_provider"]()["access_key_id"] == "RENEWED"
    monkeypatch.setenv("AWS_PROFILE", "command")
    assert client_config("s3://b", {})["credential_provider"]()["access_key_id"] == "FROM_COMMAND"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    assert "credential_provider" not in client_config("s3://b", {})
    assert client_config("s3://b", {"profile": "work", "region": "own"})["region"] == "own"


@pytest.mark.usefixtures("aws")
def test_aws_profiles_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line says which profile, and what to do."""
    with pytest.raises(StoreError, match=r"s3://b: AWS profile 'none' is in neither .*credentials nor .*config"):
        client_config("s3://b", {"profile": "none"})
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(StoreError, match=r"s3://b: AWS profile 'sso' uses SSO or a role: pip install boto3, or"):
        client_config("s3://b", {"profile": "sso"})
    options = Remote({"profile": "broken", "endpoint": "http://127.0.0.1:9", "region": "x"}, download_retry=0)
    with pytest.raises(StoreError, match=r"s3://b.*: credential_process of AWS profile 'broken' failed") as caught:
        open_file("s3://b/x.tar", options=options)
    assert "\n" not in str(caught.value)


def test_the_endpoint_of_the_environment(server: RangeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS_ENDPOINT_URL leads to another server; public data need no credentials."""
    server.put("bucket/one", DATA)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    options = Remote({"anon": True, "region": "r"})
    assert DATA[5:9] == open_file("s3://bucket/one", options=options).read(5, 9).tobytes()
    with pytest.raises(StoreNotFound, match="s3://bucket/two: no such object"):
        open_file("s3://bucket/two", options=options)


def test_credentials_that_expire(server: RangeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are looked for again; if that brings no others, the error says that they have expired."""

    def expired(response: Response) -> None:
        response.status, response.headers = 400, {}
        response.body = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"

    server.put("bucket/one", DATA)
    options = Remote({"endpoint": server.url, "key": "k", "secret": "s", "region": "r"}, download_retry=1)
    file = open_file("s3://bucket/one", options=options)
    client: Any = client_of("s3://bucket/one", options)[0]
    message = r"s3://bucket/one: the credentials have expired \(.*ExpiredToken: The provided token has expired\.\)"
    server.always = expired
    with pytest.raises(StoreError, match=message):
        file.read(0, 10)
    server.always = None
    server.faults.append(expired)
    client._opened_at -= 60
    before = client._store
    assert DATA[:10] == file.read(0, 10).tobytes()
    assert client._store is not before


def test_what_was_refused_is_looked_for_again(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and an address that are set right in the environment of a running process are used from then on."""
    url = f"{bucket.url}/one"
    client, key = client_of(url, Remote(bucket.options))
    client.put(key, DATA)
    right = bucket.server.environment()
    (closed,) = free_ports(1)
    for name, value in {**right, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{closed}"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    options = Remote(download_retry=0)
    with pytest.raises(StoreError, match=f"{url}: cannot be read or written: no connection"):
        open_file(url, options=options)
    monkeypatch.setenv("AWS_ENDPOINT_URL", right["AWS_ENDPOINT_URL"])
    with pytest.raises(StoreError, match=rf"{url}: access denied \("):
        open_file(url, options=options)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", right["AWS_ACCESS_KEY_ID"])
    assert DATA[:9] == open_file(url, options=options).read(0, 9).tobytes()


def test_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over TLS, bytes are those of the file; a certificate that is not trusted is refused in one line, at once."""
    pytest.importorskip("trustme")
    if reason := why_no_nginx():
        pytest.skip(reason)
    (tmp_path / "one").write_bytes(DATA)
    options = Remote(download_retry=3)
    with FaultServer(tmp_path, tls=True) as server:
        with pytest.raises(StoreError, match=r"/one: the server's certificate is not trusted: nobody vouches"):
            open_file(f"{server.secure_url}/one", options=options)
        assert 0 == server.gets()
        monkeypatch.setenv("SSL_CERT_FILE", str(server.authority))
        assert DATA[3:9] == open_file(f"{server.secure_url}/one", options=options).read(3, 9).tobytes()
        port = server.secure_url.rpartition(":")[2]
        with pytest.raises(StoreError, match=rf"localhost:{port}/one: .* not trusted: it is that of 127\.0\.0\.1: use"):
            open_file(f"https://localhost:{port}/one", options=options)
        with pytest.raises(StoreError, match=r"/one: the server answers without TLS: check the port, or write http://"):
            open_file(f"https://127.0.0.1:{server.port}/one", options=options)


@pytest.mark.parametrize(
    ("name", "hint"), [("colour", "see the names of"), ("endpont", "did you mean 'endpoint'"), ("kye", "mean 'key'")]
)
def test_an_unknown_option(name: str, hint: str) -> None:
    """It is named, in one line, with the one that it may have meant."""
    with pytest.raises(StoreError, match=rf"s3://b: storage option '{name}' is unknown: .*{hint}") as caught:
        open_file("s3://b/x.tar", options=Remote({"anon": True, name: "red"}, download_retry=0))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("s3:/bucket/x.tar", r"s3:/bucket/x\.tar: a URL has two slashes: s3://bucket/x\.tar"),
        (Path("s3://bucket/x.tar"), "pathlib drops a slash of a URL: pass it as a str"),
        ("S3://bucket/x.tar", "small letters: s3://"),
    ],
)
def test_misspelt_urls(path: Any, hint: str) -> None:
    """They are told from missing files, and how to write them is said."""
    with pytest.raises(StoreError, match=hint):
        open_store(path)


def test_google_by_the_name_of_gcsfs() -> None:
    """gcs:// is gs://."""
    options = Remote({"anon": True})
    assert "gcs://bucket" == client_of("gcs://bucket/x.tar", options)[0]._bucket  # type: ignore[attr-defined]


def test_the_hub(server: RangeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path of the hub is read from its address, at a revision, with the user's token."""
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    server.put("datasets/org/name/resolve/v2/a/one", DATA)
    assert DATA[5:9] == open_file("hf://datasets/org/name@v2/a/one").read(5, 9).tobytes()
    assert hub_url("hf://org/model/x") == f"{server.url}/org/model/resolve/main/x"
    with pytest.raises(
        StoreError, match=r"hf://datasets/x: expected hf://datasets/ORGANISATION/NAME\[@REVISION\]/PATH"
    ):
        hub_url("hf://datasets/x")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
    assert with_token({}) == {}
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))
    (tmp_path / "token").write_text("stored\n")
    assert with_token({}) == {"headers": {"authorization": "Bearer stored"}}
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "huggingface_hub", None)
        assert with_token({}) == {}
        without.setenv("HF_TOKEN", "named")
        assert with_token({}) == {"headers": {"authorization": "Bearer named"}}
    assert with_token({"token": "own"}) == {"headers": {"authorization": "Bearer own"}}
    assert with_token({"anon": True}) == {}


def test_options_travel_with_a_pickle(server: RangeServer, tmp_path: Path) -> None:
    """A store that another process receives opens its objects with the same options."""
    server.put("bucket/x.tar", Path(write(tmp_path / "x.tar", make_samples(5))).read_bytes())
    options = Remote({"endpoint": server.url, "anon": True, "region": "r"})
    with open_store("s3://bucket/x.tar", remote=options) as store:
        copied = pickle.loads(pickle.dumps(store))
        assert copied.keys([4]) == store.keys([4])
        copied.close()
