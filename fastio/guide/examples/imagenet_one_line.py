"""One line: imagenet_before.py over packed photos.
Transforms, random numbers and every pixel stay; so do torch's DataLoader and its workers. Needs torchvision.

    $ fastio pack photos/train train.lmdb
    $ fastio pack photos/val val.lmdb
    $ python imagenet_one_line.py train.lmdb val.lmdb
"""

import argparse
import time
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms

from fastio import FastDataset


class BasicBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        first = [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        self.body = nn.Sequential(*first, nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu(self.body(images) + self.shortcut(images))


parser = argparse.ArgumentParser()
parser.add_argument("train")
parser.add_argument("val")
parser.add_argument("--resume", metavar="CHECKPOINT")
for name, default in (("epochs", 90), ("batch-size", 256), ("size", 224), ("width", 64), ("workers", 4)):
    parser.add_argument(f"--{name}", type=int, default=default)
options = parser.parse_args()
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
finish = [transforms.ToTensor(), transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
augment = [transforms.RandomResizedCrop(options.size), transforms.RandomHorizontalFlip(), *finish]
centre = [transforms.Resize(options.size * 8 // 7), transforms.CenterCrop(options.size), *finish]
train_set = FastDataset(options.train, transforms.Compose(augment))
val_set = FastDataset(options.val, transforms.Compose(centre))
train = DataLoader(train_set, options.batch_size, shuffle=True, num_workers=options.workers)
val = DataLoader(val_set, options.batch_size, num_workers=options.workers)
blocks = [BasicBlock(*widths) for widths in pairwise(options.width * wider for wider in (1, 1, 1, 2, 2, 4, 4, 8, 8))]
head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * options.width, len(train_set.classes))]
model = nn.Sequential(nn.Conv2d(3, options.width, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks, *head).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.1 * options.batch_size / 256, momentum=0.9, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs * len(train))
parts: tuple[Any, ...] = (model, optimizer, schedule)
if options.resume:
    for part, state in zip(parts, torch.load(options.resume), strict=True):
        part.load_state_dict(state)
for epoch in range(schedule.last_epoch // len(train), options.epochs):
    model.train()
    start, losses = time.perf_counter(), []
    for images, labels in train:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
    mean, rate = torch.stack(losses).mean(), len(train_set) / (time.perf_counter() - start)
    with torch.inference_mode():
        model.eval()
        right = [(model(images.to(device)).argmax(1) == labels.to(device)).float() for images, labels in val]
    print(f"epoch {epoch}: loss {mean:.4f}, top-1 {torch.cat(right).mean():.1%}, {rate:,.0f} images/s")
    torch.save([part.state_dict() for part in parts], "checkpoint.pt")
