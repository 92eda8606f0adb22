"""The rules of the house, executed: layers of folders, no import cycles, no loose modules, torch where tensors are."""

from __future__ import annotations

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Top to bottom. Each name is a folder of fastio/ with all that lies in it, or one of the modules beside them.
# What draws conclusions from measurements, shows them or trains for them stands above the folder that measures.
LAYERS = (
    {"__main__"},
    {"cli"},
    {"measure.doctor", "measure.report"},
    {"ray", "computing", "measure.trainer"},
    {"converters", "integrations", "measure"},
    {"loader"},
    {"transforms"},
    {"dataset"},
    {"samplers"},
    {"store", "codec"},
    {"types", "machine"},
    {"errors", "lazy", "_native"},
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

# The folders whose modules work without torch: packing, info, ls and verify need none.
WITHOUT_TORCH = {"cli", "codec", "converters", "machine", "measure.report", "store", "types"}


def modules() -> dict[str, Path]:
    """Every module by its import name; converters/ is installed as fastio.converters, guide/ is no part of either."""
    by_name = {}
    for folder, name in ((ROOT / "fastio", "fastio"), (ROOT / "converters", "fastio.converters")):
        for path in sorted(path for path in folder.rglob("*.py") if ROOT / "fastio" / "guide" not in path.parents):
            parts = path.relative_to(folder).with_suffix("").parts
            by_name[".".join((name, *parts)).removesuffix(".__init__")] = path
    return by_name


MODULES = modules()


@cache
def imports(module: str) -> frozenset[str]:
    """Every name that a module imports, also inside functions: modules of fastio whole, of others as written."""
    names, stub = set(), MODULES[module].with_suffix(".pyi")  # of a package, what it imports on first use
    trees = [ast.parse(path.read_text()) for path in (MODULES[module], stub) if path.exists()]
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            assert node.module is not None
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {"torch"} & {member.removeprefix("fastio.lazy.") for member in members}
            names |= {member if member in MODULES or member == "fastio._native" else node.module for member in members}
    return frozenset(names)


def folder_of(module: str) -> str:
    """The folder of fastio/, or the module beside them, that a module belongs to."""
    parts = module.split(".")
    within = ".".join(parts[1:3])
    return within if within in LEVEL else "".join(parts[1:2])


def test_every_folder_has_a_layer() -> None:
    """A new folder gets its place in LAYERS and in fastio/README.md."""
    assert [] == [module for module in MODULES if module != "fastio" and folder_of(module) not in LEVEL]


def test_imports_go_down() -> None:
    """No import goes up or sideways: store and codec, say, never meet."""
    wrong = []
    for module in MODULES.keys() - {"fastio"}:
        own = folder_of(module)
        for name in imports(module):
            other = folder_of(name)
            if name.split(".")[0] != "fastio" or (name == "fastio" and own == "cli"):
                continue  # the public face reaches everything: only the top layer stands above that
            if not (other == own or (other in LEVEL and LEVEL[other] > LEVEL[own])):
                wrong.append(f"{module} imports {name}")

    assert [] == sorted(wrong)


def test_no_import_cycles() -> None:
    """No module imports itself by way of others, not even inside a function."""
    graph = {module: (imports(module) & MODULES.keys()) - {module} for module in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as exc:
        pytest.fail(" imports ".join(reversed(exc.args[1])))


def test_no_loose_modules() -> None:
    """Beside its folders fastio/ has the public face, ``python -m fastio``, the exceptions and the lazy names."""
    files = {path.name for path in (ROOT / "fastio").glob("*.py")}

    assert {"__init__.py", "__main__.py", "errors.py", "lazy.py"} == files


def test_the_public_face_is_lazy() -> None:
    """fastio/__init__.py imports the exceptions at run time; all names come when they are first used."""
    tree = ast.parse(MODULES["fastio"].read_text())
    eager = [node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.module != "__future__"]

    assert [name for name in eager if name and name.startswith("fastio")] == ["fastio", "fastio.lazy"]


def test_torch_is_imported_where_tensors_are_made() -> None:
    """Folders that pack, list and verify do not import torch."""
    users = {module for module in MODULES if any(name.split(".")[0] == "torch" for name in imports(module))}

    assert [] == sorted(module for module in users if folder_of(module) in {"", "errors", *WITHOUT_TORCH})


def test_every_folder_says_what_it_is() -> None:
    """The first line of a folder's ``__init__.py`` says in one sentence what lies there."""
    first_lines = {
        module: (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
        for module, path in MODULES.items()
        if path.name == "__init__.py"
    }

    assert [] == [module for module, line in first_lines.items() if not line.endswith(".")]


def test_tests_mirror_the_folders() -> None:
    """Each folder of tests has the name of the folder that it tests."""
    tested = {path.parent.relative_to(ROOT / "tests").as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    folders = {path.parent.relative_to(ROOT / "fastio").as_posix() for path in (ROOT / "fastio").rglob("*.py")}
    others = {path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "converters").rglob("*.py")}

    of_no_folder = {".", "benchmarks", "compatibility", "docs", "examples", "matrix", "native", "servers"}

    assert set() == tested - folders - others - of_no_folder


def test_the_map_names_every_module() -> None:
    """fastio/README.md says where everything is."""
    text = (ROOT / "fastio" / "README.md").read_text()
    missing = [
        name
        for name, path in MODULES.items()
        if name.startswith("fastio.") and path.parent == ROOT / "fastio" and f"`{path.name}`" not in text
    ]

    assert missing == []
