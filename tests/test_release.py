"""What ``make release`` refuses, before it builds and after."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import zipfile
from datetime import date, timedelta
from pathlib import Path
from types import ModuleType

import pytest

from docs.address import repository_address

TOP = Path(__file__).parent.parent
CHANGELOG = "# Changelog\n\n## Unreleased\n\n## 1.2.0 - 2020-02-02\n\n* More.\n\n## 1.1.0 - 2020-01-01\n\n* First.\n"
WHEELS = [
    f"fastio-1.2.0-{tag}-manylinux_2_24_{processor}.whl"
    for processor in ("x86_64", "aarch64")
    for tag in ("cp311-cp311", "cp312-abi3")
]


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", TOP / ".ci" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = _load()


def _git(root: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of which version 1.2.0 can be released."""
    files = {
        "pyproject.toml": '[project]\nname = "fastio"\nversion = "1.2.0"\n',
        "fastio/guide/changelog.md": CHANGELOG,
        "tests/compatibility/1.2.0.json": "{}",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    _git(tmp_path, "init", "--quiet")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "--quiet", "--message", "All")
    return tmp_path


def _changed(project: Path, old: str, new: str) -> list[str]:
    """What is said of a project whose changelog was edited and committed."""
    path = project / "fastio/guide/changelog.md"
    path.write_text(path.read_text().replace(old, new))
    _git(project, "commit", "--quiet", "--all", "--message", "Edit")
    reasons: list[str] = release.reasons_against(project, "1.2.0")
    return reasons


def test_the_script_needs_nothing_that_is_installed() -> None:
    """Releases are built in an environment without fastio, whose source alone cannot be imported."""
    command = [sys.executable, "-I", "-S", TOP / ".ci" / "release.py"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)

    assert ended.stderr == "error: say which version: make release VERSION=0.2.0\n"


def test_nothing_is_said_against_a_project_that_is_ready(project: Path) -> None:
    """A clean tree, the version, the changelog and the stores are enough; a tag on this commit does no harm."""
    _git(project, "tag", "v1.2.0")

    assert release.reasons_against(project, "1.2.0") == []


def test_a_dirty_tree(project: Path) -> None:
    """A file that is not committed would not be in what others can build."""
    (project / "new.py").write_text("")

    assert release.reasons_against(project, "1.2.0") == [
        "the working tree is not clean: 1 changed files, new.py is one: commit"
    ]


def test_everything_is_said_at_once(project: Path) -> None:
    """Another version than asked for: its number, its section, its stores."""
    version, section, stores = release.reasons_against(project, "1.3.0")

    assert version == "pyproject.toml says version 1.2.0: make it 1.3.0"
    assert section.startswith("the changelog has no section '## 1.3.0 - ")
    assert stores.startswith("no stores of 1.3.0 are kept: python -m tests.compatibility")


def test_a_changelog_that_says_nothing(project: Path) -> None:
    """A section without a line is no section."""
    assert _changed(project, "* More.\n", "") == ["the changelog says nothing of 1.2.0"]


def test_a_day_that_is_to_come(project: Path) -> None:
    """A release has the day on which it is made, or an earlier one."""
    tomorrow = date.today() + timedelta(days=2)

    assert _changed(project, "2020-02-02", str(tomorrow)) == [f"the changelog dates 1.2.0 {tomorrow}, which is to come"]


def test_lines_that_belong_to_no_version(project: Path) -> None:
    """What is under 'Unreleased' would be missing in the version's own section."""
    (reason,) = _changed(project, "## Unreleased\n", "## Unreleased\n\n* Also.\n")

    assert reason.startswith("the changelog has lines under 'Unreleased'")


def test_a_tag_of_another_commit(project: Path) -> None:
    """A version that is tagged is out."""
    _git(project, "tag", "v1.2.0")

    (reason,) = _changed(project, "* First.", "* The first.")
    assert reason.startswith("the tag v1.2.0 is there and is another commit")


