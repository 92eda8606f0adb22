"""Fields that come later: a frozen network computes embeddings once, and a classifier is trained on them and labels.

    $ fastio pack photos/ photos.lmdb                                  # class folders
    $ fastio compute photos.lmdb embeddings.h5 embeddings.py:Embed     # keys are those of the photos
    $ python embeddings.py photos.lmdb embeddings.h5

The network is random and small; any other one goes into its place. Photos are decoded once, not in each epoch.
"""

import argparse

import torch
from torch import nn

from fastio import FastDataset, FastLoader, beside
from fastio.transforms import CenterCrop, Resize


class Embed:
    """What `fastio compute` makes once and calls for each batch."""

    read = "image"
    transforms = (Resize(32), CenterCrop(32))

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        layers = (nn.Conv2d(3, 32, 3, 2), nn.ReLU(), nn.Conv2d(32, 64, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
        self.network = nn.Sequential(*layers, nn.Flatten()).eval().to(self.device)

    @torch.no_grad()
    def __call__(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        pixels = images.to(self.device).float() / 255  # uint8 (B, 3, 32, 32)
        return {"embedding": self.network(pixels), "brightness": pixels.mean((1, 2, 3))}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("photos")
    parser.add_argument("embeddings")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args()

    with beside(options.photos, options.embeddings) as both:
        dataset = FastDataset(both, fields=("embedding", "label"))  # no photo is read any more
        width = len(dataset[0][0])
        head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, len(dataset.classes)))
        optimizer = torch.optim.AdamW(head.parameters(), 0.01)
        loader = FastLoader(dataset, options.batch_size, shuffle=True)
        for epoch in range(options.epochs):
            right = loss = 0.0
            for embeddings, labels in loader:
                scores = head(embeddings)
                error = nn.functional.cross_entropy(scores, labels)
                optimizer.zero_grad()
                error.backward()
                optimizer.step()
                loss += error.item() * len(labels)
                right += (scores.argmax(1) == labels).sum().item()
            print(f"epoch {epoch}: loss {loss / len(dataset):.3f}, accuracy {100 * right / len(dataset):.1f}%")
        print(loader.receipt())


if __name__ == "__main__":
    main()
