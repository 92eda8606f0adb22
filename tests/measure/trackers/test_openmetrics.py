"""OpenMetrics: what a scrape by HTTP gives, read by prometheus_client's own parser."""

from __future__ import annotations

import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from fastio.errors import FastioError
from fastio.measure.trackers import OpenMetrics
from tests.measure.trackers.numbers import figures

pytest.importorskip("prometheus_client")
from prometheus_client.openmetrics.parser import text_string_to_metric_families

OPEN = {"Accept": "application/openmetrics-text; version=1.0.0"}


@pytest.fixture(scope="module")
def tracker() -> Iterator[OpenMetrics]:
    """One at a free port, for all tests: its server takes half a second to end."""
    tracker = OpenMetrics(0)
    yield tracker
    tracker.close()


def scraped(tracker: OpenMetrics) -> str:
    """The text of a scrape."""
    with urllib.request.urlopen(urllib.request.Request(tracker.url, headers=OPEN)) as answer:
        return str(answer.read().decode())


def test_a_scrape_gives_the_latest_figures(tracker: OpenMetrics) -> None:
    """Base units end the names, totals end in _total, labels tell ranks and GPUs apart; rates are left out."""
    tracker.write(figures(1))
    tracker.write(figures(2, 0.5))
    text = scraped(tracker)
    families = {family.name: family for family in text_string_to_metric_families(text)}
    samples = {sample.name: (sample.labels, sample.value) for f in families.values() for sample in f.samples}

    assert samples == {
        "fastio_loading_median_seconds": ({"rank": "0"}, 0.5),
        "fastio_samples_total": ({"rank": "0"}, 128.0),
        "fastio_gpu_memory_used_bytes": ({"rank": "0", "gpu": "1", "slice": "0"}, 3e9),
    }
    assert ("gauge", "seconds", "Wait for a batch.") == (
        families["fastio_loading_median_seconds"].type,
        families["fastio_loading_median_seconds"].unit,
        families["fastio_loading_median_seconds"].documentation,
    )
    assert "counter" == families["fastio_samples"].type
    assert text.endswith("# EOF\n")


def test_only_this_machine_is_served(tracker: OpenMetrics) -> None:
    """Other addresses have to be asked for."""
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", tracker.url)
    assert "127.0.0.1" == tracker._server.server_address[0]


def test_a_port_in_use_is_refused_in_one_line(tracker: OpenMetrics) -> None:
    """The message names port and host; so it does for a host that is not ours."""
    with pytest.raises(FastioError, match=rf"port {tracker.port} of 127.0.0.1: cannot be served \(Address already in"):
        OpenMetrics(tracker.port)
    with pytest.raises(FastioError, match=r"host\.invalid: cannot be served"):
        OpenMetrics(0, "host.invalid")


def test_a_server_from_beginning_to_end() -> None:
    """A scrape that comes early is answered. With close() thread and port are gone; closing twice is harmless."""
    before = set(threading.enumerate())
    tracker = OpenMetrics(0)
    assert "# EOF\n" == scraped(tracker)
    tracker.close()
    tracker.close()

    assert set(threading.enumerate()) <= before
    with pytest.raises(urllib.error.URLError):
        scraped(tracker)


def test_each_rank_of_a_node_has_its_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """The port counts on with LOCAL_RANK."""
    for name, value in {"RANK": "11", "WORLD_SIZE": "16", "LOCAL_RANK": "3"}.items():
        monkeypatch.setenv(name, value)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(FastioError, match=f"port {port} of"):
            OpenMetrics(port - 3)
