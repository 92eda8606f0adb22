"""Several GPUs, or processes on CPUs: stopped at any time, a run continues with the next sample on any number of them.

    $ fastio pack photos/ photos.lmdb                               # class folders
    $ torchrun --nproc-per-node 4 torchrun.py photos.lmdb           # stop it by Ctrl-C
    $ torchrun --nproc-per-node 3 torchrun.py photos.lmdb           # continues after the last checkpoint

A FastLoader learns its rank from the process group, and reads that rank's share.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from fastio import FastDataset, FastLoader
from fastio.transforms import Normalize, RandomHorizontalFlip, RandomResizedCrop

TRANSFORMS = (RandomResizedCrop(64), RandomHorizontalFlip(), Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, loader: FastLoader) -> None:
    """Write a checkpoint that any number of ranks can load; a crash leaves the old one or the new one."""
    loader.receipt()  # on all ranks, so that rank 0 saves what all of them have had
    if dist.get_rank() == 0:
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict()}
        torch.save(states, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64, help="of each rank")
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"))
    parser.add_argument("--every", type=int, default=100, help="steps from checkpoint to checkpoint")
    parser.add_argument("--stop", action="store_true", help="end at the first checkpoint")
    options = parser.parse_args()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")

    dataset = FastDataset(options.store)
    loader = FastLoader(dataset, options.batch_size, shuffle=True, transforms=TRANSFORMS, device=device)
    body = [nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    model = DistributedDataParallel(nn.Sequential(*body, nn.Linear(32, len(dataset.classes))).to(device))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    if options.checkpoint.exists():
        saved = torch.load(options.checkpoint, map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
    for epoch in range(loader.state_dict()["epoch"], options.epochs):
        for step, (images, labels) in enumerate(loader, 1):
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % options.every == 0:
                save(options.checkpoint, model, optimizer, loader)
                if options.stop:
                    dist.destroy_process_group()
                    return
        receipt = loader.receipt()  # whether the epoch gave each sample once, summed over all ranks and restarts
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {dist.get_world_size()} ranks, loss {loss.item():.3f}, {receipt}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
