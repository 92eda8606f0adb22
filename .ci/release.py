"""Checks, builds and hashes a release, and stops before uploading: ``make release VERSION=0.2.0``.

All that speaks against a release is said at once, before anything is built. The build is that of a checkout of its own,
so that nothing is in it that is not committed; only the README is another one there, since an index knows no files
beside it: links into the project lead to its address, and without one they are text. What is built is looked at again:
names, versions, and whether the README renders on an index. Nothing is uploaded, tagged or pushed.
"""

from __future__ import annotations

import datetime
import hashlib
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from email.parser import BytesParser
from email.policy import default
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).parent.parent
TARGETS = ("sdist", "wheel", "wheel-aarch64")
_DATED = re.compile(r"^## (?P<version>\S+) - (?P<date>\d{4}-\d{2}-\d{2})$")
_IMAGE = re.compile(r"!\[(?P<text>[^\]]*)\]\((?!https?://)(?P<path>[^)\s]+)\)")
_TEXT_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?!https?://|mailto:)(?P<path>[^)\s]+)\)")
_LINK = re.compile(r"\]\((?!https?://|#|mailto:)[^)\s]+\)|(?:src|href)=\"(?!https?://|#|mailto:)")


def main() -> None:
    """Do it for the version in the arguments."""
    if len(sys.argv) != 2 or not sys.argv[1]:
        sys.exit("error: say which version: make release VERSION=0.2.0")
    version = sys.argv[1]
    problems = reasons_against(ROOT, version)
    if problems:
        _refuse(f"{version} cannot be released", problems)
    # By its path: fastio is not installed where a release is built.
    address = runpy.run_path(str(ROOT / ".ci/docs/address.py"))["repository_address"](ROOT)
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    with _checkout(ROOT) as folder:
        readme = folder / "README.md"
        readme.write_text(readme_for_index(readme.read_text(encoding="utf-8"), address, version), encoding="utf-8")
        for target in TARGETS:
            _say(f"make {target}")
            subprocess.run(["make", "--no-print-directory", target], cwd=folder, check=True)
        shutil.copytree(folder / "dist", dist)
    files = sorted(path for path in dist.iterdir() if path.suffix in (".whl", ".gz"))
    problems = [problem for file in files for problem in reasons_against_file(file, version)]
    problems += missing_files(files)
    if problems:
        _refuse(f"what was built of {version} is not right", problems)
    _say("twine check --strict")
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], check=True)
    (dist / "SHA256SUMS").write_text(hashes(files), encoding="ascii")
    print(f"\n{version} is ready. Nothing was uploaded. Would be uploaded:\n")
    if address is None:
        print("No public address is known, in [project.urls] or as origin: the index will show links as text.\n")
    print(hashes(files))
    print(upload_commands(version, files))


def reasons_against(root: Path, version: str) -> list[str]:
    """Return what must be done before this version is built, in sentences."""
    reasons = []
    changed = _git(root, "status", "--porcelain").splitlines()
    if changed:
        reasons.append(f"the working tree is not clean: {len(changed)} changed files, {changed[0][3:]} is one: commit")
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if project["version"] != version:
        reasons.append(f"pyproject.toml says version {project['version']}: make it {version}")
    tag, tags_here = f"v{version}", _git(root, "tag", "--points-at", "HEAD").split()
    if tag not in tags_here and _git(root, "tag", "--list", tag):
        reasons.append(f"the tag {tag} is there and is another commit: choose the next version")
    reasons += _reasons_in_changelog((root / "fastio/guide/changelog.md").read_text(encoding="utf-8"), version)
    if not (root / f"tests/compatibility/{version}.json").exists():
        reasons.append(f"no stores of {version} are kept: python -m tests.compatibility.write_stores")
    return reasons


def _reasons_in_changelog(text: str, version: str) -> list[str]:
    sections = {}
    for section in re.split(r"(?m)^(?=## )", text)[1:]:
        title, _, body = section.partition("\n")
        sections[title] = body.strip()
    dated = {match["version"]: match["date"] for title in sections if (match := _DATED.match(title))}
    reasons = []
    if version not in dated:
        reasons.append(f"the changelog has no section '## {version} - {datetime.date.today()}'")
    elif not sections[f"## {version} - {dated[version]}"]:
        reasons.append(f"the changelog says nothing of {version}")
    elif dated[version] > str(datetime.date.today()):
        reasons.append(f"the changelog dates {version} {dated[version]}, which is to come")
    if sections.get("## Unreleased"):
        reasons.append("the changelog has lines under 'Unreleased': move them to a version")
    return reasons


