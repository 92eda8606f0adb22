"""The guide of clusters: its scripts and its manifest pack a set, under the variables that schedulers set."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from fastio.cli import cli
from fastio.converters import open_source, pack
from tests.conftest import encode, pictures

PAGE = (Path(__file__).parents[1] / "fastio" / "guide" / "clusters.md").read_text()
PARTS = 4


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with photos, where the page has /data."""
    for number, pixels in enumerate(pictures(40)):
        path = tmp_path / "photos" / f"class{number % 2}" / f"{number:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(pixels))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def script(language: str, word: str) -> str:
    """The code of the page in this language that holds a word."""
    return next(code for code in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if word in code)


def run(words: list[str], data: Path, env: Mapping[str, str] | None = None) -> None:
    """Run a command of the page in small shards."""
    assert "fastio" == words[0]
    words = [word.replace("/data", str(data)) for word in words[1:]]
    size = ["--shard-size", "10kB"] if words[0] == "pack" else []
    result = CliRunner().invoke(cli, [*words, *size], env=env)
    assert 0 == result.exit_code, result.output


def check_set(data: Path, name: str) -> None:
    """The set is that of one process, to the bit."""
    alone = data / "alone"
    alone.mkdir()
    pack(open_source(data / "photos"), alone / f"{name}-%06d.tar", shard_bytes=10_000)
    files = {path.name: path.read_bytes() for path in alone.iterdir()}

    assert len(files) > PARTS
    assert files == {path.name: path.read_bytes() for path in data.glob(f"{name}*")}


def test_parts_make_the_set(data: Path) -> None:
    """Four parts, each once, then a seal that finds it done."""
    lines = re.findall(r"^\$ (fastio .*?)(?:  #.*)?$", script("console", "--part 0/4"), re.MULTILINE)
    for number in reversed(range(PARTS)):
        run(shlex.split(lines[0].replace("0/4", f"{number}/{PARTS}")), data)
    run(shlex.split(lines[1]), data)

    check_set(data, "train")


def test_a_slurm_array_makes_the_set(data: Path) -> None:
    """Each task of the array runs the script."""
    code = script("bash", "#SBATCH")
    assert "--array=0-15" in code
    for number in range(PARTS):
        array = {"ID": number, "MIN": 0, "MAX": PARTS - 1, "COUNT": PARTS, "STEP": 1}
        env = {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in array.items()}
        run(shlex.split(code.splitlines()[-1]), data, env)

    check_set(data, "slurm")


def test_torchrun_makes_the_set(data: Path) -> None:
    """torchrun really starts it, on four processes at once."""
    words = shlex.split(script("bash", "torchrun"))
    place = words.index("fastio")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", *words[1:place]]
    command = [sys.executable, "-m", *words[place:], "--shard-size", "10kB"]
    subprocess.run([*launcher, *command], check=True, capture_output=True, timeout=200)

    check_set(data, "torchrun")


def test_a_kubernetes_job_makes_the_set(data: Path) -> None:
    """The manifest is a Job whose pods know how many they are; its command packs as each of them."""
    yaml = pytest.importorskip("yaml")
    job = yaml.safe_load(script("yaml", "kind: Job"))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (parts,) = container["env"]
    assert ("batch/v1", "Job", "Indexed") == (job["apiVersion"], job["kind"], job["spec"]["completionMode"])
    assert ("FASTIO_PARTS", str(job["spec"]["completions"])) == (parts["name"], parts["value"])
    for number in range(PARTS):
        run(container["command"], data, {"JOB_COMPLETION_INDEX": str(number), "FASTIO_PARTS": str(PARTS)})

    check_set(data, "kubernetes")
