"""One page of each kind of part, with names that no layout expects."""

from __future__ import annotations

import io

from PIL import Image

from fastio.measure.report.page import (
    Bar,
    Bars,
    Cell,
    Code,
    HeatMap,
    Page,
    PageVerdict,
    Part,
    Picture,
    PictureGrid,
    Plot,
    Portion,
    Prose,
    ReferenceLine,
    Section,
    Series,
    Shares,
    Table,
)

LONG = "/a/very/long/path/" + "that_has_no_place_to_break" * 12 + "<script>document.title='broken'</script>"
PLOTS = 2


def full_page() -> Page:
    """Every kind of part, twice as wide as a phone where it can be."""
    coded = io.BytesIO()
    Image.new("RGB", (8, 8), (200, 30, 30)).save(coded, "JPEG")
    steps = 2000
    parts: list[Part] = [
        Prose(LONG),
        Code("x = 1  # " + "long " * 60),
        Table(("name", "file", *"abcdefgh"), [(LONG, LONG, *["1,000.00"] * 8)], range(2, 10)),
        Bars(
            "rates:",
            [Bar("loading", 3.0, "3 samples/s", "loading", (2.0, 4.0)), Bar(LONG, 0.0, "0")],
            ReferenceLine("what is wanted", 1.0, "1 sample/s"),
        ),
        Shares("parts", "ms", [Portion("one", 1.0, "1.0"), Portion("none", 0.0, "0.0")]),
        HeatMap(
            "times", "workers", [str(i) for i in range(12)], [("a", [Cell(i, f"{i}.00") for i in range(11)] + [None])]
        ),
        Plot(
            "steps",
            "what is seen",
            "step",
            range(steps),
            "ms",
            [Series("loading", [1.0] * steps, "loading"), Series("training", [2.0] * steps, "training")],
            look="stack",
        ),
        Plot("memory", "what is seen", "s", (0.0, 1.0), "bytes", [Series("used", (1e9, None), "memory")], look="held"),
        PictureGrid([Picture(coded.getvalue(), LONG, LONG), Picture(None, "damaged", "k")] * 4, 128),
    ]
    verdict = PageVerdict("Training waits for data", "io_bound", [LONG], "pack the files", "io_bound")
    return Page("A page", LONG, [Section("All", parts)], verdict, [("rate", "1,000 samples/s"), (LONG, LONG)])
