"""A small denoiser guided by edges and captions: photo and edges share a crop, and one of several captions is drawn.

    $ python guided.py photos guided.lmdb --epochs 10

The first run packs the folder `photos`: beside each picture `a.jpg` may lie `a.txt`, with a caption on each line. Edges
are computed from the picture. At the end it paints a sample as classifier-free guidance does, with and without caption.
"""

import argparse
import zlib
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageFilter
from torch import Tensor, nn

from fastio import FastLoader, Writer
from fastio.transforms import ColorJitter, Normalize, Pick, RandomHorizontalFlip, RandomResizedCrop

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("store", type=Path)
for name, default in (("size", 64), ("batch-size", 16), ("epochs", 10)):
    parser.add_argument(f"--{name}", type=int, default=default)
options = parser.parse_args()
torch.manual_seed(0)

if not options.store.exists():
    with Writer(options.store, {"photo": "image", "edges": "image", "captions": "text[*]"}) as out:
        for path in sorted(path for path in options.folder.iterdir() if path.suffix != ".txt"):
            captions = path.with_suffix(".txt")
            edges = Image.open(path).convert("L").filter(ImageFilter.FIND_EDGES)
            lines = captions.read_text().splitlines() if captions.exists() else []
            out.write({"photo": path, "edges": edges, "captions": lines}, key=path.stem)

transforms: dict[str | tuple[str, ...], list[Any]] = {
    ("photo", "edges"): [RandomResizedCrop(options.size, scale=(0.5, 1)), RandomHorizontalFlip()],
    "photo": [ColorJitter(0.1, 0.1), Normalize([0.5] * 3, [0.5] * 3)],
    "edges": [Normalize([0.5] * 3, [0.5] * 3)],
    "captions": [Pick("captions", drop=0.1)],
}
words = nn.EmbeddingBag(4096, 16)
net = nn.Sequential(
    nn.Conv2d(3 + 3 + 16 + 1, 48, 3, padding=1), nn.SiLU(), nn.Conv2d(48, 48, 3, padding=1), nn.SiLU(),
    nn.Conv2d(48, 3, 3, padding=1),
)  # fmt: skip
optimizer = torch.optim.AdamW([*words.parameters(), *net.parameters()], lr=2e-3)


def predict(noisy: Tensor, edges: Tensor, captions: list[str], level: Tensor) -> Tensor:
    """The noise in pictures, as far as edges and captions tell; an empty caption tells nothing."""
    ids = [[zlib.crc32(word.encode()) % 4096 for word in caption.lower().split()] for caption in captions]
    starts = torch.tensor([0, *map(len, ids)][:-1]).cumsum(0)
    text = words(torch.tensor([i for each in ids for i in each], dtype=torch.long), starts)
    planes = torch.cat((text, level[:, None]), dim=1)[:, :, None, None].expand(-1, -1, *noisy.shape[2:])
    predicted: Tensor = net(torch.cat((noisy, edges, planes), dim=1))
    return predicted


with FastLoader(options.store, options.batch_size, shuffle=True, transforms=transforms) as loader:
    for epoch in range(options.epochs):
        losses = []
        for batch in loader:
            photo, level = batch["photo"], torch.rand(len(batch["photo"]))
            noise, keep = torch.randn_like(photo), (1 - level)[:, None, None, None]
            noisy = keep.sqrt() * photo + (1 - keep).sqrt() * noise
            loss = nn.functional.mse_loss(predict(noisy, batch["edges"], batch["captions"], level), noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}; {loader.receipt(own=True)}")

with torch.no_grad():
    edges, captions = batch["edges"][:1], batch["captions"][:1]
    picture, steps = torch.randn(1, 3, options.size, options.size), 20
    for step in range(steps, 0, -1):
        level = torch.full((1,), step / steps)
        told, untold = predict(picture, edges, captions, level), predict(picture, edges, [""], level)
        picture = picture - (untold + 3 * (told - untold)) / steps
print(f"painted {captions[0]!r}: {tuple(picture.shape)}, mean {picture.mean():.2f}")
