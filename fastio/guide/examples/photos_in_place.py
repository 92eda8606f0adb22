"""A small network on class folders of photos as they lie: nothing is packed, one photo in ten is kept for testing.

    $ python photos_in_place.py photos --epochs 5
    $ fastio index photos          # once: checksums, and start points by which crops decode faster
    $ python photos_in_place.py photos --epochs 5

The first opening lists the files and keeps that beside the folder, as photos.fastio-index; nothing in the folder is
written. What is added, removed or changed later is noticed and named. At the end, a line says what opening the files
cost, and what packing them would save on this disk.
"""

import argparse
import logging

import torch
from torch import nn

from fastio import FastDataset, FastLoader
from fastio.transforms import CenterCrop, Normalize, RandomHorizontalFlip, RandomResizedCrop, Resize


def network(width: int, classes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, width), (width, 2 * width), (2 * width, 4 * width)):
        layers += [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, classes))


@torch.inference_mode()
def accuracy(model: nn.Module, loader: FastLoader) -> float:
    model.eval()
    return torch.cat([(model(images).argmax(1) == labels).float() for images, labels in loader]).mean().item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    for name, default in (("epochs", 5), ("batch-size", 64), ("size", 128), ("width", 32)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    logging.basicConfig(format="%(message)s")  # what changed in the folder, and what is no sample
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    dataset = FastDataset(options.folder)
    print(f"{len(dataset)} photos of {len(dataset.classes)} classes")
    fold = torch.randperm(len(dataset)).numpy() % 10
    normalize = Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    augment = [RandomResizedCrop(options.size, scale=(0.5, 1)), RandomHorizontalFlip(), normalize]
    plain = [Resize(options.size), CenterCrop(options.size), normalize]
    train = FastLoader(
        dataset, options.batch_size, indices=fold > 0, shuffle=True, transforms=augment, on_error="skip", device=device
    )
    test = FastLoader(dataset, options.batch_size, indices=fold == 0, transforms=plain, on_error="skip", device=device)
    model = network(options.width, len(dataset.classes)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    for epoch in range(options.epochs):
        model.train()
        losses = []
        for images, labels in train:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        print(f"epoch {epoch}: loss {torch.stack(losses).mean():.3f}, accuracy {accuracy(model, test):.1%}")
    if opens := train.stats.opens:
        print(f"{opens.files} files read where they lie; {opens.waited_s:.1f} s waited for them")


if __name__ == "__main__":
    main()
