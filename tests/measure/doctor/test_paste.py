"""What the doctor says to paste is pasted and run: commands, then code below the script's own."""

from __future__ import annotations

import json
import runpy
import shlex
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from fastio.cli import cli
from fastio.measure.doctor.facts import MachineFacts
from fastio.measure.doctor.gather import facts_of
from fastio.measure.doctor.loading import LoadingRule, decoded_once, more_threads, smaller_pictures
from fastio.measure.doctor.session import ObservationPlan, observe
from fastio.measure.doctor.watch import Watcher
from tests.measure.doctor.planted import Training

SIZES = [(90, 60), (61, 83), (70, 70), (120, 64)]
HEAD = """
import os, random, sys
from pathlib import Path
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Subset
from tests.measure.doctor.torchvision_stand_ins import *

def spend(seconds):
    import time
    ends = time.process_time() + seconds
    while time.process_time() < ends:
        pass

class Photos(Dataset):
    def __init__(self, root, transform=None):
        self.root, self.transform = root, transform
        self.classes = sorted(entry.name for entry in Path(root).iterdir())
        self.samples = [(str(path), number) for number, name in enumerate(self.classes)
                        for path in sorted((Path(root) / name).iterdir())]
    def __len__(self):
        return len(self.samples)
    def __getitem__(self, index):
        path, label = self.samples[index]
        image = Image.open(path).convert("RGB")
        spend(0.002)
        return image if self.transform is None else self.transform(image), label

class OwnCrop:
    def __call__(self, image):
        side = min(image.size) // 2
        left = random.randint(0, image.width - side)
        spend(0.004)
        return image.crop((left, 0, left + side, side)).resize((32, 32))
"""
LOOP = """
def train(loader):
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    while True:
        for batch in loader:
            model(torch.zeros(1, 1)).sum().backward()
            optimizer.step()

if __name__ == "__main__":
    train(loader)
"""
KNOWN = """
transform = Compose([RandomResizedCrop(32, scale=(0.2, 1.0)), RandomHorizontalFlip(), ToTensor(),
                     Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
"""
SCRIPTS = {
    "photos, all known": KNOWN + 'loader = DataLoader(Photos("photos", transform), batch_size=4, shuffle=True)',
    "photos, validation": 'loader = DataLoader(Photos("photos", Compose([Resize(48), CenterCrop(32), ToTensor()])), 4)',
    "photos, version 2": """
to_float = V2ToDtype(torch.float32, scale=True)
loader = DataLoader(Photos("photos", Compose([V2RandomResizedCrop(32), V2ToImage(), to_float])), 4, shuffle=True)""",
    "photos, own crop": """
transform = Compose([OwnCrop(), ToTensor()])
loader = DataLoader(Photos("photos", transform), batch_size=4, shuffle=True)""",
    "photos, no name for the transform": """
data = Photos("photos", Compose([OwnCrop(), lambda image: torch.from_numpy(np.array(image))]))
train_loader = loader = DataLoader(data, batch_size=4, shuffle=True, drop_last=True)""",
    "photos, own crop in the dataset": KNOWN
    + """
class Cropped(Photos):
    def __getitem__(self, index):
        path, label = self.samples[index]
        return self.transform(OwnCrop()(Image.open(path).convert("RGB"))), label
loader = DataLoader(Cropped("photos", Compose([ToTensor()])), batch_size=4, shuffle=True)""",
    "photos, a part": KNOWN
    + """
part = Subset(Photos("photos", transform), range(4, 12))
loader = DataLoader(part, batch_size=4, shuffle=True)""",
    "photos, a part, own crop": """
own = Compose([OwnCrop(), ToTensor()])
part = Subset(Photos("photos", own), range(4, 12))
loader = DataLoader(part, batch_size=4, shuffle=True)""",
    "PNGs, labels in a file": """
class Flat(Dataset):
    def __init__(self, root, labels, transform):
        lines = Path(labels).read_text().split()
        self.root, self.labels, self.transform = root, labels, transform
        self.pairs = [line.split(",") for line in lines]
    def __len__(self):
        return len(self.pairs)
    def __getitem__(self, index):
        name, label = self.pairs[index]
        spend(0.002)
        return self.transform(Image.open(os.path.join(self.root, name)).convert("RGB")), int(label)
transform = Compose([RandomCrop(24, 2), RandomHorizontalFlip(), ToTensor(), Normalize([0.5] * 3, [0.25] * 3)])
loader = DataLoader(Flat("pngs", "labels.csv", transform), batch_size=8, shuffle=True)""",
    "text": """
class Lines(Dataset):
    def __init__(self, path):
        self.path = path
        self.texts = Path(path).read_text().splitlines()
    def __len__(self):
        return len(self.texts)
    def __getitem__(self, index):
        spend(0.002)
        return torch.tensor(list(self.texts[index].encode()))
def pad(samples):
    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)
loader = DataLoader(Lines("corpus.txt"), batch_size=4, collate_fn=pad)""",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Photos of mixed sizes in class folders, small PNGs with a file of labels, and lines of text."""
    numbers = np.random.default_rng(0)
    for number in range(16):
        width, height = SIZES[number % len(SIZES)]
        path = tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number:02d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(numbers.integers(0, 256, (height, width, 3), np.uint8)).save(path)
    (tmp_path / "pngs").mkdir()
    for number in range(16):
        pixels = numbers.integers(0, 256, (24, 24, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "pngs" / f"{number}.png")
    (tmp_path / "labels.csv").write_text("".join(f"{number}.png,{number % 3}\n" for number in range(16)))
    (tmp_path / "corpus.txt").write_text("".join(f"line {'x' * number}\n" for number in range(1, 17)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(sys, "argv", sys.argv)
    return tmp_path


@cache
def advice_for(script: str) -> list[dict[str, Any]]:
    """The steps that the doctor tells for a script in the working directory, whose data is always the same."""
    Path("train.py").write_text(HEAD + SCRIPTS[script] + LOOP)
    result = CliRunner().invoke(cli, ["doctor", "--seconds", "0.3", "--profiled", "0", "--json", "--", "train.py"])
    assert result.exit_code == 0, result.output
    steps: list[dict[str, Any]] = json.loads(result.stdout)["steps"]
    return steps


def pasted(code: str) -> dict[str, Any]:
    """The script's names after its own lines and these, the commands among them run first."""
    for line in code.splitlines():
        if line.startswith("$ fastio "):
            result = CliRunner().invoke(cli, shlex.split(line.removeprefix("$ fastio "), comments=True))
            assert result.exit_code == 0, result.output
    names = runpy.run_path("train.py", run_name="pasted")
    exec("\n".join(line for line in code.splitlines() if not line.startswith("$ ")), names)
    return names


def form(batch: Any) -> list[tuple[torch.dtype, torch.Size]]:
    """Types and shapes."""
    return [(part.dtype, part.shape) for part in (batch if isinstance(batch, (list, tuple)) else [batch])]


def first_of(loader: Any) -> Any:
    """Its first batch, and the workers ended."""
    batches = iter(loader)
    batch = next(batches)
    del batches
    return batch


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_line_runs(script: str) -> None:
    """Commands end well, no name is missing, and a loader gives batches of the form that the loop had."""
    steps = advice_for(script)
    Path("train.py").write_text(HEAD + SCRIPTS[script] + LOOP)
    expected = form(first_of(runpy.run_path("train.py", run_name="before")["loader"]))
    packs = 0
    for step in steps:
        Path("train.lmdb").unlink(missing_ok=True)
        names = pasted(step["code"])
        is_pack = "fastio pack" in step["code"]
        packs += is_pack
        if "packed" in names:
            assert names["sample"] is not None
        elif script != "text" and step["code"]:
            name = "train_loader" if "train_loader = " in step["code"] else "loader"
            assert expected == form(first_of(names[name])), step["code"]

    assert packs == 1


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("photos, all known", "transforms=[RandomResizedCrop(32, (0.2, 1.0)), RandomHorizontalFlip(), Normalize("),
        ("photos, validation", "transforms=[Resize(48), CenterCrop(32), ToDtype(torch.float32, scale=True)]"),
        ("photos, version 2", "transforms=[RandomResizedCrop(32), ToDtype(torch.float32, scale=True)]"),
        ("photos, own crop", 'DataLoader(FastDataset("train.lmdb", transform), batch_size=4, shuffle=True)'),
        (
            "photos, no name for the transform",
            'FastDataset("train.lmdb", data.transform), batch_size=4, shuffle=True, ',
        ),
        ("photos, own crop in the dataset", "for Cropped.__getitem__ (train.py:"),
        ("photos, a part", "shuffle=True, indices=part.indices, transforms=[RandomResizedCrop(32, (0.2, 1.0)), "),
        ("photos, a part, own crop", 'DataLoader(Subset(FastDataset("train.lmdb", own), part.indices), batch_size=4'),
        ("PNGs, labels in a file", "$ fastio pack pngs train.lmdb --labels labels.csv\n"),
        (
            "PNGs, labels in a file",
            "transforms=[RandomCrop(24, 2), RandomHorizontalFlip(), Normalize((0.5, 0.5, 0.5), ",
        ),
        ("text", "$ fastio pack corpus.txt train.lmdb\n"),
    ],
)
def test_what_is_pasted(script: str, expected: str) -> None:
    """The user's crop, normalisation, names, labels and parts stand in it."""
    (code,) = [step["code"] for step in advice_for(script) if "fastio pack" in step["code"]]

    assert expected in code