def missing_files(files: list[Path]) -> list[str]:
    """Return which kinds of files a release must have and these lack."""
    wanted = {"a source archive": r"\.tar\.gz$"}
    for processor, in_names in (("x86-64", "x86_64"), ("64-bit ARM", "aarch64")):
        wanted[f"a wheel for CPython 3.11 on {processor}"] = rf"-cp311-cp311-manylinux\S*{in_names}\.whl$"
        wanted[f"a wheel for CPython 3.12 and later on {processor}"] = rf"-cp312-abi3-manylinux\S*{in_names}\.whl$"
    return [
        f"{what} is missing among {', '.join(file.name for file in files) or 'no files'}"
        for what, pattern in wanted.items()
        if not any(re.search(pattern, file.name) for file in files)
    ]


def reasons_against_file(file: Path, version: str) -> list[str]:
    """Return what is wrong with one built file: version, and links of the README that lead nowhere on an index."""
    metadata = BytesParser(policy=default).parsebytes(_metadata(file))
    reasons = [] if metadata["Version"] == version else [f"{file.name}: is of version {metadata['Version']}"]
    description = metadata.get_payload() or ""
    links = _LINK.findall(str(description))
    if not description:
        reasons.append(f"{file.name}: has no README")
    if links:
        reasons.append(f"{file.name}: {len(links)} links of the README lead nowhere on an index: {links[0]} is one")
    return reasons


def _metadata(file: Path) -> bytes:
    """Return METADATA of a wheel, or PKG-INFO of a source archive."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            (name,) = (name for name in wheel.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
            return wheel.read(name)
    with tarfile.open(file) as archive:
        (member,) = (member for member in archive if re.fullmatch(r"[^/]+/PKG-INFO", member.name))
        content = archive.extractfile(member)
        assert content is not None
        return content.read()


def hashes(files: list[Path]) -> str:
    """Return the lines of SHA256SUMS, which ``sha256sum --check`` reads."""
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)


def upload_commands(version: str, files: list[Path]) -> str:
    """Return the commands that publish the release, for a person to type."""
    return "\n".join(
        [
            "To publish it, on the commit that was built:\n",
            f"    git tag -s v{version} -m 'fastio {version}' && git push origin v{version}",
            f"    twine upload {' '.join(f'dist/{file.name}' for file in files)}",
        ]
    )


def _refuse(what: str, reasons: list[str]) -> NoReturn:
    sys.exit("\n".join([f"error: {what}:", *(f"  * {reason}" for reason in reasons)]))


def readme_for_index(text: str, address: str | None, version: str) -> str:
    """Return the README with links and pictures that lead to this version at ``address``; None: links become text."""
    if address is None:
        return _TEXT_LINK.sub(r"\g<text>", _IMAGE.sub("", text))
    text = _IMAGE.sub(rf"![\g<text>]({address}/raw/v{version}/\g<path>)", text)
    return _TEXT_LINK.sub(rf"[\g<text>]({address}/blob/v{version}/\g<path>)", text)


@contextmanager
def _checkout(root: Path) -> Iterator[Path]:
    """A checkout of HEAD in a folder of its own, with the tools for wheels that are there already."""
    folder, tools = root / "build" / "release", root / "build" / "wheel-tools"
    shutil.rmtree(folder, ignore_errors=True)
    _git(root, "worktree", "prune")
    _git(root, "worktree", "add", "--detach", str(folder), "HEAD")
    try:
        if tools.exists():
            (folder / "build").mkdir()
            (folder / "build" / "wheel-tools").symlink_to(tools)
        yield folder
    finally:
        _git(root, "worktree", "remove", "--force", str(folder))


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout.rstrip()


def _say(what: str) -> None:
    print(f"\n== {what}", flush=True)


if __name__ == "__main__":
    main()
