"""After: imagenet_before.py with native threads instead of workers, and with checkpoints within an epoch.
Stop it at any time: --resume continues after the last checkpoint, so that no sample of the epoch is lost.

    $ fastio pack photos/train train.lmdb               # the same bytes; crops decode faster
    $ fastio pack photos/val val.lmdb
    $ python imagenet_after.py train.lmdb val.lmdb
    $ python imagenet_after.py train.lmdb val.lmdb --resume checkpoint.pt
"""

import argparse
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fastio import FastLoader, StepTimer, transforms


class BasicBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        first = [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        self.body = nn.Sequential(*first, nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu(self.body(images) + self.shortcut(images))


def save() -> None:
    torch.save([part.state_dict() for part in parts], "checkpoint.new")
    Path("checkpoint.new").replace("checkpoint.pt")  # a crash leaves the old checkpoint or the new one


parser = argparse.ArgumentParser()
parser.add_argument("train")
parser.add_argument("val")
parser.add_argument("--resume", metavar="CHECKPOINT")
for name, default in (("epochs", 90), ("batch-size", 256), ("size", 224), ("width", 64), ("save-every", 500)):
    parser.add_argument(f"--{name}", type=int, default=default)
options = parser.parse_args()
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
finish = (transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),)
augment = (transforms.RandomResizedCrop(options.size), transforms.RandomHorizontalFlip(), *finish)
centre = (transforms.Resize(options.size * 8 // 7), transforms.CenterCrop(options.size), *finish)
train = FastLoader(options.train, options.batch_size, shuffle=True, transforms=augment, device=device)
val = FastLoader(options.val, options.batch_size, transforms=centre, device=device)
blocks = [BasicBlock(*widths) for widths in pairwise(options.width * wider for wider in (1, 1, 1, 2, 2, 4, 4, 8, 8))]
head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * options.width, len(train.dataset.classes))]
model = nn.Sequential(nn.Conv2d(3, options.width, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks, *head).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.1 * options.batch_size / 256, momentum=0.9, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs * len(train))
parts: tuple[Any, ...] = (model, optimizer, schedule, train)
if options.resume:
    for part, state in zip(parts, torch.load(options.resume), strict=True):
        part.load_state_dict(state)
for epoch in range(train.state_dict()["epoch"], options.epochs):
    model.train()
    timer, losses = StepTimer(), []
    for images, labels in timer(train):
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
        if len(losses) % options.save_every == 0:
            save()
    mean, rate = torch.stack(losses).mean(), timer.summary().samples_per_s
    with torch.inference_mode():
        model.eval()
        right = [(model(images).argmax(1) == labels).float() for images, labels in val]
    print(f"epoch {epoch}: loss {mean:.4f}, top-1 {torch.cat(right).mean():.1%}, {rate:,.0f} images/s")
    save()