@pytest.mark.parametrize(
    ("source", "rules"),
    [
        ("photos", {"threads=0": more_threads, 'cache="ram"': decoded_once}),
        ("photos", {'FastLoader("small.lmdb", ': smaller_pictures}),
        ("pngs", {"threads=0": more_threads, 'cache="ram"': decoded_once}),
    ],
)
def test_calls_of_fast_loader_run(source: str, rules: dict[str, LoadingRule]) -> None:
    """What is said to a loop over a packed store repeats its call, with what changes."""
    labels = ["--labels", "labels.csv"] if source == "pngs" else []
    assert CliRunner().invoke(cli, ["pack", source, "packed.lmdb", *labels]).exit_code == 0
    Path("train.py").write_text(
        "from fastio import FastLoader\nfrom fastio.transforms import Normalize, RandomResizedCrop\n"
        "crop = [RandomResizedCrop(16, scale=(0.5, 1)), Normalize([0.5] * 3, [0.5] * 3)]\n"
        'loader = FastLoader("packed.lmdb", 4, shuffle=True, transforms=crop, device="cpu", threads=1)\n'
    )

    def training(watcher: Watcher) -> None:
        loader = runpy.run_path("train.py")["loader"]
        Training(loader, steps=9)(watcher)

    facts = observe(training, ObservationPlan(seconds=0.1, profiled=0), facts_of)
    assert facts.loader is not None
    facts = replace(facts, machine=MachineFacts(cpus=4), loader=replace(facts.loader, picture_side=400, jump_percent=1))
    for expected, rule in rules.items():
        advice = rule(facts, facts.loader, "slow_decode")
        assert advice is not None
        assert expected in advice.code
        assert "batch_size=4, shuffle=True, " in advice.code
        assert "transforms=[RandomResizedCrop(16, (0.5, 1.0)), Normalize((0.5, 0.5, 0.5), " in advice.code
        assert [(torch.float32, (4, 3, 16, 16)), (torch.int64, (4,))] == form(first_of(pasted(advice.code)["loader"]))


