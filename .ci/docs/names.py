"""Links names of the interface to their entries in the reference, wherever pages and signatures mention them."""

from __future__ import annotations

import ast
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.autodoc.mock import mock
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

__all__ = ["setup"]

# `FastLoader`, `FastLoader.receipt()`, `fastio.pack`: a capital in the middle, or the package's name in front.
_NAME = re.compile(r"(?:fastio\.)?(?:[\w.]+\.)?[A-Z][a-z]+[A-Z]\w*(?:\.\w+)?(?:\(\))?|fastio(?:\.\w+)+(?:\(\))?")

# What functions return, and where its contract stands.
_CONTRACTS = {"SealedStore": "SampleStore", "SealedWriter": "SampleWriter"}
# Modules whose names are written with the module (torch.device), and those whose names speak for themselves (Path).
_SPELT_OUT = {"accelerate", "PIL", "torch", "transformers"}
_KNOWN = {"builtins", "collections", "contextlib", "decimal", "fractions", "numpy", "os", "pathlib", "types", "typing"}
_TYPED: set[str] = set()  # modules whose imports for type checkers have been carried out


def _entries(env: BuildEnvironment) -> dict[str, tuple[str, str]]:
    """Return page and anchor of each documented name, by every ending of it that no other name shares."""
    objects = env.domains["py"].objects
    endings: dict[str, set[str]] = {}
    for name in (name for name, entry in objects.items() if not entry.aliased):  # aliases: where a class is defined
        parts = name.split(".")
        for start in range(len(parts)):
            endings.setdefault(".".join(parts[start:]), set()).add(name)
    chosen = {ending: min(names, key=len) for ending, names in endings.items() if len(names) == 1 or ending in names}
    return {ending: (objects[name].docname, objects[name].node_id) for ending, name in chosen.items()}


def _resolve(app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element) -> nodes.Element | None:
    """Find a type that a signature names by the module where it lies: the reference has it where users import it."""
    if node.get("refdomain") != "py" or app.builder is None:
        return None
    target = str(node["reftarget"])
    name = target.rpartition(".")[2]
    entry = _entries(env).get(target if name == target else _CONTRACTS.get(name, name))
    if entry is None:
        return _foreign(target, content)
    return make_refnode(app.builder, node["refdoc"], *entry, content, target)


def _foreign(target: str, content: nodes.Element) -> nodes.Element | None:
    """Name another project's type as its users do, without a link: the indexes of those projects lie on other hosts."""
    module, _, name = target.rpartition(".")
    if module.partition(".")[0] in _SPELT_OUT:
        return content
    return nodes.inline("", name) if module.partition(".")[0] in _KNOWN else None


class _LinkNames(SphinxPostTransform):  # type: ignore[misc] # mypy skips Sphinx
    """Turns ``FastLoader`` in running text into a link, unless it stands in its own entry, a title or a link."""

    default_priority = 400

    def run(self, **_settings: Any) -> None:
        entries = _entries(self.env)
        for literal in list(self.document.findall(nodes.literal)):
            text = literal.astext()
            if _NAME.fullmatch(text) and not _is_inside(literal, (nodes.reference, nodes.title, pending_xref)):
                entry = entries.get(text.removesuffix("()"))
                if entry is not None and not _is_own(literal, entry[1]):
                    link = make_refnode(self.app.builder, self.env.docname, *entry, literal.deepcopy(), text)
                    literal.replace_self(link)


def _is_inside(node: nodes.Node, kinds: tuple[type[nodes.Node], ...]) -> bool:
    while node.parent is not None:
        node = node.parent
        if isinstance(node, kinds):
            return True
    return False


def _is_own(node: nodes.Node, anchor: str) -> bool:
    while node.parent is not None:
        node = node.parent
        if any(anchor in child.get("ids", ()) for child in node.children if isinstance(child, nodes.Element)):
            return True
    return False


def _link_guides(_app: Sphinx, _what: str, _name: str, _value: Any, _options: Any, lines: list[str]) -> None:
    """Make links of the guides' files that a docstring names."""
    lines[:] = [re.sub(r"(?:``)?fastio/guide/([\w/]+)\.md(?:``)?", r":doc:`/\1`", line) for line in lines]


def _import_types(app: Sphinx, value: Any, _is_bound: bool) -> None:
    """Carry out a module's imports for type checkers, so that autodoc can read its annotations."""
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    source = getattr(module, "__file__", None)
    if module is None or not module.__name__.startswith("fastio") or source is None or module.__name__ in _TYPED:
        return
    _TYPED.add(module.__name__)
    for node in ast.parse(Path(source).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for statement in node.body:
                # Names of other libraries that are not installed stay as they are written.
                with suppress(ImportError), mock(app.config.autodoc_mock_imports):
                    exec(compile(ast.unparse(statement), source, "exec"), vars(module))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("autodoc-before-process-signature", _import_types)
    app.connect("autodoc-process-docstring", _link_guides)
    app.connect("missing-reference", _resolve)
    app.add_post_transform(_LinkNames)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
