"""Trains from S3, Google Cloud Storage, Azure, or anything that speaks S3.

    $ fastio pack photos/ 's3://bucket/photos-%06d.tar' --shard-size 500MB
    $ python object_store.py 's3://bucket/photos-%06d.tar'                          # each epoch reads the bucket
    $ python object_store.py 's3://bucket/photos-%06d.tar' --stage scratch          # while it reads, it copies
    $ python object_store.py 's3://bucket/photos-%06d.tar' --cache scratch          # it keeps what it reads

It needs `pip install 'fastio[remote]'` and the variables of your provider: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_REGION, and AWS_ENDPOINT_URL if it is not AWS. Batches are the same in all three, to the bit.
"""

import argparse

import torch
from torch import nn

from fastio import FastDataset, FastLoader, Remote
from fastio.transforms import Normalize, RandomHorizontalFlip, RandomResizedCrop

TRANSFORMS = (RandomResizedCrop(64), RandomHorizontalFlip(), Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--stage", metavar="FOLDER", help="copy the whole set to a disk of this node, while it is read")
    parser.add_argument("--cache", metavar="FOLDER", help="keep what was read")
    parser.add_argument("--cache-limit", metavar="SIZE", help="up to this size, such as 200GB")
    options = parser.parse_args()

    remote = Remote(stage=options.stage, cache_dir=options.cache, cache_limit=options.cache_limit)
    dataset = FastDataset(options.url, remote=remote)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loader = FastLoader(dataset, options.batch_size, shuffle=True, transforms=TRANSFORMS, device=device)
    body = [nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    model = nn.Sequential(*body, nn.Linear(32, len(dataset.classes))).to(device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(options.epochs):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}, {loader.receipt()}")


if __name__ == "__main__":
    main()
