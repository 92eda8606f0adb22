"""Latents of photos of all proportions: a frozen encoder computes them once, and a denoiser learns from them.

    $ fastio pack photos/ photos.lmdb                                  # class folders
    $ fastio compute photos.lmdb latents.h5 latents.py:Encode --batch-size 1 --field "latent=float16[4,*,*]"
    $ fastio add-field photos.lmdb latent --from latents.h5            # arrays of any height and width
    $ python latents.py photos.lmdb

The encoder is random and small; that of a diffusion model goes into its place. Batches have latents of one shape each.
"""

import argparse

import numpy as np
import torch
from torch import nn

from fastio import FastDataset, FastLoader, ShapeBucketSampler


class Encode:
    """What `fastio compute` makes once and calls for each photo."""

    read = "image"

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.network = nn.Conv2d(3, 4, 8, 8).eval().to(self.device)

    @torch.no_grad()
    def __call__(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        pixels = images.to(self.device).float() / 127.5 - 1  # uint8 (1, 3, H, W)
        return {"latent": self.network(pixels)}  # (1, 4, H / 8, W / 8)


class Denoiser(nn.Module):
    """Says what noise is in latents of any shape, told the class."""

    def __init__(self, classes: int, width: int = 32) -> None:
        super().__init__()
        self.before = nn.Conv2d(4, width, 3, padding=1)
        self.told = nn.Embedding(classes, width)
        self.after = nn.Sequential(nn.SiLU(), nn.Conv2d(width, width, 3, padding=1), nn.SiLU(), nn.Conv2d(width, 4, 1))

    def forward(self, latents: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self.after(self.before(latents) + self.told(labels)[:, :, None, None])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("photos")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=16)
    options = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    dataset = FastDataset(options.photos, fields=("latent", "label"))  # no photo is read any more
    sizes = dataset.store.shapes("latent")[:, 1:]  # heights and widths, from the index
    shapes = np.unique(sizes, axis=0).tolist()
    buckets = ShapeBucketSampler(sizes, shapes=shapes, batch_size=options.batch_size)
    loader = FastLoader(dataset, batch_sampler=buckets, collate={"latent": "stack"}, device=device)

    model = Denoiser(len(dataset.classes)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for epoch in range(options.epochs):
        losses = []
        for halves, labels in loader:  # float16 (B, 4, H, W), int64 (B,)
            latents = halves.float()
            noise = torch.randn_like(latents)
            loss = (model(latents + noise, labels) - noise).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        print(f"epoch {epoch}: loss {torch.stack(losses).mean():.3f}, {len(shapes)} shapes")
    print(loader.receipt())


if __name__ == "__main__":
    main()
