"""A small ResNet on a folder of PNGs such as CIFAR-10's, with a tenth of them kept for testing.

    $ fastio pack png/ pictures.lmdb --labels labels.pkl       # labels.pkl holds {file name: class}
    $ python cifar.py pictures.lmdb --epochs 10

Without a GPU, an epoch of 50,000 pictures took 2.5 CPU-minutes (Intel Xeon), one of 10,000 took 1.4 (busy AMD EPYC).
"""

import argparse

import torch
from torch import nn

from fastio import FastDataset, FastLoader, StepTimer
from fastio.transforms import Normalize, RandomCrop, RandomHorizontalFlip


def conv(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(width, width), conv(width, width))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images + self.body(images)


def resnet(width: int, classes: int) -> nn.Sequential:
    middle = [conv(width, 2 * width, stride=2), Residual(2 * width), conv(2 * width, 4 * width, stride=2)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, classes)]
    return nn.Sequential(conv(3, width), *middle, Residual(4 * width), *head)


@torch.inference_mode()
def accuracy(model: nn.Module, loader: FastLoader) -> float:
    model.eval()
    return torch.cat([(model(images).argmax(1) == labels).float() for images, labels in loader]).mean().item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    for name, default in (("epochs", 10), ("batch-size", 128), ("width", 32)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    dataset = FastDataset(options.store)
    fold = torch.randperm(len(dataset)).numpy() % 10
    normalize = Normalize(mean=(0.491, 0.482, 0.447), std=(0.247, 0.243, 0.262))
    augment = [RandomCrop(32, padding=4), RandomHorizontalFlip(), normalize]
    train = FastLoader(dataset, options.batch_size, indices=fold > 0, shuffle=True, transforms=augment, device=device)
    test = FastLoader(dataset, options.batch_size, indices=fold == 0, transforms=normalize, device=device)
    model = resnet(options.width, len(dataset.classes)).to(device)
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
            if len(losses) % 5 == 0:
                print(f"epoch {epoch}: {len(losses)} of {len(train)} steps", end="\r", flush=True)
        print(f"epoch {epoch}: loss {torch.stack(losses).mean():.3f}, accuracy {accuracy(model, test):.1%}", end=", ")
        print("{0.samples_per_s:,.0f} pictures/s, {0.loading_share:.1%} of the time waiting".format(timer.summary()))


if __name__ == "__main__":
    main()
