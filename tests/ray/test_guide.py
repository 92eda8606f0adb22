"""The guide of clusters: its examples for Ray run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fastio.store import open_store
from tests.conftest import encode, pictures
from tests.ray import guide_jobs
from tests.ray.cluster import Cluster

GUIDE = Path(__file__).parents[2] / "fastio" / "guide" / "clusters.md"


@pytest.mark.slow
def test_the_examples_for_ray_run(cluster: Cluster, tmp_path: Path) -> None:
    """They write what they show."""
    for number, pixels in enumerate(pictures(4)):
        path = tmp_path / "photos" / f"class{number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(pixels))
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text("one two\n")
    examples = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)

    printed = cluster.run(guide_jobs.run, examples, str(tmp_path))

    assert printed.startswith("4 samples in 1 shards\n")
    assert "\n1 documents in 1 shards\n" in printed
    assert "captions-%06d.tar: 1,000 samples of caption, score; " in printed
    with open_store(tmp_path / "captions.fastio-set") as store:
        assert 1000 == len(store)
