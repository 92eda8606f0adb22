"""Fine-tuning on text with pictures in it: a small vision-language model, packed by tokens and patches at once.

    $ python pictured_chats.py chats.lmdb --steps 20

The script makes chats.lmdb, if it is not there: 200 questions with none to three pictures of one colour each, whose
answers name the colours. A row is filled to --tokens with whole chats, whose pictures have at most --patches; the loss
counts answers alone. A real one would take its ids from a model's tokenizer, and the model from transformers.
"""

import argparse
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from fastio import FastDataset, FastLoader, PackCollate, PackSampler, Writer
from fastio.transforms import Normalize, Patchify, SmartResize, vision_lengths
from fastio.types.runs import runs_of_mask

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (30, 40, 220), "white": (240, 240, 240)}
WORDS = ["<pad>", "<image>", "which", "colours", "?", "<end>", *COLOURS]
IMAGE_TOKEN, PATCH = WORDS.index("<image>"), 14


def make_chats(path: str, count: int = 200) -> None:
    """Write questions and answers as token ids, a placeholder for each picture among them."""
    draw = np.random.default_rng(0)
    with Writer(path, {"images": "image[*]", "tokens": "tokens16", "loss": "loss"}) as out:
        for _ in range(count):
            names = draw.choice(list(COLOURS), draw.integers(0, 4)).tolist()
            pictures = []
            for name in names:
                noise = draw.integers(-15, 16, (*draw.integers(56, 120, 2), 3))
                pictures.append(Image.fromarray(np.uint8(np.clip(COLOURS[name] + noise, 0, 255))))
            question, answer = ["<image>"] * len(names) + ["which", "colours", "?"], [*names, "<end>"]
            ids = [WORDS.index(word) for word in question + answer]
            out.write({"images": pictures, "tokens": ids, "loss": runs_of_mask(np.arange(len(ids)) >= len(question))})


class PicturedModel(nn.Module):
    """Says the next token. Each 2 x 2 patches become a token; attention looks back, within a chat."""

    def __init__(self, width: int = 64, depth: int = 2) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(len(WORDS), width), nn.Embedding(256, width)
        self.patch, self.merge = nn.Linear(6 * PATCH * PATCH, width), nn.Linear(4 * width, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, len(WORDS))

    def forward(self, batch: dict[str, Any]) -> torch.Tensor:
        ids, cuts = batch["input_ids"], batch["cu_seqlens"]
        pictures = self.merge(self.patch(batch["images"]["patches"]).reshape(-1, self.merge.in_features))
        x = self.words(ids).index_put((torch.nonzero(ids == IMAGE_TOKEN)[:, 0],), pictures) + self.places(
            batch["position_ids"]
        )
        chat = torch.bucketize(torch.arange(len(ids), device=ids.device), cuts[1:], right=True)
        is_hidden = torch.ones(len(ids), len(ids), dtype=torch.bool, device=ids.device).triu(1)
        is_hidden |= chat[:, None] != chat
        return self.head(self.blocks(x[None], mask=is_hidden)[0])


parser = argparse.ArgumentParser()
parser.add_argument("store")
for name, default in (("steps", 20), ("tokens", 512), ("patches", 1536)):
    parser.add_argument(f"--{name}", type=int, default=default)
options = parser.parse_args()
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if not Path(options.store).exists():
    make_chats(options.store)

chats = FastDataset(options.store)
finish = Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
steps = [SmartResize(2 * PATCH, max_pixels=112 * 112), Patchify(PATCH, order="qwen", packed=True), finish]
tokens, patches = vision_lengths(chats, steps)
packs = PackSampler(tokens, max_tokens=options.tokens, patches=patches, max_patches=options.patches)
collate = PackCollate(options.tokens, image_token=IMAGE_TOKEN)
loader = FastLoader(chats, batch_sampler=packs, transforms=steps, collate=collate, device=device)
print(packs.report())

model = PicturedModel().to(device)
optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
done = 0
while done < options.steps:  # an epoch has fewer steps
    for batch in islice(loader, options.steps - done):
        logits, labels = model(batch)[:-1], batch["labels"][1:]  # each token says the next one
        loss = nn.functional.cross_entropy(logits, labels, ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
        print(f"step {done}: loss {loss.item():.3f}")