COLOURS = """
from fastio import FastDataset
colours = [ColorJitter(0.4), RandAugment()]
transform = Compose([RandomResizedCrop(32), *colours, ToTensor(), Normalize([0.5] * 3, [0.25] * 3)])
photos = FastDataset("packed.lmdb", transform)
"""
BESIDE = (
    COLOURS
    + """
from fastio import Writer, beside
with Writer("scores.h5", {"score": "float32[1]"}, overwrite=True) as out:
    for key in FastDataset("packed.lmdb").keys:
        out.write({"score": [0]}, key=key)
photos = FastDataset(beside("packed.lmdb", "scores.h5"), transform, fields=("image", "label"))
"""
)
PACKED = {
    "all": (
        COLOURS + "loader = DataLoader(photos, batch_size=4, shuffle=True)",
        "shuffle=True, transforms=[RandomResizedCrop(32), ColorJitter((0.6, 1.4)), RandAugment(), Normalize(",
    ),
    "a part": (
        COLOURS + "loader = DataLoader(photos.where('width > 61'), 4)",
        'loader = FastLoader("packed.lmdb", batch_size=4, indices=loader.dataset.indices, transforms=[',
    ),
    "a selection": (
        COLOURS + "photos.samples = photos.samples[:8]\nloader = DataLoader(photos, 4)",
        "loader = FastLoader(FastDataset(photos.store), batch_size=4, transforms=[",
    ),
    "beside other fields": (
        BESIDE + "loader = DataLoader(photos, 4)",
        "loader = FastLoader(FastDataset(photos.store, fields=('image', 'label')), batch_size=4, transforms=[",
    ),
    "a step of one's own": (
        COLOURS + "transform.transforms[1] = OwnCrop()\nloader = DataLoader(photos, batch_size=4)",
        None,
    ),
}


@pytest.mark.parametrize("script", PACKED)
def test_native_transforms_of_a_packed_store(script: str) -> None:
    """Of a FastDataset under torch's DataLoader, what forces Python is named, and one line replaces both."""
    assert CliRunner().invoke(cli, ["pack", "photos", "packed.lmdb"]).exit_code == 0
    code, expected = PACKED[script]
    Path("train.py").write_text(HEAD + code + LOOP)
    result = CliRunner().invoke(cli, ["doctor", "--seconds", "0.3", "--profiled", "0", "--json", "--", "train.py"])
    assert result.exit_code == 0, result.output
    (step,) = [
        step
        for step in json.loads(result.stdout)["steps"]
        if "PerSample" in step["reason"] or "FastLoader(" in step["code"]
    ]

    if expected is None:
        assert "fastio has no OwnCrop" in step["reason"]
        return
    assert "ColorJitter and RandAugment force pixels into Python" in step["reason"]
    assert expected in step["code"]
    before, after = (names["loader"] for names in (runpy.run_path("train.py", run_name="before"), pasted(step["code"])))
    assert form(first_of(before)) == form(first_of(after))
    assert len(list(before)) == len(list(after))


def test_a_step_of_ones_own_is_named() -> None:
    """What nothing here replaces is told as such, with no more than an upper bound."""
    steps = advice_for("photos, own crop")
    (own,) = [step for step in steps if step["title"].startswith("OwnCrop takes")]

    assert "upper bound" in own["reason"]
    assert own["is_bound"]
    assert [step["code"] for step in steps if "RandomResizedCrop" in step["code"]] == []
