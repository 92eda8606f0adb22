"""The guide's section about parts: its commands and its Python run in order, and say what the guide says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from click.testing import CliRunner

from fastio.cli import cli
from fastio.store import open_store
from tests.converters.trees import class_folders

GUIDE = Path(__file__).parents[3] / "fastio" / "guide" / "packing.md"
TITLE = "## A pack that was interrupted; packing by parts"


def blocks(language):
    """The fenced blocks of the section."""
    section = GUIDE.read_text().partition(TITLE)[2].partition("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


def test_the_section_runs(tmp_path, monkeypatch, capsys):
    """Each command ends well; the sets that come of it have all samples, and no shard is packed twice."""
    keys = class_folders(tmp_path / "imagenet", 20)
    monkeypatch.chdir(tmp_path)
    printed = []
    for line in "".join(blocks("console")).splitlines():
        words = shlex.split(line.removeprefix("$ fastio "), comments=True)
        words = ["8kB" if word == "1GB" else word for word in words]
        if "--resume" in words:
            (tmp_path / "large.fastio-set").unlink()
            (tmp_path / "large-000001.tar").unlink()
        result = CliRunner().invoke(cli, words)
        assert 0 == result.exit_code, result.output
        printed.append(result.output)
    (code,) = blocks("python")
    exec(compile(code.replace("10**9", "8000"), "packing.md", "exec"), {})

    assert re.search(r"packed 3 of 60 samples in .*; 57 were there, in 19 whole shards", printed[1])
    assert re.search(r"part 0/3: 6 shards with 18 samples.*14 shards missing: the last part makes the set", printed[2])
    assert re.search(r"part 2/3: 7 shards with 21 samples.*all shards are there: the set is complete", printed[4])
    assert re.search(r"parts\.fastio-set: a set of 20 shards, 60 samples", printed[5])
    assert capsys.readouterr().out.splitlines()[-1] == "60 samples"
    for name in ("large", "parts", "four"):
        with open_store(f"{name}.fastio-set") as store:
            assert keys == store.keys(range(60))
