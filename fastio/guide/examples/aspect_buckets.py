"""Photos of all proportions in batches of several shapes, as SDXL is trained: a small denoiser, told size and crop.

    $ fastio pack photos/ photos.lmdb
    $ python aspect_buckets.py photos.lmdb --where "width >= 40 and height >= 40"

Each photo is resized once, so that it covers the shape nearest to its own, and cropped to that. The network is small;
what it shows is the input: one loader, whose batches differ in height and width.
"""

import argparse

import torch
from torch import nn

from fastio import FastDataset, FastLoader, ShapeBucketSampler, StepTimer
from fastio.transforms import KeepCrop, Normalize, RandomHorizontalFlip, ResizeToBucket


class Denoiser(nn.Module):
    """Says what noise is in pictures of any shape, told six numbers: original size, crop, and the batch's own size."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.before = nn.Conv2d(3, width, 3, padding=1)
        self.told = nn.Sequential(nn.Linear(6, width), nn.SiLU(), nn.Linear(width, width))
        self.after = nn.Sequential(nn.SiLU(), nn.Conv2d(width, width, 3, padding=1), nn.SiLU(), nn.Conv2d(width, 3, 1))

    def forward(self, images: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        return self.after(self.before(images) + self.told(numbers)[:, :, None, None])


parser = argparse.ArgumentParser()
parser.add_argument("store")
parser.add_argument("--where", default="width >= 256 and height >= 256", help="which photos to train with")
for name, default in (("epochs", 10), ("pixels", 256**2), ("multiple-of", 32), ("batch-size", 16)):
    parser.add_argument(f"--{name}", type=int, default=default)
options = parser.parse_args()
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

dataset = FastDataset(options.store, fields=("label", "image"))  # a tuple, which has room for more
photos = dataset.where(options.where)
print(f"{len(photos)} of {len(dataset)} photos")
buckets = ShapeBucketSampler(
    photos.sizes(), pixels=options.pixels, multiple_of=options.multiple_of, batch_size=options.batch_size
)
print(buckets.report())
steps = [ResizeToBucket(buckets, "bicubic", crop="random"), RandomHorizontalFlip(), KeepCrop()]
finish = Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
loader = FastLoader(photos, batch_sampler=buckets, transforms=[*steps, finish], device=device)

model = Denoiser().to(device)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for epoch in range(options.epochs):
    timer, losses, shapes = StepTimer(), [], set()
    for _, images, sizes, crops in timer(loader):
        shape = torch.tensor(images.shape[2:], device=images.device).expand(len(images), 2)
        numbers = torch.cat((sizes, crops, shape), dim=1).to(images) / 1000
        noise = torch.randn_like(images)
        loss = (model(images + noise, numbers) - noise).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        shapes.add(tuple(images.shape[2:]))
    rate = timer.summary().samples_per_s
    print(f"epoch {epoch}: loss {torch.stack(losses).mean():.3f}, {len(shapes)} shapes, {rate:,.0f} photos/s")
print(f"receipt: {loader.receipt()}")
