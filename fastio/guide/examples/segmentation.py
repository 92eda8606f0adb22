"""A small U-Net: picture and mask are cropped, flipped and turned alike; the numbers of masks are never interpolated.

    $ fastio pack images/ scenes.lmdb --field mask=masks/       # files of the same names in two folders
    $ python segmentation.py scenes.lmdb --classes 12 --epochs 30

Every fifth scene is kept for testing. Pixels of class 255 are unknown and count nowhere: those at the edges that crops
of small scenes add, and in the corners of turned ones, are such.
"""

import argparse

import numpy as np
import torch
from torch import nn

from fastio import FastDataset, FastLoader, StepTimer
from fastio.transforms import CenterCrop, Normalize, RandomApply, RandomCrop, RandomHorizontalFlip, RandomRotation

UNKNOWN = 255


def stage(inputs: int, outputs: int) -> nn.Sequential:
    layers = [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())


class TinyUNet(nn.Module):
    def __init__(self, classes: int, width: int = 16) -> None:
        super().__init__()
        self.down = nn.ModuleList([stage(3, width), stage(width, 2 * width), stage(2 * width, 4 * width)])
        self.up = nn.ModuleList([stage(6 * width, 2 * width), stage(3 * width, width)])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        fine = self.down[0](images)
        middle = self.down[1](nn.functional.max_pool2d(fine, 2))
        coarse = self.down[2](nn.functional.max_pool2d(middle, 2))
        middle = self.up[0](torch.cat([nn.functional.interpolate(coarse, scale_factor=2.0), middle], 1))
        return self.head(self.up[1](torch.cat([nn.functional.interpolate(middle, scale_factor=2.0), fine], 1)))


@torch.inference_mode()
def mean_iou(model: nn.Module, loader: FastLoader, classes: int) -> float:
    model.eval()
    table = torch.zeros(classes, classes)  # pixels by class and by predicted class
    for images, masks in loader:
        pairs = (classes * masks.long() + model(images).argmax(1))[masks != UNKNOWN]
        table += torch.bincount(pairs, minlength=classes**2).view(classes, classes).cpu()
    union = table.sum(0) + table.sum(1) - table.diag()
    return (table.diag() / union)[union > 0].mean().item()


parser = argparse.ArgumentParser()
parser.add_argument("store")
for name, default in (("classes", 12), ("crop", 256), ("batch-size", 8), ("epochs", 30)):
    parser.add_argument(f"--{name}", type=int, default=default)
options = parser.parse_args()
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

scenes = FastDataset(options.store, fields=("image", "mask"))
is_test = np.arange(len(scenes)) % 5 == 0
finish = Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
crop = RandomCrop(options.crop, pad_if_needed=True, mask_fill=UNKNOWN)
turn = RandomApply([RandomRotation(10, "bilinear", mask_fill=UNKNOWN)])
steps = (turn, crop, RandomHorizontalFlip(), finish)
train = FastLoader(scenes, options.batch_size, indices=~is_test, shuffle=True, transforms=steps, device=device)
middle = CenterCrop(options.crop, mask_fill=UNKNOWN)
test = FastLoader(scenes, 1, indices=is_test, transforms=[middle, finish], device=device)
model = TinyUNet(options.classes).to(device)
optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
for epoch in range(options.epochs):
    model.train()
    timer, losses = StepTimer(), []
    for images, masks in timer(train):
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = nn.functional.cross_entropy(model(images), masks.long(), ignore_index=UNKNOWN)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    iou, waiting = mean_iou(model, test, options.classes), timer.summary().loading_share
    print(f"epoch {epoch}: loss {torch.stack(losses).mean():.3f}, IoU {iou:.1%}, {waiting:.1%} of the time waiting")
