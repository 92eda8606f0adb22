"""What is imported, and when: names on first use, and by each command only what it needs. Never by time."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.converters.trees import flat
from tests.test_layers import MODULES

NETWORK = {"asyncio", "ssl", "http.client", "urllib.request", "obstore", "fsspec", "boto3", "aiohttp"}
LIBRARIES = {"torch", "h5py", "lmdb", "pyarrow", "pandas", "rich", "tokenizers", "multiprocessing"}
OF_URLS = {"fastio.store.opening_urls", "fastio.store.files.remote.clients", "fastio.store.staging"}
OF_WRITERS = {"fastio.store.write.writer", "fastio.store.write.output", "fastio.converters.sources.registry"}
LAZY = sorted(name for name, path in MODULES.items() if "= lazy_names(" in path.read_text())

# Besides these commands, what none of them may import. Files are a folder of PNGs and what is packed from it.
COMMANDS = {
    "--help": {"numpy", "PIL"} | OF_WRITERS,
    "info s.lmdb": {"PIL"} | OF_WRITERS,
    "info s-%06d.tar": {"PIL"} | OF_WRITERS,
    "ls s.lmdb": {"PIL"} | OF_WRITERS,
    "verify s.lmdb --decode": OF_WRITERS,
    "pack pngs new.lmdb": set(),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven PNGs and three stores of them."""
    folder = tmp_path_factory.mktemp("imports")
    flat(folder / "pngs")
    run(
        "from fastio.converters import open_source, pack\n"
        "for out in ('s.lmdb', 's.h5', 's-%06d.tar'):\n"
        "    pack(open_source('pngs'), out)",
        folder,
    )
    return folder


def run(script: str, folder: Path) -> set[str]:
    """The modules that a fresh interpreter has imported after a script."""
    script += "\nimport sys; print(*sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return set(ended.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_on_local_files_imports_what_it_needs(line: str, folder: Path) -> None:
    """Neither the network nor a library is imported that this command does not use."""
    modules = run(f"from fastio.cli import cli; cli({line.split()!r}, standalone_mode=False)", folder)

    assert set() == modules & (NETWORK | LIBRARIES | OF_URLS | COMMANDS[line])


def test_the_import_of_the_package_brings_nothing() -> None:
    """A script that imports fastio pays for what it uses of it."""
    assert set() == run("import fastio", Path()) & (NETWORK | LIBRARIES | {"numpy", "PIL", "click"})


def test_a_store_is_opened_without_what_others_need(folder: Path) -> None:
    """Samples of a local store need neither torch nor a writer, and no client of URLs."""
    script = "import fastio, numpy as np; fastio.open_store('s.lmdb').spans('image', np.arange(3))"

    assert set() == run(script, folder) & (NETWORK | LIBRARIES | OF_URLS | OF_WRITERS | {"PIL"})


@pytest.mark.parametrize("package", LAZY)
def test_names_on_first_use_are_those_that_type_checkers_know(package: str) -> None:
    """Each lazy name is imported below ``if TYPE_CHECKING``, from the same module, and is no module of the package."""
    path = MODULES[package]
    tree = ast.parse(path.read_text())
    (call,) = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy_names")
    homes = ast.literal_eval(call.args[1])
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    known = {
        alias.name: node.module
        for block in blocks
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    assert homes == known
    assert set() == {each.stem for each in path.parent.iterdir()} & set(homes)


@pytest.mark.parametrize("package", LAZY)
def test_dir_lists_the_names_of_a_package(package: str) -> None:
    """Completion offers every public name, also one that nothing has used yet."""
    module = import_module(package)

    assert sorted(module.__all__) == dir(module)
