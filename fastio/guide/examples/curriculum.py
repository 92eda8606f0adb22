"""A curriculum: easy pictures first, all of them at the end, by weights that are set anew for each epoch.

    $ fastio pack photos/ photos.lmdb
    $ python curriculum.py photos.lmdb --epochs 8

Before each epoch, the network's own loss on every picture says how easy it is. It decides less and less what is drawn.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional

from fastio import FastDataset, FastLoader
from fastio.transforms import CenterCrop, Normalize, RandomHorizontalFlip, RandomResizedCrop, Resize


def conv(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())


@torch.inference_mode()
def losses(model: nn.Module, loader: FastLoader) -> torch.Tensor:
    """Return the loss of each picture, in the order of the store."""
    model.eval()
    return torch.cat([functional.cross_entropy(model(images), labels, reduction="none") for images, labels in loader])


parser = argparse.ArgumentParser()
parser.add_argument("store")
for name, default in (("epochs", 8), ("batch-size", 64), ("size", 64)):
    parser.add_argument(f"--{name}", type=int, default=default)
options = parser.parse_args()
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

dataset = FastDataset(options.store)
size, normalize = options.size, Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
crops = [RandomResizedCrop(size), RandomHorizontalFlip(), normalize]
train = FastLoader(dataset, options.batch_size, weights=[1.0] * len(dataset), transforms=crops, device=device)
centres = [Resize(size), CenterCrop(size), normalize]
every = FastLoader(dataset, options.batch_size, transforms=centres, device=device)

layers = conv(3, 32), conv(32, 64), conv(64, 128), nn.AdaptiveAvgPool2d(1), nn.Flatten()
model = nn.Sequential(*layers, nn.Linear(128, len(dataset.classes))).to(device)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for epoch in range(options.epochs):
    hardness = losses(model, every).cpu()
    sharpness = 2.0 * (1 - epoch / max(1, options.epochs - 1))  # 0 in the last epoch: all pictures alike
    weights = (-sharpness * (hardness - hardness.min())).exp()
    train.set_weights(weights)
    model.train()
    for images, labels in train:
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    effective = weights.sum() ** 2 / weights.square().sum()
    print(f"epoch {epoch}: loss {hardness.mean():.3f}, drawn as if from {effective:.0f} of {len(dataset)} pictures")
print(f"receipt: {train.receipt()}")
