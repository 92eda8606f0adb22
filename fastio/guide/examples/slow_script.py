"""A training as it is often written: it opens, decodes and crops photo by photo, in the process that trains.

    $ python slow_script.py photos                      # class folders
    $ fastio doctor -- slow_script.py photos            # says why it is slow, and which lines to paste

The script with those lines is slow_script_cured.py.
"""

import sys
from pathlib import Path

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import Compose, Normalize, RandomHorizontalFlip, RandomResizedCrop, ToTensor

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TRANSFORM = Compose([RandomResizedCrop(64), RandomHorizontalFlip(), ToTensor(), Normalize(MEAN, STD)])


class Photos(Dataset[tuple[torch.Tensor, int]]):
    """The photos of class folders."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.classes = sorted(folder.name for folder in root.iterdir())
        self.paths = sorted(root.glob("*/*"))
        self.transform = TRANSFORM

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path = self.paths[index]
        with Image.open(path) as photo:
            return self.transform(photo.convert("RGB")), self.classes.index(path.parent.name)


def main() -> None:
    dataset = Photos(Path(sys.argv[1]))
    loader = DataLoader(dataset, 32, shuffle=True)
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
