"""Lightning: a run that was stopped within an epoch continues with the next sample, on any number of GPUs.

    $ fastio pack photos/ photos.lmdb                                               # class folders
    $ python lightning_module.py photos.lmdb --steps 200                            # stops there
    $ python lightning_module.py photos.lmdb --resume checkpoints/last.ckpt         # goes on

It needs `pip install 'fastio[lightning]'`. FastDataModule asks the Trainer for rank and device: there are no workers,
and no DistributedSampler. (Called lightning.py, this file would be imported in place of the package.)
"""

import argparse
from functools import partial

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import nn

from fastio import FastDataset, FastLoader
from fastio.integrations.lightning import FastDataModule
from fastio.transforms import Normalize, RandomHorizontalFlip, RandomResizedCrop

TRANSFORMS = (RandomResizedCrop(64), RandomHorizontalFlip(), Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


class PhotoClassifier(pl.LightningModule):
    """A small network; the loop around it is Lightning's."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        convolutions = [nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU()]
        self.network = nn.Sequential(*convolutions, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        """Take float32 (B, 3, 64, 64) and int64 (B,), on the Trainer's device."""
        images, labels = batch
        return nn.functional.cross_entropy(self.network(images), labels)

    def on_train_epoch_end(self) -> None:
        """Print whether the epoch gave each sample once: a sum over all ranks and restarts."""
        (loader,) = self.trainer.datamodule.loaders["train"]  # type: ignore[attr-defined] # FastDataModule
        receipt = loader.receipt()
        self.print(f"epoch {self.current_epoch}: {receipt}")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam, without a schedule."""
        return torch.optim.Adam(self.parameters(), 1e-3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--every", type=int, default=100, help="steps from checkpoint to checkpoint")
    parser.add_argument("--steps", type=int, default=-1, help="stop after so many")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--resume", metavar="CHECKPOINT")
    options = parser.parse_args()

    load = partial(FastLoader, options.store, options.batch_size, shuffle=True, transforms=TRANSFORMS)
    trainer = pl.Trainer(
        max_epochs=options.epochs,
        max_steps=options.steps,
        callbacks=[ModelCheckpoint("checkpoints", save_last=True, every_n_train_steps=options.every)],
        logger=False,
    )
    model = PhotoClassifier(len(FastDataset(options.store).classes))
    trainer.fit(model, FastDataModule(train=load), ckpt_path=options.resume)


if __name__ == "__main__":
    main()
