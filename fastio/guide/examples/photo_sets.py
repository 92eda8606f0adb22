"""A small network over sets of photos: as many for each sample as there are, all in one tensor, and one answer a set.

    $ python photo_sets.py photos photos.lmdb --epochs 10

The first run packs the folder `photos`: in it a folder for each class, in that one for each set of photos, of an advert
or a patient, say. A set may be empty; it is left out here, as it shows nothing.
"""

import argparse
from pathlib import Path

import torch
from torch import nn

from fastio import FastDataset, FastLoader, Writer
from fastio.transforms import Normalize, RandomHorizontalFlip, RandomResizedCrop

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("store", type=Path)
for name, default in (("size", 64), ("batch-size", 16), ("epochs", 10)):
    parser.add_argument(f"--{name}", type=int, default=default)
options = parser.parse_args()
torch.manual_seed(0)

if not options.store.exists():
    classes = sorted(path for path in options.folder.iterdir() if path.is_dir())
    metadata = {"classes": [path.name for path in classes]}
    with Writer(options.store, {"photos": "image[*]", "label": "label"}, metadata=metadata) as out:
        for folder in (each for path in classes for each in sorted(path.iterdir())):
            key = folder.relative_to(options.folder).as_posix()
            out.write({"photos": sorted(folder.iterdir()), "label": folder.parent.name}, key=key)

sets = FastDataset(options.store)
filled = (sets.store.elements("photos").counts > 0).nonzero()[0]
print(f"{len(sets.store.elements('photos'))} photos in {len(filled)} sets")
steps = [RandomResizedCrop(options.size), RandomHorizontalFlip(), Normalize([0.5] * 3, [0.25] * 3)]
eyes = nn.Sequential(
    nn.Conv2d(3, 32, 3, stride=2), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
)  # fmt: skip
head = nn.Linear(64, len(sets.classes))
optimizer = torch.optim.AdamW([*eyes.parameters(), *head.parameters()], lr=1e-3)
with FastLoader(sets, options.batch_size, shuffle=True, transforms=steps, indices=filled) as loader:
    for epoch in range(options.epochs):
        losses = []
        for batch in loader:
            features = eyes(batch["photos"])  # (N, 64), of the photos of all sets
            counts = batch["photos_counts"]  # how many of them each set has
            of_set = torch.arange(len(counts)).repeat_interleave(counts)
            means = torch.zeros(len(counts), features.shape[1]).index_add(0, of_set, features) / counts[:, None]
            loss = nn.functional.cross_entropy(head(means), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}; {loader.receipt(own=True)}")
