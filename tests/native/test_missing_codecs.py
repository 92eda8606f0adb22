"""Building without compiler or headers: CMake says in one line what is missing and what brings it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cmake import CMAKE_BIN_DIR

CODECS = Path(__file__).parents[2] / "native" / "codecs.cmake"
NAMES = ("JPEG_INCLUDE", "JPEG_LIBRARY", "DEFLATE_INCLUDE", "DEFLATE_LIBRARY", "HIGHWAY_INCLUDE")
LIBRARIES = dict.fromkeys(NAMES, "/here")
WEBP = dict.fromkeys(("WEBP_INCLUDE", "WEBP_LIBRARY", "WEBPDEMUX_LIBRARY"), "/here")


def search(empty: Path, **present: str) -> list[str]:
    """The lines that the search for codecs prints where only ``present`` is installed."""
    only = [f"-DCMAKE_FIND_ROOT_PATH_MODE_{kind}=ONLY" for kind in ("INCLUDE", "LIBRARY")]
    variables = [f"-D{name}={value}" for name, value in present.items()]
    command = [Path(CMAKE_BIN_DIR) / "cmake", f"-DCMAKE_FIND_ROOT_PATH={empty}", *only, *variables, "-P", CODECS]
    printed = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False).stderr
    return [line.strip() for line in printed.splitlines()]


def test_all_that_is_missing_stands_in_one_line(tmp_path: Path) -> None:
    """Each library is named by its header, and by its package of Debian, Fedora, conda-forge and Homebrew."""
    assert (
        "fastio needs libjpeg-turbo (jpeglib.h), libdeflate (libdeflate.h), Highway (hwy/highway.h), "
        "libwebp (webp/demux.h, for WebP): "
        "apt install libjpeg62-turbo-dev libdeflate-dev libhwy-dev libwebp-dev"
        " | dnf install libjpeg-turbo-devel libdeflate-devel highway-devel libwebp-devel"
        " | conda install -c conda-forge libjpeg-turbo libdeflate libhwy libwebp"
        " | brew install jpeg-turbo libdeflate highway webp"
    ) in search(tmp_path)


def test_a_machine_that_has_never_built_anything(tmp_path: Path) -> None:
    """Compiler and Python's headers stand in the same line as the libraries."""
    folder = tmp_path / "include" / "python3.12"
    folder.mkdir(parents=True)

    assert (
        "fastio needs a C++20 compiler, Python's headers (Python.h): apt install g++ python3.12-dev"
        " | dnf install gcc-c++ python3-devel"
        " | conda install -c conda-forge cxx-compiler python"
        " | brew install gcc python"
    ) in search(tmp_path, **LIBRARIES, **WEBP, HAS_COMPILER="", Python_INCLUDE_DIR=str(folder))


def test_headers_of_python_that_are_there(tmp_path: Path) -> None:
    """The folder that scikit-build-core names is looked into."""
    (tmp_path / "Python.h").touch()

    assert search(tmp_path, **LIBRARIES, HAS_COMPILER="/usr/bin/c++", Python_INCLUDE_DIR=str(tmp_path)) == []


def test_what_is_there_is_not_named(tmp_path: Path) -> None:
    """Where only one library is missing, the line names this one."""
    present = {"JPEG_INCLUDE": "/here", "JPEG_LIBRARY": "/here/libjpeg.a", "HIGHWAY_INCLUDE": "/here"}

    (line,) = (line for line in search(tmp_path, **present, **WEBP) if "fastio needs" in line)

    assert line.startswith("fastio needs libdeflate (libdeflate.h): apt install libdeflate-dev | ")


def test_nothing_is_said_where_all_is_there(tmp_path: Path) -> None:
    """WebP is optional, since Pillow decodes it: it is only named where something else is missing."""
    assert search(tmp_path, **LIBRARIES) == []
