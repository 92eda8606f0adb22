"""A small ResNet on a folder of PNGs such as CIFAR-10's, with a tenth of them kept for testing.

    $ fastio pack png/ pictures.lmdb --labels labels.pkl       # labels.pkl holds {file name: class}
    $ python cifar.py pictures.lmdb --epochs 10

Native threads decode, crop and flip; the device normalises. There are no worker processes.
"""

import argparse

import numpy as np
import torch
from torch import nn

from fastio import FastDataset, FastLoader, StepTimer
from fastio.transforms import Normalize, RandomCrop, RandomHorizontalFlip

NORMALIZE = Normalize(mean=(0.491, 0.482, 0.447), std=(0.247, 0.243, 0.262))


def conv(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(width, width), conv(width, width))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images + self.body(images)


def resnet(classes: int) -> nn.Sequential:
    body = [conv(3, 32), conv(32, 64, stride=2), Residual(64), conv(64, 128, stride=2), Residual(128)]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, classes))


@torch.inference_mode()
def accuracy(model: nn.Module, loader: FastLoader) -> float:
    model.eval()
    return torch.cat([(model(images).argmax(1) == labels).float() for images, labels in loader]).mean().item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    dataset = FastDataset(options.store)
    fold = np.random.default_rng(0).permutation(len(dataset)) % 10
    steps = (RandomCrop(32, padding=4), RandomHorizontalFlip(), NORMALIZE)
    train = FastLoader(dataset, 128, indices=fold > 0, shuffle=True, transforms=steps, device=device)
    test = FastLoader(dataset, 128, indices=fold == 0, transforms=[NORMALIZE], device=device)

    model = resnet(len(dataset.classes)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=options.epochs * len(train))
    for epoch in range(options.epochs):
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
        times, loss = timer.summary(), torch.stack(losses).mean()
        rate = f"{times.samples_per_s:,.0f} pictures/s, {times.loading_share:.1%} of the time waiting for data"
        print(f"epoch {epoch}: loss {loss:.3f}, accuracy {accuracy(model, test):.1%}, {rate}")


if __name__ == "__main__":
    main()
