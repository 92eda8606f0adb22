"""Runs the user's code: functions named ``module:function`` or ``path/script.py:function``, and scripts."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import runpy
import shutil
import sys
import sysconfig
import traceback
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from fastio.errors import FastioError

__all__ = [
    "TRAINS",
    "error_line",
    "is_function_name",
    "is_users_code",
    "load_function",
    "run_script",
    "takes_arguments",
    "user_traceback",
    "without_python",
]

TRAINS = "trains, or returns a loader and step(batch) as a pair"  # what a function named as a training has to do

_MODULE = "-m "  # what precedes a module's name where a script could stand
_WORKERS = "\nOriginal Traceback (most recent call last):"  # the form in which torch's DataLoader passes an error on
_LIBRARIES = tuple(
    {f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {f"{Path(sysconfig.get_path(name)).resolve()}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)

_INSTALLED = ("/site-packages/", "/dist-packages/")  # also of another environment, on PYTHONPATH or in a .pth file


def is_function_name(text: str) -> bool:
    """
    Return whether this is ``module:function`` or ``script.py:function`` instead of a path of data.

    >>> is_function_name("train:make_loader"), is_function_name("./a.lmdb"), is_function_name("train.py:make_loader")
    (True, False, True)
    """
    module, colon, function = text.rpartition(":")
    return bool(colon) and function.isidentifier() and (module.endswith(".py") or _is_dotted(module))


def load_function(name: str, *, what: str, arguments: int | None = 0) -> Callable[..., Any]:
    """
    Import the module (the working directory is searched first) and return its function.

    Raises FastioError if there is no such module or function, or if it does not take so many arguments (None: any);
    ``what`` is in words what the function has to do.
    Exceptions of the module itself pass through.
    """
    module_name, _, function_name = name.rpartition(":")
    module = _script(Path(module_name)) if module_name.endswith(".py") else _module(module_name, name)
    function = getattr(module, function_name, None)
    if not callable(function):
        functions = [own for own, value in vars(module).items() if inspect.isfunction(value)]
        near = "".join(f" (did you mean {own!r}?)" for own in get_close_matches(function_name, functions, n=1))
        raise FastioError(f"{name}: {module_name} has no function {function_name!r}{near}; expected one that {what}")
    signature = _signature(function)
    try:
        if arguments is not None:
            signature.bind(*[None] * arguments)
    except TypeError as exc:
        given = "with one argument" if arguments else "without arguments"
        raise FastioError(f"{name}: fastio calls it {given}, but its signature is {signature}") from exc
    checked: Callable[..., Any] = function
    return checked


def run_script(script: str, arguments: Sequence[str]) -> None:
    """
    Run a script, or ``-m module``, as ``python script arguments`` would, in this process.

    Raises FastioError if there is no such script.py or module.
    """
    if script.startswith(_MODULE):
        _run_module(script.removeprefix(_MODULE), arguments)
        return
    if not Path(script).is_file() or not script.endswith(".py"):
        if Path(script).exists():
            from fastio.store.formats import names_store
            from fastio.store.kinds.recognise import not_packed

            what = "FastDataset reads it in a script" if names_store(script) else not_packed(script)
            raise FastioError(f"{script}: is data, not a script: expected SCRIPT.py or -m MODULE; {what}")
        raise FastioError(
            f"{script}: no such script; expected SCRIPT.py or -m MODULE with its arguments, or MODULE:FUNCTION"
        )
    argv, path = sys.argv, sys.path[:]
    sys.argv, sys.path[0] = [script, *arguments], str(Path(script).resolve().parent)
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        sys.argv, sys.path[:] = argv, path


def without_python(command: Sequence[str]) -> tuple[str, ...]:
    """
    Return ``train.py --epochs 1`` for ``python train.py --epochs 1``; any other command unchanged.

    ``-m`` and its module become one word. Raises FastioError if that Python is not the running one, since it may have
    other packages.
    """
    first, *rest = command
    if first == "-m" and rest:
        return (_MODULE + rest[0], *rest[1:])
    if not (rest and rest[0].endswith((".py", "-m")) and re.fullmatch(r"python[0-9.]*", Path(first).name)):
        return tuple(command)
    executable = shutil.which(first)
    if executable is None or Path(executable).parent.resolve() != Path(sys.executable).parent.resolve():
        raise FastioError(f"{first}: fastio runs in {sys.executable}, and so must the training: drop {first!r}")
    return without_python(rest)


def takes_arguments(name: str) -> bool:
    """Return whether this is a script or ``-m module``, not a function."""
    return name.endswith(".py") or name.startswith(_MODULE)


def user_traceback(error: BaseException) -> str | None:
    """
    Return the traceback from the first frame of the user's own code on, as Python prints it; None if there is no such
    frame.

    The user's code is what lies outside of this package, of Python's library and of installed packages. An error from
    a DataLoader's worker brings its traceback as text, which is returned unchanged.
    """
    frames = error.__traceback__
    while frames is not None and not is_users_code(
        frames.tb_frame.f_code.co_filename, str(frames.tb_frame.f_globals.get("__name__"))
    ):
        frames = frames.tb_next
    if frames is None and _WORKERS in str(error):
        return f"{error}\n"
    if frames is None and not (isinstance(error, SyntaxError) and is_users_code(error.filename or "<string>", "")):
        return None
    return "".join(traceback.format_exception(type(error), error, frames))


def is_users_code(file: str, module: str) -> bool:
    """
    Return whether code of this file and module belongs neither to this package, Python's library nor an installed
    one.
    """
    ours = module.partition(".")[0] == __name__.partition(".")[0]
    is_installed = file.startswith(_LIBRARIES) or any(folder in file for folder in _INSTALLED)
    return not ours and not file.startswith("<") and not is_installed


def error_line(error: BaseException) -> str:
    """
    Return type and message of an error in one line; from a DataLoader's worker, they are at the end of a longer text.

    >>> error_line(ValueError("two\\nlines"))
    'ValueError: two lines'
    """
    lines = "".join(traceback.format_exception_only(error)).strip().splitlines()
    if isinstance(error, SyntaxError) or _WORKERS in str(error):  # frames and source come first, indented
        lines = lines[max(number for number, line in enumerate(lines) if line.startswith(" ")) + 1 :]
    return " ".join(line.strip() for line in lines)


def _run_module(name: str, arguments: Sequence[str]) -> None:
    folder = str(Path.cwd())
    argv, path = sys.argv, sys.path[:]
    sys.argv, sys.path[0] = ["-m", *arguments], folder
    try:
        if not _can_be_found(name):
            raise FastioError(f"-m {name}: no such module here or on PYTHONPATH")
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    finally:
        sys.argv, sys.path[:] = argv, path


def _can_be_found(name: str) -> bool:
    """
    Return whether the module can be found. Parent packages are imported, as in Python; other missing imports are the
    user's to see.
    """
    try:
        return _is_dotted(name) and importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as exc:
        if exc.name is not None and f"{name}.".startswith(f"{exc.name}."):
            return False
        raise


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError:  # some functions written in C have no signature
        return inspect.Signature()


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _module(module_name: str, name: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as exc:
        # If the user's own module lacks another module, the user should see that with its traceback.
        if exc.name is not None and (module_name == exc.name or module_name.startswith(exc.name + ".")):
            raise FastioError(
                f"{name}: no module {exc.name!r} here or on PYTHONPATH: name another module, or a script.py"
            ) from exc
        raise


def _script(path: Path) -> ModuleType:
    if not path.is_file():
        raise FastioError(f"{path}: no such script; expected path/script.py:function")
    # Spawned worker processes import it again under this name: its folder must be on the path.
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if path.stem in sys.modules and getattr(sys.modules[path.stem], "__file__", None) == str(path.resolve()):
        return sys.modules[path.stem]
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
