"""`fit` of Keras over any backend: native threads decode, crop and normalise photos into arrays.

    $ fastio pack photos/train train.lmdb                           # class folders
    $ fastio pack photos/val val.lmdb
    $ python keras_fit.py train.lmdb val.lmdb --epochs 10

It needs `pip install keras` and a backend: the environment variable KERAS_BACKEND says jax, tensorflow or torch. With
jax or tensorflow, torch is not imported.
"""

import argparse
from collections.abc import Iterator

import keras
import numpy as np

from fastio import FastLoader
from fastio.transforms import CenterCrop, Normalize, RandomHorizontalFlip, RandomResizedCrop, Resize

SIDE = 64
NORMALIZE = Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def batches(loader: FastLoader) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the batches of one epoch after the other: pictures (B, H, W, C) and labels, in a tuple as `fit` wants."""
    while True:
        for images, labels in loader:
            yield images.transpose(0, 2, 3, 1), labels


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args()

    train = FastLoader(
        options.train,
        options.batch_size,
        shuffle=True,
        drop_last=True,  # one shape of batches: nothing is compiled twice
        output="numpy",
        layout="channels_last",  # in memory (B, H, W, C), so that the transposed view is contiguous
        transforms=[RandomResizedCrop(SIDE), RandomHorizontalFlip(), NORMALIZE],
    )
    test = FastLoader(
        options.test,
        options.batch_size,
        output="numpy",
        layout="channels_last",
        transforms=[Resize(SIDE), CenterCrop(SIDE), NORMALIZE],
    )
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((SIDE, SIDE, 3)),
            *(layers.Conv2D(width, 3, 2, activation="relu") for width in (32, 64, 128)),
            layers.GlobalAveragePooling2D(),
            layers.Dense(len(train.dataset.classes)),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    model.fit(
        batches(train),
        steps_per_epoch=len(train),
        epochs=options.epochs,
        validation_data=batches(test),
        validation_steps=len(test),
        shuffle=False,  # the loader has shuffled
        verbose=2,
    )
    print(model.evaluate(batches(test), steps=len(test), verbose=0, return_dict=True))


if __name__ == "__main__":
    main()
