"""The page of ``bench decode``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastio.report.page import Bar, Bars, Page, ReferenceLine, Section, Table
from fastio.types.units import number, per_second

__all__ = ["decode_page"]


def decode_page(said: Mapping[str, Any]) -> Page:
    """Build the page from the form ``fastio.bench.decode``; other decoders are compared with its first one."""
    decoders = said["decoders"]
    base = decoders[0]
    bars = Bars(
        "Images per second of one CPU, with the spread of the rounds; the dashed line is the first decoder:",
        [
            Bar(
                each["name"],
                each["images_per_cpu_s"],
                f"{per_second(each['images_per_cpu_s'])} ({each['images_per_cpu_s'] / base['images_per_cpu_s']:.2f}x)",
                "training" if each["name"].startswith("fastio") else "plain",
                (each["slowest_images_per_cpu_s"], each["fastest_images_per_cpu_s"]),
            )
            for each in decoders
        ],
        ReferenceLine(base["images_per_cpu_s"], base["name"]),
    )
    differences = Table(
        ("decoder", "mean", "99 % of pixels differ by less than", "greatest"),
        [
            (
                each["name"],
                f"{each['mean_difference']:.3f}",
                f"{each['p99_difference']:.0f}",
                str(each["max_difference"]),
            )
            for each in decoders
        ],
        (1, 2, 3),
        f"Difference from the pixels of {base['name']}, of 255",
    )
    figures = [("pictures", number(said["pictures"])), ("rounds", number(said["rounds"]))]
    figures.append(("crop", "none" if said["crop"] is None else f"{said['crop']} pixels"))
    sections = [Section("Rates", [bars]), Section("Pixels", [differences])]
    return Page("Decoders on one CPU", said["data"], sections, figures=figures)
