"""Fine-tuning on text with pictures in it: a small vision-language model, packed by tokens and patches at once.

    $ python pictured_chats.py make              # chats.json as LLaVA has them, images/, and a small tokenizer
    $ fastio pack chats.json chats.lmdb --root images --tokenizer tokenizer.json --chat conversations
    $ python pictured_chats.py train

The 200 questions have none to three pictures of one colour each, whose answers name the colours. A row is filled to
--tokens with whole chats, whose pictures have at most --patches; the loss counts answers alone. With a model of your
own, take its tokenizer.json: its chat template lies beside it.
"""

import argparse
import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn

from fastio import FastDataset, FastLoader, PackCollate, PackSampler
from fastio.transforms import Normalize, Patchify, SmartResize, vision_lengths

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (30, 40, 220), "white": (240, 240, 240)}
WORDS = ["<pad>", "<image>", "which", "colours", "?", "<end>", *COLOURS]
TEMPLATE = """{% for turn in messages %}{% for part in turn.content -%}
{{ ' <image> ' if part.type == 'image' else part.text }}{% endfor %}
{%- if turn.role == 'assistant' %} <end>{% elif add_generation_prompt %} {% endif %}{% endfor %}"""
PATCH = 14


def make(count: int = 200) -> None:
    draw, chats = np.random.default_rng(0), []
    Path("images").mkdir(exist_ok=True)
    for number in range(count):
        names, files = draw.choice(list(COLOURS), draw.integers(0, 4)).tolist(), []
        for place, name in enumerate(names):
            noise = draw.integers(-15, 16, (*draw.integers(56, 120, 2), 3))
            files.append(f"{number:03}-{place}.png")
            Image.fromarray(np.uint8(np.clip(COLOURS[name] + noise, 0, 255))).save(f"images/{files[-1]}")
        asked = {"from": "human", "value": "<image>\n" * len(names) + "which colours ?"}
        turns = [asked, {"from": "gpt", "value": " ".join(["", *names])}]
        chats.append({"image": files, "conversations": turns} if files else {"conversations": turns})
    Path("chats.json").write_text(json.dumps(chats))

    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, "<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save("tokenizer.json")
    Path("chat_template.jinja").write_text(TEMPLATE)


class PicturedModel(nn.Module):
    """Says the next token. Each 2 x 2 patches become a token; attention looks back, within a chat."""

    def __init__(self, image_token: int, width: int = 64, depth: int = 2) -> None:
        super().__init__()
        self.image_token = image_token
        self.words, self.places = nn.Embedding(len(WORDS), width), nn.Embedding(256, width)
        self.patch, self.merge = nn.Linear(6 * PATCH * PATCH, width), nn.Linear(4 * width, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, len(WORDS))

    def forward(self, batch: dict[str, Any]) -> torch.Tensor:
        ids, cuts = batch["input_ids"], batch["cu_seqlens"]
        pictures = self.merge(self.patch(batch["image"]["patches"]).reshape(-1, self.merge.in_features))
        x = self.words(ids).index_put((torch.nonzero(ids == self.image_token)[:, 0],), pictures) + self.places(
            batch["position_ids"]
        )
        chat = torch.bucketize(torch.arange(len(ids), device=ids.device), cuts[1:], right=True)
        is_hidden = torch.ones(len(ids), len(ids), dtype=torch.bool, device=ids.device).triu(1)
        is_hidden |= chat[:, None] != chat
        return self.head(self.blocks(x[None], mask=is_hidden)[0])


def train(steps: int, tokens: int, patches: int) -> None:
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    chats = FastDataset("chats.lmdb")
    image_token = chats.store.metadata["chat"]["image"]["id"]
    finish = Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    transforms = [SmartResize(2 * PATCH, max_pixels=112 * 112), Patchify(PATCH, order="qwen", packed=True), finish]
    lengths, sizes = vision_lengths(chats, transforms)
    packs = PackSampler(lengths, max_tokens=tokens, patches=sizes, max_patches=patches)
    collate = PackCollate(tokens, image_token=image_token)
    loader = FastLoader(chats, batch_sampler=packs, transforms=transforms, collate=collate, device=device)
    print(packs.report())

    model = PicturedModel(image_token).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    done = 0
    while done < steps:  # an epoch has fewer steps
        for batch in islice(loader, steps - done):
            logits, labels = model(batch)[:-1], batch["labels"][1:]  # each token says the next one
            loss = nn.functional.cross_entropy(logits, labels, ignore_index=-100)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            print(f"step {done}: loss {loss.item():.3f}")


parser = argparse.ArgumentParser()
parser.add_argument("what", choices=("make", "train"))
for name, default in (("steps", 20), ("tokens", 512), ("patches", 1536)):
    parser.add_argument(f"--{name}", type=int, default=default)
options = parser.parse_args()
make() if options.what == "make" else train(options.steps, options.tokens, options.patches)
