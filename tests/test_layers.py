"""The layer rule of fastio/README.md, executed: a module imports from below its own layer or from its own folder."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Top to bottom. Each name is a folder of fastio/, with all that lies in it, or a public module.
LAYERS = (
    {"__main__"},
    {"cli"},
    {"doctor", "report"},
    {"trainer"},
    {"converters", "integrations", "measure"},
    {"loader"},
    {"transforms"},
    {"dataset"},
    {"samplers"},
    {"store", "codec"},
    {"types", "machine"},
    {"errors", "_native"},
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def modules() -> dict[str, Path]:
    """Every module by its import name; converters/ is installed as fastio.converters."""
    found = {}
    for folder, name in ((ROOT / "fastio", "fastio"), (ROOT / "converters", "fastio.converters")):
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((name, *parts)).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def imported(tree: ast.AST) -> set[str]:
    """The fastio modules that a file imports anywhere, also inside functions."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {member if member in MODULES or member == "fastio._native" else node.module for member in members}
    return {name for name in names if name.split(".")[0] == "fastio"}


def layer_of(module: str) -> str:
    """The module of fastio/, or the folder, that a module belongs to."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


@pytest.mark.parametrize("module", [name for name in MODULES if name != "fastio"])
def test_imports_go_down(module: str) -> None:
    """No import goes up or sideways: store and codec, say, never meet."""
    own = layer_of(module)
    assert own in LEVEL, f"{module} has no place in LAYERS and in fastio/README.md"
    for name in imported(ast.parse(MODULES[module].read_text())):
        other = layer_of(name)
        if name == "fastio" and own == "cli":
            continue  # the public face reaches everything: only the top layer stands above that
        assert other == own or (other in LEVEL and LEVEL[other] > LEVEL[own]), f"{module} imports {name}"


def test_the_public_face_is_lazy() -> None:
    """fastio/__init__.py imports the exceptions only, at run time."""
    tree = ast.parse(MODULES["fastio"].read_text())
    eager = [node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.module != "__future__"]

    assert [name for name in eager if name and name.startswith("fastio")] == ["fastio.errors"]


def test_torch_is_imported_where_tensors_are_made() -> None:
    """Packing, info, ls and verify need no torch: only the modules that hand out tensors import it."""
    users = {
        name
        for name, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "torch" for alias in node.names))
        or (isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "torch")
    }

    tensors = ("fastio.dataset.", "fastio.loader.", "fastio.transforms.", "fastio.samplers.")
    tools = ("fastio.measure.", "fastio.trainer.", "fastio.integrations.", "fastio.doctor.")
    assert [name for name in sorted(users) if not name.startswith((*tensors, *tools))] == []


def test_the_map_names_every_module() -> None:
    """fastio/README.md says where everything is."""
    text = (ROOT / "fastio" / "README.md").read_text()
    missing = [
        name
        for name, path in MODULES.items()
        if name.startswith("fastio.") and path.parent == ROOT / "fastio" and f"`{path.name}`" not in text
    ]

    assert missing == []
