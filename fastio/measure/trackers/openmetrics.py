"""OpenMetrics: the latest figures at an HTTP address, for Prometheus and what reads its format."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from fastio.errors import FastioError
from fastio.machine import rank_and_world
from fastio.measure.trackers.figures import Figure, Figures, library

__all__ = ["OpenMetrics"]


class OpenMetrics:
    """
    Serves the latest figures at ``http://host:port/metrics``.

    Names begin with ``fastio_`` and end in a base unit: ``fastio_loading_ratio``, ``fastio_samples_total``. Rates are
    left out: Prometheus takes them of totals, and then misses nothing between two scrapes. In a job of several ranks,
    each serves its own figures, with a label ``rank``, at ``port`` plus its rank on its node (LOCAL_RANK or
    SLURM_LOCALID). ``port=0`` takes a free port; ``self.port`` is the one in use. Only programs on this machine can
    read it unless ``host`` says otherwise, such as ``"0.0.0.0"``: there is neither a password nor encryption.

    Needs ``pip install 'fastio[metrics]'``. Raises FastioError if the port is in use.
    """

    def __init__(self, port: int = 9095, host: str = "127.0.0.1") -> None:
        client = library("prometheus_client", tracker="OpenMetrics", extra="metrics")
        if port:
            port += _rank_on_node()
        self._latest: Figures | None = None
        registry = client.CollectorRegistry()
        registry.register(_Scrapes(self, library("prometheus_client.core", tracker="OpenMetrics", extra="metrics")))
        try:
            self._server, self._thread = client.start_http_server(port, host, registry)
        except (OSError, OverflowError) as exc:
            raise FastioError(
                f"port {port} of {host}: cannot be served ({getattr(exc, 'strerror', None) or exc}); choose another, "
                "or 0 for a free one"
            ) from None
        self.host, self.port = host, int(self._server.server_port)
        self._is_closed = False

    @property
    def url(self) -> str:
        """The address of the figures."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/metrics"

    def write(self, figures: Figures) -> None:
        """Serve these figures from now on."""
        self._latest = figures

    def close(self) -> None:
        """Stop serving, and end the server's thread. Calling it twice is harmless."""
        if self._is_closed:
            return
        self._is_closed = True
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __str__(self) -> str:
        return self.url


class _Scrapes:
    """What prometheus_client asks for the figures of a scrape."""

    def __init__(self, tracker: OpenMetrics, core: Any) -> None:
        self._tracker = tracker
        self._core = core

    def collect(self) -> Iterator[Any]:
        """Yield a family of samples for each name."""
        latest = self._tracker._latest
        if latest is None:
            return
        families: dict[str, list[Figure]] = {}
        for figure in latest.figures:
            if figure.kind != "rate":
                families.setdefault(_name(figure), []).append(figure)
        for name, figures in families.items():
            is_total = figures[0].kind == "total"
            kind = self._core.CounterMetricFamily if is_total else self._core.GaugeMetricFamily
            family = kind(name, figures[0].meaning, unit=figures[0].unit)
            for figure in figures:
                family.add_sample(name + "_total" * is_total, dict((*latest.labels, *figure.labels)), figure.value)
            yield family


def _name(figure: Figure) -> str:
    return "_".join(filter(None, ("fastio", figure.name, figure.unit)))


def _rank_on_node() -> int:
    """Return this process's number among the ranks of its node; its rank if the launcher does not tell."""
    for name in ("LOCAL_RANK", "SLURM_LOCALID"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name]) if rank_and_world()[1] > 1 else 0
    return rank_and_world()[0]
