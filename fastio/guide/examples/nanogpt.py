"""A small GPT over characters: paragraphs, one after another, fill rows of one length without padding.

    $ python character_tokenizer.py input.txt chars.json
    $ fastio pack input.txt text.h5 --document paragraph --tokenizer chars.json --eos --max-length 1024 --too-long split
    $ python nanogpt.py text.h5 --epochs 10

Every tenth paragraph is kept for validation. At the end, the model writes a text of its own.
"""

import argparse

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import nn

from fastio import ChunkCollate, FastDataset, FastLoader, PackSampler, StepTimer


class TinyGPT(nn.Module):
    def __init__(self, vocabulary: int, block: int, width: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(block, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 4, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
        embedded = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        return self.head(self.layers(embedded, mask, is_causal=True))

    def loss(self, rows: dict[str, torch.Tensor]) -> torch.Tensor:
        targets = rows["input_ids"].masked_fill(~rows["attention_mask"], -100)[:, 1:]  # -100 does not count
        return nn.functional.cross_entropy(self(rows["input_ids"][:, :-1]).flatten(0, 1), targets.flatten())


parser = argparse.ArgumentParser()
parser.add_argument("store")
for name, default in (("epochs", 10), ("rows", 64), ("block", 128), ("width", 128), ("write", 500)):
    parser.add_argument(f"--{name}", type=int, default=default)
options = parser.parse_args()
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

dataset = FastDataset(options.store)


def loader_of(indices: np.ndarray) -> FastLoader:
    packs = PackSampler(dataset.column("length")[indices], max_tokens=options.rows * (options.block + 1))
    collate = ChunkCollate(options.block + 1)
    return FastLoader(dataset, indices=indices, batch_sampler=packs, collate=collate, device=device)


numbers = np.arange(len(dataset))
train, val = loader_of(numbers[numbers % 10 > 0]), loader_of(numbers[numbers % 10 == 0])
model = TinyGPT(dataset.tokenizer["vocab_size"], options.block, options.width).to(device)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for epoch in range(options.epochs):
    timer, losses = StepTimer(), []
    for rows in timer(train):
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = model.loss(rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    with torch.inference_mode():
        val_loss = torch.stack([model.loss(rows) for rows in val]).mean()
    print(f"epoch {epoch}: loss {torch.stack(losses).mean():.3f}, validation {val_loss:.3f}", end=", ")
    print(f"{timer.summary().loading_share:.1%} of the time waiting for data, {train.stats.padding:.2%} padding")

ids = torch.full((1, 1), dataset.tokenizer["special"]["eos"], device=device)
for _ in range(options.write):
    with torch.inference_mode():
        chances = model(ids[:, -options.block :])[:, -1].softmax(-1)
    ids = torch.cat([ids, torch.multinomial(chances, 1)], 1)
text = Tokenizer.from_str(dataset.tokenizer["json"]).decode(ids[0].tolist(), skip_special_tokens=False)
print(text.replace("<eos>", "\n\n"))
