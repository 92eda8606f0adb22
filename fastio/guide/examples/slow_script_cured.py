"""The training of slow_script.py with the lines that fastio doctor printed for it.

    $ fastio pack photos train.lmdb
    $ python slow_script_cured.py

The loop is the same; native threads decode, crop and normalise meanwhile.
"""

import torch
from torch import nn

from fastio import FastDataset, FastLoader
from fastio.transforms import Normalize, RandomHorizontalFlip, RandomResizedCrop


def main() -> None:
    dataset = FastDataset("train.lmdb")
    loader = FastLoader(
        "train.lmdb",
        batch_size=32,
        shuffle=True,
        transforms=[
            RandomResizedCrop(64),
            RandomHorizontalFlip(),
            Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ],
    )
    body = [nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    model = nn.Sequential(*body, nn.Linear(32, len(dataset.classes)))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(10):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
