"""What is imported when it is first used: names of packages, and torch."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    import torch
    from torch.utils.data import Dataset, DistributedSampler, Subset
    from typing_extensions import TypeIs

__all__ = [
    "Dataset",
    "DistributedSampler",
    "Subset",
    "attach_stub",
    "data_worker",
    "imported_torch",
    "is_tensor",
    "torch",
    "torch_base",
    "torch_class",
    "torch_if_there",
]

_HANDED_ON = re.compile(r"from (?P<home>\S+) import (?P<name>\w+) as (?P=name)\n?")
_DECLARED = re.compile(r"(?P<name>\w+): ")


def attach_stub(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """
    Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package whose public names ``__init__.pyi`` lists.

    That stub is the one list of them. Editors and type checkers read it instead of ``__init__.py``; here it says where
    each name lies: ``from fastio.store.opening import open_store as open_store``. A name is imported when it is first
    used, and is an attribute of the package from then on. No name may be that of a module in the package: importing the
    module would replace it. What the stub declares in other ways, the package itself defines.

    An AttributeError within a module that is imported so is raised again as ImportError: Python would take it for "no
    such name" and drop what it says. So is that of a misspelt class in ``from PACKAGE import NAME``, which names the
    one that is meant.
    """
    face = sys.modules[package]
    assert face.__file__ is not None
    homes, own = _read(face.__file__.rpartition(".")[0] + ".pyi")
    names = sorted([*homes, *own])

    def public(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            from difflib import get_close_matches  # which costs `import fastio` more than its own modules do

            near = get_close_matches(name, names, n=1) if name[:1].isupper() else []  # others may be modules
            if near and _is_imported(sys._getframe(1)):
                raise ImportError(f"{package} has no {name}: did you mean {near[0]}?", name=package)
            advice = f": did you mean {near[0]}?" if near else f"; it has {', '.join(names)}"
            raise AttributeError(f"module {package!r} has no attribute {name!r}{advice}")
        try:
            value = getattr(import_module(home), name)
        except AttributeError as exc:
            raise ImportError(f"{package}.{name}: {home} cannot be imported: {exc}", name=home) from exc
        setattr(face, name, value)
        return value

    return public, lambda: list(names), names


def _is_imported(caller: FrameType) -> bool:
    """Whether ``from PACKAGE import NAME`` asks a package for a name, perhaps through a ``__getattr__`` of its own."""
    callers = (caller, caller.f_back)
    return any(each is not None and each.f_code.co_name == "_handle_fromlist" for each in callers)


def _read(stub: str) -> tuple[Mapping[str, str], list[str]]:
    """Return the module of each name that a stub hands on, and the names that it declares: a line each."""
    homes, own = dict[str, str](), list[str]()
    # Neither ast nor pathlib: `import fastio` would take a third longer.
    with open(stub, encoding="utf-8") as lines:  # noqa: PTH123
        for line in lines:
            if handed_on := _HANDED_ON.fullmatch(line):
                homes[handed_on["name"]] = handed_on["home"]
            elif declared := _DECLARED.match(line):
                own.append(declared["name"])
            elif line.strip():
                raise ValueError(f"{stub}: expected `from MODULE import NAME as NAME` or `NAME: TYPE`, got {line!r}")
    return homes, own


# torch: imported by the first use of one of its names. Modules of fastio write ``from fastio.lazy import torch``.


class _Torch(ModuleType):
    """
    The module torch, imported when a name of it is first used; from then on, names are found as fast as in torch.

    Raises ImportError, in one line, if torch cannot be imported.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what asks a module for these, such as inspect, wants no torch
            raise AttributeError(f"module 'torch', which fastio has not imported, has no attribute {name!r}")
        value = getattr(imported_torch(), name)
        if isinstance(value, (ModuleType, type)):  # not functions, which tests replace
            setattr(self, name, value)
        return value


def imported_torch() -> ModuleType:
    """Import torch and return it. Raises ImportError, in one line, if it cannot be imported."""
    try:
        return import_module("torch")
    except ImportError as exc:
        raise ImportError(
            f"this needs torch, which cannot be imported ({exc}): pip install torch",
            name="torch",
        ) from exc


def is_tensor(value: object) -> TypeIs[torch.Tensor]:
    """Whether a value is a tensor of torch, which need not be imported for that."""
    module = sys.modules.get("torch")
    return module is not None and isinstance(value, module.Tensor)


def data_worker() -> Any:
    """Return what torch says of the worker of its DataLoader that this process is; None if it is none."""
    data = sys.modules.get("torch.utils.data")
    return None if data is None else data.get_worker_info()


def torch_class(name: str) -> Any:
    """Return a class of torch by its dotted name, for isinstance; if torch was not imported, (): nothing is one."""
    home, _, own = f"torch.{name}".rpartition(".")
    return getattr(sys.modules.get(home), own, ())


def torch_if_there() -> ModuleType | None:
    """Import torch and return it; None where it cannot be imported."""
    try:
        return import_module("torch")
    except ImportError:
        return None


def torch_base(name: str) -> Any:
    """Return a class of torch by its dotted name, to derive from; a class without members if torch is not there."""
    home, _, own = f"torch.{name}".rpartition(".")
    try:
        return getattr(import_module(home), own)
    except ImportError:
        return type(own, (), {"__class_getitem__": classmethod(lambda cls, _item: cls)})


if not TYPE_CHECKING:
    torch = _Torch("torch")
    _T = TypeVar("_T")

    def _derive(kind: type) -> None:
        """Put classes of torch, if it has been imported, in the places of those that stand in for them."""
        data = sys.modules.get("torch.utils.data")
        for each in kind.__mro__ if data is not None else ():
            bases = [
                base if _Later not in base.__bases__ else getattr(data, base.__name__, base) for base in each.__bases__
            ]
            if bases != list(each.__bases__):
                each.__bases__ = tuple(bases)

    class _Later:
        """
        Makes a class stand in for one of torch.utils.data of the same name: deriving from it does not import torch.

        What derives from it derives from torch's own as soon as torch has been imported: from its definition on, or
        from the next ``__init__`` of an object. Nobody can ask for torch's class before.
        """

        __slots__ = ()

        def __init_subclass__(cls) -> None:
            super().__init_subclass__()
            _derive(cls)

        def __init__(self) -> None:
            _derive(type(self))

    # Generic comes first, as in torch: Python then lets one take the place of the other.
    class Dataset(Generic[_T], _Later):
        """Stands in for torch's."""

        def __add__(self, other: Any) -> Any:
            return torch.utils.data.ConcatDataset([self, other])

    class Subset(Dataset[_T], _Later):
        """Stands in for torch's."""

        def __init__(self, dataset: Any, indices: list[int]) -> None:
            super().__init__()
            self.dataset, self.indices = dataset, indices

    class DistributedSampler(Generic[_T], _Later):
        """Stands in for torch's."""

        def __init__(self, dataset: Any, num_replicas: int, rank: int, *, shuffle: bool) -> None:
            super().__init__()
            self.dataset, self.num_replicas, self.rank, self.shuffle = dataset, num_replicas, rank, shuffle
