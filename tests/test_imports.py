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
OF_WRITERS = {"fastio.store.write.writer", "fastio.store.write.output", "fastio.store.kinds.registry"}
OF_SETS = {"fastio.store.sets.set_object", "fastio.store.sets.members"}
OF_SCRATCH_FILES = {"tempfile", "shutil"}
LAZY = sorted(name for name, path in MODULES.items() if "= attach_stub(" in path.read_text())

# Besides these commands, what none of them may import. Files are a folder of PNGs and what is packed from it.
COMMANDS = {
    "--help": {"numpy", "PIL", "fastio.measure", "fastio.store"} | OF_WRITERS,
    "info s.lmdb": {"PIL", "fastio.types.receipt", "concurrent.futures"} | OF_WRITERS | OF_SETS | OF_SCRATCH_FILES,
    "info s-%06d.tar": {"PIL"} | OF_WRITERS,
    "ls s.lmdb": {"PIL", "fastio.converters"} | OF_WRITERS | OF_SETS | OF_SCRATCH_FILES,
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
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert 0 == ended.returncode, ended.stderr
    return set(ended.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_on_local_files_imports_what_it_needs(line: str, folder: Path) -> None:
    """Neither the network nor a library is imported that this command does not use."""
    modules = run(f"from fastio.cli import cli; cli({line.split()!r}, standalone_mode=False)", folder)

    assert set() == modules & (NETWORK | LIBRARIES | OF_URLS | COMMANDS[line])


NO_TORCH = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "torchvision"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoTorch())
"""


@pytest.mark.parametrize("package", ["fastio", "fastio.transforms", "fastio.transforms.batch", "fastio.store"])
def test_public_names_need_no_torch(package: str) -> None:
    """Each public name is there where torch is not."""
    run(f"{NO_TORCH}\nfrom {package} import *\nimport {package}\nassert set({package}.__all__) <= set(dir())", Path())


def test_ranges_for_a_profiler_need_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where FASTIO_NVTX asks for them, and torch is not there, there are none."""
    monkeypatch.setenv("FASTIO_NVTX", "1")
    run(f"{NO_TORCH}\nfrom fastio import DevicePrefetcher", Path())


def test_samples_need_no_torch(folder: Path) -> None:
    """Where torch is not, a dataset reads, chooses, iterates over and crops its pictures as it does where torch is."""
    script = """
import numpy as np
from fastio import FastDataset
from fastio.transforms import CenterCrop, Compose, RandomHorizontalFlip
crop = Compose([CenterCrop(8), RandomHorizontalFlip(1.0)])
data = FastDataset("s.lmdb", crop)
pictures = [sample[0] if isinstance(sample, tuple) else sample for sample in (*data.iterable(), *data, data[-1])]
print(np.stack(pictures).tobytes().hex())
"""
    pixels = [
        subprocess.check_output([sys.executable, "-c", f"{begin}\n{script}"], cwd=folder)
        for begin in ("import torch", NO_TORCH)
    ]

    assert pixels[0] == pixels[1] != b""


@pytest.mark.parametrize("read", ["map", "pread"])
def test_a_first_batch_imports_no_masked_arrays(read: str, folder: Path) -> None:
    """They take more memory and CPU time than all else up to it: of pictures, of shards, of token ids in any order."""
    write = """
import numpy as np
from fastio import Writer
with Writer("ids.h5", {"tokens": "tokens16"}, overwrite=True) as writer:
    for length in range(1, 30):
        writer.write({"tokens": np.arange(length, dtype=np.uint16)})
"""
    load = f"""
from fastio import FastDataset, FastLoader, LengthBucketSampler
from fastio.transforms import CenterCrop
ids = FastDataset("ids.h5", read="{read}")
buckets = LengthBucketSampler(ids.column("length"), batch_size=4)
next(iter(FastLoader(ids, 4, shuffle="full", collate="pad", output="numpy")))
next(iter(FastLoader(ids, batch_sampler=buckets, collate="pad", output="numpy")))
for store in ("s.lmdb", "s-%06d.tar"):
    pictures = FastDataset(store, read="{read}")
    next(iter(FastLoader(pictures, 2, shuffle=True, transforms=[CenterCrop(8)], output="numpy")))
"""
    run(write, folder)
    assert "numpy.ma" not in run(load, folder)


def test_what_needs_torch_says_so() -> None:
    """Where torch is missing, its first use says in one line what to install."""
    script = f"{NO_TORCH}\nfrom fastio import DevicePrefetcher\ntry: DevicePrefetcher([])\nexcept ImportError as exc: "
    script += "print(exc)"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert "this needs torch, which cannot be imported (No module named 'torch'): pip install torch\n" == ended.stdout


@pytest.mark.parametrize("library", ["accelerate", "lightning", "transformers"])
def test_integrations_need_torch(library: str) -> None:
    """Where torch is missing, an adapter says in one line what to install, and not what its library says."""
    script = f"{NO_TORCH}\ntry: import fastio.integrations.{library}\nexcept ImportError as exc: print(exc)"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert "this needs torch, which cannot be imported (No module named 'torch'): pip install torch\n" == ended.stdout


DRAWING = """
import numpy as np
from fastio.samplers.foreign import ForeignDraw

class Own:
    def __iter__(self):
        try:
            import torch
        except ImportError:
            return iter(np.random.permutation(50).tolist())
        return iter(torch.randperm(50).tolist())

draws = [ForeignDraw(Own(), samples=50, seed=seed).order(epoch).tolist() for seed, epoch in ((3, 0), (3, 1), (4, 0))]
assert draws[0] != draws[1] and draws[0] != draws[2] and draws[1] != draws[2]
print(draws)
"""


def test_a_sampler_that_imports_torch_first() -> None:
    """An epoch drawn by a sampler that imports torch itself is the one that is drawn where torch was imported."""
    drawn = [subprocess.check_output([sys.executable, "-c", begin + DRAWING]) for begin in ("import torch", "")]

    assert drawn[0] == drawn[1]


def test_samplers_without_torch() -> None:
    """Where torch is missing, a sampler draws by NumPy, seeded; indices that are there import no torch."""
    without = [subprocess.check_output([sys.executable, "-c", NO_TORCH + DRAWING]) for _ in range(2)]
    script = "from fastio.samplers.foreign import ForeignDraw\nForeignDraw([2, 0, 1], samples=3, seed=0).order(0)"

    assert without[0] == without[1]
    assert "torch" not in run(script, Path())


@pytest.mark.parametrize("order", ["torch first", "fastio first"])
def test_classes_for_torch_are_torchs(order: str, folder: Path) -> None:
    """A FastDataset is one of torch's as soon as torch is imported, and importing its class does not import torch."""
    lines = ["from fastio import FastDataset", "import torch"]
    script = [*(lines if order == "fastio first" else reversed(lines))]
    script += ["data = FastDataset('s.lmdb')", "assert isinstance(data, torch.utils.data.Dataset)", "data + data"]

    run("\n".join(script), folder)
    assert "torch" not in run(lines[0], folder)


def test_the_import_of_the_package_brings_nothing() -> None:
    """A script that imports fastio pays for what it uses of it."""
    brought = run("import fastio", Path()) - run("", Path())

    assert set() == brought & (NETWORK | LIBRARIES | {"numpy", "PIL", "click", "ast", "pathlib"})


def test_a_store_is_opened_without_what_others_need(folder: Path) -> None:
    """Samples of a local store need neither torch nor a writer, and no client of URLs."""
    script = "import fastio, numpy as np; fastio.open_store('s.lmdb').spans('image', np.arange(3))"

    not_needed = {"PIL", "fastio.store.files.remote.client", "fastio.types.receipt"} | OF_SETS | OF_SCRATCH_FILES
    assert set() == run(script, folder) & (NETWORK | LIBRARIES | OF_URLS | OF_WRITERS | not_needed)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("import math\nmath.no_such_name", "AttributeError: module 'math' has no attribute 'no_such_name'"),
        ("from math import no_such_name", "ImportError: cannot import name 'no_such_name' from 'math'"),
        ("", "AttributeError: module 'faulty.broken' has no attribute 'Broken'"),
    ],
    ids=["attribute", "import", "name"],
)
@pytest.mark.parametrize("use", ["from faulty import Broken", "import faulty; hasattr(faulty, 'Broken')"])
def test_what_fails_in_a_module_on_first_use_is_seen(module: str, said: str, use: str, tmp_path: Path) -> None:
    """Python would say "cannot import name" of an AttributeError, or that there is no such attribute."""
    package = tmp_path / "faulty"
    package.mkdir()
    (package / "broken.py").write_text(module)
    (package / "__init__.pyi").write_text("from faulty.broken import Broken as Broken\n")
    (package / "__init__.py").write_text(
        "from fastio.lazy import attach_stub\n__getattr__, __dir__, __all__ = attach_stub(__name__)\n"
    )
    ended = subprocess.run([sys.executable, "-c", use], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert 1 == ended.returncode
    assert said in ended.stderr
    assert "cannot import name 'Broken'" not in ended.stderr


@pytest.mark.parametrize(
    ("package", "misspelt", "meant"),
    [("fastio", "FastLoder", "FastLoader"), ("fastio.transforms", "RandomResizeCrop", "RandomResizedCrop")],
)
def test_a_misspelt_name_is_answered_with_the_one_that_is_meant(package: str, misspelt: str, meant: str) -> None:
    """Python says "cannot import name" alone. Names of modules are left to it: they may be there."""
    with pytest.raises(ImportError, match=rf"^{package} has no {misspelt}: did you mean {meant}\?$"):
        __import__(package, fromlist=[misspelt])
    with pytest.raises(AttributeError, match=rf"no attribute '{misspelt}': did you mean {meant}\?$"):
        getattr(import_module(package), misspelt)
    with pytest.raises(AttributeError, match=r"no attribute 'no_such_module'; it has "):
        _ = import_module(package).no_such_module


@pytest.mark.parametrize("package", LAZY)
def test_names_on_first_use_are_no_modules_of_the_package(package: str) -> None:
    """Importing the module would replace the name."""
    modules = {each.stem for each in MODULES[package].parent.iterdir()}

    assert set() == modules & set(import_module(package).__all__)


@pytest.mark.parametrize("package", LAZY)
def test_names_on_first_use_are_what_the_stub_says(package: str) -> None:
    """Each name that a stub hands on is in the module that it names, under the same name."""
    stub = ast.parse(MODULES[package].with_suffix(".pyi").read_text())
    handed_on = [node for node in stub.body if isinstance(node, ast.ImportFrom)]

    for node in handed_on:
        for alias in node.names:
            assert node.module is not None
            assert alias.asname == alias.name
            assert getattr(import_module(package), alias.name) is getattr(import_module(node.module), alias.name)


@pytest.mark.parametrize("package", LAZY)
def test_dir_lists_the_names_of_a_package(package: str) -> None:
    """Completion offers every public name, also one that nothing has used yet."""
    module = import_module(package)

    assert sorted(module.__all__) == dir(module)
