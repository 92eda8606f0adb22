"""A training loop in JAX: native threads decode, crop and normalise photos into arrays, and torch is not imported.

    $ fastio pack photos/train train.lmdb                           # class folders
    $ fastio pack photos/val val.lmdb
    $ python jax_loop.py train.lmdb val.lmdb loop.npz --epochs 10
    $ python jax_loop.py train.lmdb val.lmdb loop.npz --epochs 20               # goes on from the checkpoint

It needs `pip install jax`. Batches come as NumPy arrays, and JAX takes them over by DLPack: on a CPU without a copy.
"""

import argparse
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from fastio import FastLoader
from fastio.transforms import CenterCrop, MixUp, Normalize, RandomHorizontalFlip, RandomResizedCrop, Resize

SIDE = 64
NORMALIZE = Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def initial(classes: int) -> dict[str, jax.Array]:
    """Return the weights of three convolutions and a linear layer."""
    random = np.random.default_rng(0)
    weights, inside = {}, 3
    for number, outside in enumerate((32, 64, 128)):
        scale = np.sqrt(2 / (9 * inside))
        weights[f"convolution{number}"] = jnp.asarray(random.normal(0, scale, (3, 3, inside, outside)), jnp.float32)
        inside = outside
    weights["linear"] = jnp.asarray(random.normal(0, 0.01, (inside, classes)), jnp.float32)
    return weights


def scores(weights: dict[str, jax.Array], images: jax.Array) -> jax.Array:
    """Return the scores of the classes, (B, classes), for float32 pictures (B, H, W, C)."""
    for number in range(3):
        kernel = weights[f"convolution{number}"]
        images = jax.lax.conv_general_dilated(
            images, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        images = jax.nn.relu(images)
    return images.mean((1, 2)) @ weights["linear"]


def loss(weights: dict[str, jax.Array], images: jax.Array, shares: jax.Array) -> jax.Array:
    """Cross entropy with the shares that MixUp gives the classes, (B, classes)."""
    return -(shares * jax.nn.log_softmax(scores(weights, images))).sum(1).mean()


def stepped(
    weights: dict[str, jax.Array], images: jax.Array, shares: jax.Array
) -> tuple[dict[str, jax.Array], jax.Array]:
    """Return the weights after a step, and the loss before it."""
    value, slopes = jax.value_and_grad(loss)(weights, images, shares)
    return jax.tree.map(lambda weight, slope: weight - 0.05 * slope, weights, slopes), value


def taken(array: np.ndarray) -> jax.Array:
    """Return a batch on JAX's device: on a CPU the same memory, which is recycled when JAX lets go of it."""
    return jax.device_put(jnp.from_dlpack(array), jax.devices()[0])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("checkpoint", type=Path, help="file of weights, and of the position in the order of photos")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args()

    test = FastLoader(
        options.test,
        options.batch_size,
        output="numpy",
        layout="channels_last",
        transforms=[Resize(SIDE), CenterCrop(SIDE), NORMALIZE],
    )
    classes = len(test.dataset.classes)
    mix = MixUp(0.2, num_classes=classes)
    train = FastLoader(
        options.train,
        options.batch_size,
        shuffle=True,
        drop_last=True,
        output="numpy",
        layout="channels_last",  # in memory (B, H, W, C), as JAX takes pictures
        transforms=[RandomResizedCrop(SIDE), RandomHorizontalFlip(), mix, NORMALIZE],
    )
    weights = initial(classes)
    if options.checkpoint.exists():
        saved = dict(np.load(options.checkpoint))
        train.load_state_dict(json.loads(str(saved.pop("position"))))
        weights = {name: jnp.asarray(values) for name, values in saved.items()}

    step, predict = jax.jit(stepped), jax.jit(scores)
    for epoch in range(train.place[0], options.epochs):
        for images, shares in train:
            weights, value = step(weights, taken(images.transpose(0, 2, 3, 1)), taken(shares))
        right = 0
        for images, labels in test:
            right += int((predict(weights, taken(images.transpose(0, 2, 3, 1))).argmax(1) == labels).sum())
        print(f"epoch {epoch}: loss {value:.3f}, {right / len(test.dataset):.1%} of the photos right")
        np.savez(options.checkpoint, **weights, position=json.dumps(train.state_dict()))


if __name__ == "__main__":
    main()
