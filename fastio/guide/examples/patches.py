"""Photos of all proportions as packed patches: a small Vision Transformer, trained without padding, as NaViT is.

    $ fastio pack photos/ photos.lmdb
    $ python patches.py photos.lmdb --tokens 64 --epochs 4

Each photo keeps its proportions: it is resized to as many patches as fit into --tokens. A batch is one row of patches,
filled to --budget with whole photos; attention stays within a photo.
"""

import argparse

import torch
from torch import nn

from fastio import FastDataset, FastLoader, PackSampler, StepTimer
from fastio.transforms import Normalize, Patchify, RandomHorizontalFlip, ResizeToTokens, patches_of


class Block(nn.Module):
    """Attention within photos, then two layers for each patch."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.each = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor, same_photo: torch.Tensor) -> torch.Tensor:
        query, key, value = self.mix(self.before(x)).unflatten(1, (3, self.heads, -1)).permute(1, 2, 0, 3)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=same_photo)
        x = x + self.join(seen.transpose(0, 1).flatten(1))
        return x + self.each(self.after(x))


class PackedViT(nn.Module):
    """Says the class of each photo in a row of patches; on GPUs, cu_seqlens would go to a kernel for such rows."""

    def __init__(self, patch: int, classes: int, width: int = 64, depth: int = 2) -> None:
        super().__init__()
        self.embed, self.place = nn.Linear(3 * patch * patch, width), nn.Linear(2, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, classes))

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        counts = batch["cu_seqlens"].diff()
        photo = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
        places = batch["patch_coord"] / batch["grid_thw"][photo, 1:]
        x = self.embed(batch["patches"]) + self.place(places)
        same_photo = photo[:, None] == photo
        for block in self.blocks:
            x = block(x, same_photo)
        sums = torch.zeros(len(counts), x.shape[1], device=x.device).index_add(0, photo, x)
        return self.head(sums / counts[:, None])


parser = argparse.ArgumentParser()
parser.add_argument("store")
for name, default in (("epochs", 10), ("patch", 16), ("tokens", 256), ("budget", 4096)):
    parser.add_argument(f"--{name}", type=int, default=default)
options = parser.parse_args()
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

photos = FastDataset(options.store)
finish = Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
resize = ResizeToTokens(options.tokens, options.patch)
steps = [RandomHorizontalFlip(), resize, Patchify(options.patch, packed=True), finish]
packs = PackSampler(patches_of(photos.sizes(), steps), max_tokens=options.budget)
loader = FastLoader(photos, batch_sampler=packs, transforms=steps, device=device)
print(packs.report())

model = PackedViT(options.patch, len(photos.classes)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for epoch in range(options.epochs):
    timer, losses = StepTimer(), []
    for batch, labels in timer(loader):
        loss = nn.functional.cross_entropy(model(batch), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    rate = timer.summary().samples_per_s
    print(f"epoch {epoch}: loss {torch.stack(losses).mean():.3f}, {len(losses)} batches, {rate:,.0f} photos/s")
print(f"receipt: {loader.receipt()}")