def test_files_that_are_missing() -> None:
    """A release has a source archive, and for both processors a wheel for each Python."""
    files = [Path("fastio-1.2.0.tar.gz"), *map(Path, WHEELS)]

    assert release.missing_files(files) == []
    assert [reason.split(" is missing")[0] for reason in release.missing_files(files[:1])] == [
        "a wheel for CPython 3.11 on x86-64",
        "a wheel for CPython 3.12 and later on x86-64",
        "a wheel for CPython 3.11 on 64-bit ARM",
        "a wheel for CPython 3.12 and later on 64-bit ARM",
    ]


def test_a_wheel_whose_readme_leads_nowhere(tmp_path: Path) -> None:
    """Links into the project, and a wheel of another version, are named."""
    path = tmp_path / WHEELS[0]
    with zipfile.ZipFile(path, "w") as wheel:
        text = "Metadata-Version: 2.1\nName: fastio\nVersion: 1.1.0\n\nSee [packing](fastio/guide/packing.md).\n"
        wheel.writestr("fastio-1.1.0.dist-info/METADATA", text)

    assert release.reasons_against_file(path, "1.2.0") == [
        f"{path.name}: is of version 1.1.0",
        f"{path.name}: 1 links of the README lead nowhere on an index: ](fastio/guide/packing.md) is one",
    ]


def test_the_readme_of_an_index_without_an_address() -> None:
    """Links into the project become text, its pictures go, the others stay."""
    text = "[map](fastio/README.md#life) ![chart](a/b.png) [out](https://example.org/x)"

    assert release.readme_for_index(text, None, "1.2.0") == "map  [out](https://example.org/x)"


def test_the_readme_of_an_index_with_an_address() -> None:
    """Links lead to the files of that version, pictures to their bytes."""
    there = release.readme_for_index("[map](fastio/README.md#life) ![chart](a/b.png)", "https://example.org/f", "1.2.0")

    assert there.split() == [
        "[map](https://example.org/f/blob/v1.2.0/fastio/README.md#life)",
        "![chart](https://example.org/f/raw/v1.2.0/a/b.png)",
    ]


def test_code_in_the_readme_stays() -> None:
    """What an index shows has every line of code that README.md has."""
    text = (TOP / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```.*?```", text, re.DOTALL)

    assert blocks == re.findall(r"```.*?```", release.readme_for_index(text, None, "1.2.0"), re.DOTALL)
    assert release._LINK.findall(release.readme_for_index(text, None, "1.2.0")) == []


def test_the_address_is_that_of_origin(project: Path) -> None:
    """An address that only its owner can reach is none; pyproject.toml may name another."""
    assert repository_address(project) is None
    _git(project, "remote", "add", "origin", "git@example.org:f.git")
    assert repository_address(project) is None
    _git(project, "remote", "set-url", "origin", "https://example.org/f.git")
    assert repository_address(project) == "https://example.org/f"
    with (project / "pyproject.toml").open("a") as file:
        file.write('[project.urls]\nHomepage = "https://example.org/f-docs"\nSource = "https://example.org/g/"\n')
    assert repository_address(project) == "https://example.org/g"


@pytest.mark.parametrize("path", sorted((TOP / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.name)
def test_workflows_make_what_there_is(path: Path) -> None:
    """Every `make TARGET` of a workflow is one of the Makefile's, and every script is there."""
    text = path.read_text(encoding="utf-8")
    known = set(re.findall(r"(?m)^([a-z][a-z0-9-]*):", (TOP / "Makefile").read_text(encoding="utf-8")))
    lines = re.findall(r"(?m)run: (?:make|\S*/?make) (.*)$", text)

    assert {word for line in lines for word in line.split() if "=" not in word and '"' not in word} <= known
    assert all((TOP / script).exists() for script in re.findall(r"run: (\.ci/\S+)", text))
