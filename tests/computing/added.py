"""Stores of pictures, and the fields that tests add to them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np

from fastio import FastDataset, FastLoader, Writer
from fastio.converters import open_source
from fastio.converters import pack as pack_source
from tests.converters.trees import picture

COUNT = 20
KEYS = [f"{i % 3}/{i}.png" for i in range(COUNT)]


def photos(path: Path, count: int = COUNT) -> str:
    """Pictures with their numbers as labels; in shards if the name says so."""
    single = path.with_name("whole.tar") if "%" in path.name else path
    with Writer(single, {"image": "image", "label": "label"}) as out:
        for number in range(count):
            out.write({"image": picture(number), "label": number}, key=KEYS[number])
    if "%" in path.name:
        pack_source(open_source(single), path, shard_bytes=8000)
    return str(path)


def latents_of(number: int) -> np.ndarray[Any, Any]:
    """What belongs to a picture."""
    return np.full((2, 3), number, "f2")


def latents(path: Path, keys: list[str] = KEYS, seed: int = 3) -> str:
    """Arrays of the same samples and more fields, in another order."""
    shuffled = list(enumerate(keys))
    random.Random(seed).shuffle(shuffled)
    fields = {"latents": "float16[2,3]", "views": "image[*]", "label": "label"}
    with Writer(path, fields) as out:
        for number, key in shuffled:
            views = [picture(each) for each in range(number % 3)]
            out.write({"latents": latents_of(number), "views": views, "label": number}, key=key)
    return str(path)


def check(path: str, count: int = COUNT) -> None:
    """Every sample has its own latents, also in batches, shuffled."""
    dataset = FastDataset(path)
    assert count == len(dataset)
    for number, sample in enumerate(dataset):
        assert (number, KEYS[number]) == (sample["label"], dataset.keys[number])
        assert latents_of(number).tolist() == sample["latents"].tolist()
    for batch in FastLoader(path, 6, shuffle=True, seed=1):
        assert (batch["latents"].float().mean((1, 2)).long() == batch["label"]).all()
