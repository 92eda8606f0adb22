"""A page in a real browser: nothing fails, nothing is asked for, everything is drawn and fits."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from fastio.measure.report.html import write_page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")

_SPEC = spec_from_file_location("samples", Path(__file__).with_name("samples.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
samples = module_from_spec(_SPEC)
_SPEC.loader.exec_module(samples)

# A page around the report in frames as wide as a desktop and a phone, which writes down what it finds there.
AROUND = """<!DOCTYPE html><body><pre id="found"></pre>
<iframe src="report.html" style="width:1200px;height:900px"></iframe>
<iframe src="report.html" style="width:390px;height:800px"></iframe>
<script>
addEventListener("load", () => {
  const seen = [...document.querySelectorAll("iframe")].map((frame) => {
    const page = frame.contentDocument;
    const pixels = (canvas) => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    return {
      title: page.title.slice(0, 6),
      wide: page.documentElement.scrollWidth,
      room: page.documentElement.clientWidth,
      canvases: [...page.querySelectorAll("canvas")].map((canvas) => pixels(canvas).some((value) => value)),
      labels: [...page.querySelectorAll(".plot")].map((plot) => plot.getAttribute("aria-label")),
      charts: [...page.querySelectorAll("[data-chart]")].map((chart) => chart.dataset.chart),
      bars: [...page.querySelectorAll(".bar")].map((bar) => Math.round(bar.getBoundingClientRect().width) > 0),
      pictures: [...page.images].map((picture) => picture.naturalWidth),
      buttons: page.querySelectorAll("button").length,
      asked: frame.contentWindow.performance.getEntriesByType("resource").map((entry) => entry.name)
        .filter((name) => !name.startsWith("data:")),
    };
  });
  document.getElementById("found").textContent = JSON.stringify(seen);
});
</script></body>"""


def browse(profile: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the browser without a window; its messages come on stderr."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += [f"--user-data-dir={profile}", "--allow-file-access-from-files", "--enable-logging=stderr", *arguments]
    environment = os.environ | {"HOME": str(profile)}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the report and the page around it."""
    made = tmp_path_factory.mktemp("browser")
    write_page(made / "report.html", samples.full_page(), {"Settings": [("command", samples.LONG)]})
    (made / "around.html").write_text(AROUND)
    return made


def test_a_page_opens_is_drawn_and_fits(folder: Path) -> None:
    """No message on the console, no request, every chart there, and no sideways scrolling on a desktop or a phone."""
    ran = browse(folder / "profile", "--dump-dom", "--virtual-time-budget=3000", (folder / "around.html").as_uri())
    found = re.search(r'<pre id="found">(.*?)</pre>', ran.stdout, re.DOTALL)
    assert found is not None, ran.stderr
    frames: list[dict[str, Any]] = json.loads(html.unescape(found[1]))

    assert [] == [line for line in ran.stderr.splitlines() if "CONSOLE" in line]
    assert 2 == len(frames)
    for frame in frames:
        assert "A page" == frame["title"]
        assert frame["room"] == frame["wide"]
        assert [True] * samples.PLOTS == frame["canvases"]
        assert ["what is seen"] * samples.PLOTS == frame["labels"]
        assert ["bars", "shares", "heat", "plot", "plot"] == frame["charts"]
        assert [True, True] == frame["bars"]
        assert [8] * 4 == frame["pictures"]
        assert 5 == frame["buttons"]
        assert [] == frame["asked"]


def test_a_page_prints(folder: Path) -> None:
    """The PDF has several pages, and as many pictures as plots and photographs: the charts are in it."""
    pdf = folder / "report.pdf"
    browse(folder / "profile", f"--print-to-pdf={pdf}", (folder / "report.html").as_uri())

    assert pdf.read_bytes().startswith(b"%PDF-")
    assert pdf.read_bytes().count(b"/Subtype /Image") >= samples.PLOTS
