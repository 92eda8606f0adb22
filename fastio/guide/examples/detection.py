"""A small detector: boxes and classes of COCO's JSON go with the pieces of mosaics, each made of four pictures.

    $ fastio pack scenes/coco.json coco.lmdb                     # images lie beside the JSON
    $ python detection.py coco.lmdb --classes 80 --epochs 30

Datasets of YOLO, Pascal VOC and Open Images give the same fields. Every fifth picture is kept for testing, whole:
mosaics are for training alone. The network says, for each cell of a grid, which class has a box's centre there, and how
large that box is.
"""

import argparse

import numpy as np
import torch
from torch import nn

from fastio import FastDataset, FastLoader, StepTimer
from fastio.transforms import KeepBoxes, Letterbox, Mosaic, Normalize, RandomHorizontalFlip

STRIDE = 8  # pixels a cell


class TinyDetector(nn.Module):
    def __init__(self, classes: int, width: int = 32) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in ((3, width), (width, width), (width, 2 * width)):
            layers += [nn.Conv2d(inputs, outputs, 3, 2, 1), nn.BatchNorm2d(outputs), nn.ReLU()]
        layers += [nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Conv2d(2 * width, 1 + classes + 2, 1)  # no box, classes, the logarithms of width and height

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        kinds, sizes = self.head(self.body(images)).split((self.head.out_channels - 2, 2), 1)
        return kinds, sizes


def cells(boxes: list[torch.Tensor], side: int) -> tuple[torch.Tensor, ...]:
    """For all boxes (x, y, width, height): picture, row and column of the cell of their centre, and their sizes."""
    picture = torch.repeat_interleave(torch.arange(len(boxes)), torch.tensor([len(each) for each in boxes]))
    rows = torch.cat(boxes)
    column, row = ((rows[:, :2] + rows[:, 2:] / 2) / STRIDE).long().clamp(0, side - 1).unbind(1)
    return picture, row, column, rows[:, 2:].clamp(min=1)


def loss_of(
    outputs: tuple[torch.Tensor, torch.Tensor], boxes: list[torch.Tensor], classes: list[torch.Tensor]
) -> torch.Tensor:
    kinds, sizes = outputs
    picture, row, column, extent = cells([each.cpu() for each in boxes], kinds.shape[-1])
    wanted = torch.zeros(kinds.shape[0], *kinds.shape[2:], dtype=torch.long)
    wanted[picture, row, column] = torch.cat([each.cpu() for each in classes]).long() + 1
    weights = torch.ones(kinds.shape[1], device=kinds.device)
    weights[0] = 0.1  # most cells have no box
    found = nn.functional.cross_entropy(kinds, wanted.to(kinds.device), weights)
    if len(picture) == 0:
        return found
    errors = sizes[picture, :, row, column] - (extent / STRIDE).log().to(sizes.device)
    return found + 0.1 * errors.abs().mean()


@torch.inference_mode()
def found_share(model: nn.Module, loader: FastLoader) -> float:
    """The share of boxes whose class has been found in the cell of their centre."""
    model.eval()
    right = total = 0
    for images, boxes, classes in loader:
        kinds = model(images)[0].argmax(1).cpu()
        picture, row, column, _ = cells([each.cpu() for each in boxes], kinds.shape[-1])
        wanted = torch.cat([each.cpu() for each in classes]) + 1
        right += int((kinds[picture, row, column] == wanted).sum())
        total += len(wanted)
    return right / max(total, 1)


parser = argparse.ArgumentParser()
parser.add_argument("store")
for name, default in (("classes", 80), ("size", 640), ("batch-size", 16), ("epochs", 30)):
    parser.add_argument(f"--{name}", type=int, default=default)
options = parser.parse_args()
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

scenes = FastDataset(options.store, fields=("image", "boxes", "classes"))
is_test = np.arange(len(scenes)) % 5 == 0
finish = Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
whole = Letterbox(options.size, fill=114)
steps = [whole, Mosaic(options.size, fill=114), RandomHorizontalFlip(), KeepBoxes(min_area=16), finish]
train = FastLoader(scenes, options.batch_size, indices=~is_test, shuffle=True, transforms=steps, device=device)
test = FastLoader(scenes, options.batch_size, indices=is_test, transforms=[whole, finish], device=device)
model = TinyDetector(options.classes).to(device)
optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
for epoch in range(options.epochs):
    model.train()
    timer, losses = StepTimer(), []
    for images, boxes, classes in timer(train):
        loss = loss_of(model(images), boxes, classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    found, waiting = found_share(model, test), timer.summary().loading_share
    print(f"epoch {epoch}: loss {torch.stack(losses).mean():.3f}, found {found:.1%}, {waiting:.1%} of the time waiting")
