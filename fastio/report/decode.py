"""The page of ``bench decode``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastio.report.page import Bar, Bars, Page, ReferenceLine, Section, Table
from fastio.types.units import number, per_second

__all__ = ["decode_page"]


def decode_page(report: Mapping[str, Any]) -> Page:
    """Build the page from the form ``fastio.bench.decode``; other decoders are compared with its first one."""
    decoders = report["decoders"]
    base = decoders[0]
    bars = Bars(
        "Images per second of one CPU, with the spread of the rounds; the dashed line is the first decoder:",
        [
            Bar(
                decoder["name"],
                decoder["images_per_cpu_s"],
                f"{per_second(decoder['images_per_cpu_s'])} "
                f"({decoder['images_per_cpu_s'] / base['images_per_cpu_s']:.2f}x)",
                "training" if decoder["name"].startswith("fastio") else "plain",
                (decoder["slowest_images_per_cpu_s"], decoder["fastest_images_per_cpu_s"]),
            )
            for decoder in decoders
        ],
        ReferenceLine(base["images_per_cpu_s"], base["name"]),
    )
    differences = Table(
        ("decoder", "mean", "99 % of pixels differ by less than", "greatest"),
        [
            (
                decoder["name"],
                f"{decoder['mean_difference']:.3f}",
                f"{decoder['p99_difference']:.0f}",
                str(decoder["max_difference"]),
            )
            for decoder in decoders
        ],
        (1, 2, 3),
        f"Difference from the pixels of {base['name']}, of 255",
    )
    figures = [("pictures", number(report["pictures"])), ("rounds", number(report["rounds"]))]
    figures.append(("crop", "none" if report["crop"] is None else f"{report['crop']} pixels"))
    sections = [Section("Rates", [bars]), Section("Pixels", [differences])]
    return Page("Decoders on one CPU", report["data"], sections, figures=figures)
