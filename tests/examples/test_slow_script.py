"""The slow script and its cure: what the doctor prints for the first is what the second does."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from fastio.cli import cli
from fastio.measure.doctor.gather import facts_of
from fastio.measure.doctor.loading import pack
from fastio.measure.doctor.session import ObservationPlan, observe
from fastio.measure.loop.user_code import run_script as run_script_of_user
from tests.examples.class_photos import write_class_photos
from tests.examples.running import EXAMPLES, commands, numbers, run_script
from tests.measure.doctor import torchvision_stand_ins


@pytest.fixture(autouse=True)
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of photos, and the script beside it; torchvision is not installed for tests."""
    monkeypatch.chdir(tmp_path)
    write_class_photos(tmp_path / "photos")
    (tmp_path / "slow_script.py").write_text((EXAMPLES / "slow_script.py").read_text())
    monkeypatch.setitem(sys.modules, "torchvision", torchvision_stand_ins)
    monkeypatch.setitem(sys.modules, "torchvision.transforms", torchvision_stand_ins)


def statements(code: str) -> list[str]:
    """Every statement in some lines of Python, however they are laid out."""
    return [ast.dump(node) for node in ast.walk(ast.parse(code)) if isinstance(node, ast.stmt)]


def test_the_doctor_prints_the_lines_of_the_cure() -> None:
    """Watching the script tells the doctor how to pack its photos, and its FastLoader is that of the cured script."""
    plan = ObservationPlan(seconds=0.2, profiled=0)
    facts = observe(lambda _: run_script_of_user("slow_script.py", ["photos"]), plan, facts_of)
    assert facts.loader is not None
    advice = pack(facts, facts.loader, "slow_decode")
    assert advice is not None
    command, lines = advice.code.split("\n", 1)
    cured = statements((EXAMPLES / "slow_script_cured.py").read_text())

    assert command.removeprefix("$ ").split() == commands("slow_script_cured.py")[0]
    (loader,) = [line for line in statements(lines) if not line.startswith("ImportFrom")]
    assert loader in cured, lines


def test_both_train() -> None:
    """Ten epochs of each, enough for the doctor to profile steps; the loader's lines have changed, the loop has not."""
    cli([*commands("slow_script_cured.py")[0][1:]], standalone_mode=False)

    assert 10 == len(numbers("loss", run_script("slow_script.py", "photos")))
    assert 10 == len(numbers("loss", run_script("slow_script_cured.py")))
