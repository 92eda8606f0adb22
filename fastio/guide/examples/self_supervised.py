"""Views of photos without labels: SimCLR with two, or a student and its teacher with two large and several small ones.

    $ fastio pack photos/ photos.lmdb
    $ python self_supervised.py photos.lmdb --method simclr
    $ python self_supervised.py photos.lmdb --method multi-crop --crops 6

The network is small; what it shows is the input: each photo is decoded once a step, whatever the number of its views.
"""

import argparse
import copy

import torch
from torch import nn
from torch.nn import functional

from fastio import FastLoader, StepTimer
from fastio.transforms import ColorJitter, Normalize, RandomHorizontalFlip, RandomResizedCrop


def conv(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())


def network(width: int) -> nn.Sequential:
    layers = conv(3, 32), conv(32, 64), conv(64, width), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 64))


def simclr_loss(views: list[torch.Tensor], temperature: float = 0.2) -> torch.Tensor:
    """Each of 2 B embeddings should find the other view of its photo among all the others."""
    embeddings = functional.normalize(torch.cat(views), dim=1)
    scores = embeddings @ embeddings.T / temperature
    scores.fill_diagonal_(-torch.inf)
    count = len(views[0])
    return functional.cross_entropy(scores, torch.arange(2 * count, device=scores.device).roll(count))


def distillation_loss(seen: list[torch.Tensor], taught: list[torch.Tensor], centre: torch.Tensor) -> torch.Tensor:
    """What the teacher says of a large view, the student should say of all other views."""
    losses = [
        -(((target - centre) / 0.04).softmax(1) * (own / 0.1).log_softmax(1)).sum(1).mean()
        for place, target in enumerate(taught)
        for view, own in enumerate(seen)
        if view != place
    ]
    return torch.stack(losses).mean()


parser = argparse.ArgumentParser()
parser.add_argument("store")
parser.add_argument("--method", choices=["simclr", "multi-crop"], default="simclr")
for name, default in (("epochs", 20), ("batch-size", 64), ("size", 64), ("small-size", 32), ("crops", 6)):
    parser.add_argument(f"--{name}", type=int, default=default)
options = parser.parse_args()
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

finish = [ColorJitter(0.4, 0.4, 0.2), Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
large = [RandomResizedCrop(options.size, scale=(0.3, 1.0)), RandomHorizontalFlip(), *finish]
small = [RandomResizedCrop(options.small_size, scale=(0.05, 0.3)), RandomHorizontalFlip(), *finish]
views = [(2, large)] if options.method == "simclr" else [(2, large), (options.crops, small)]
loader = FastLoader(options.store, options.batch_size, shuffle=True, drop_last=True, views=views, device=device)

student = network(128).to(device)
teacher = copy.deepcopy(student).requires_grad_(requires_grad=False)
centre = torch.zeros(64, device=device)
optimizer = torch.optim.AdamW(student.parameters(), 1e-3)
for epoch in range(options.epochs):
    timer, losses = StepTimer(), []
    for images, _ in timer(loader):
        seen = [student(view) for view in images]
        if options.method == "simclr":
            loss = simclr_loss(seen)
        else:
            with torch.no_grad():
                taught = [teacher(view) for view in images[:2]]
            loss = distillation_loss(seen, taught, centre)
            centre = 0.9 * centre + 0.1 * torch.cat(taught).mean(0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(teacher.parameters(), student.parameters(), strict=True):
                old.lerp_(new, 0.01)
        losses.append(loss.detach())
    rate = timer.summary().samples_per_s
    print(f"epoch {epoch}: loss {torch.stack(losses).mean():.3f}, {rate:,.0f} photos/s")
print(f"receipt: {loader.receipt()}")
