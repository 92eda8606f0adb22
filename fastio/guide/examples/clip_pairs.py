"""Pictures and their captions, brought together by a contrastive loss as in CLIP, with two small towers.

    $ fastio pack captions.csv pairs.lmdb --root photos/ --field caption=caption:tokens --tokenizer bytes --eos
    $ python clip_pairs.py pairs.lmdb --epochs 30           # captions.csv has the columns file_name and caption

Every tenth pair is kept for testing: how often is the right caption the nearest of all of them?
"""

import argparse

import numpy as np
import torch
from torch import nn

from fastio import FastDataset, FastLoader, StepTimer
from fastio.transforms import CenterCrop, Normalize, RandomResizedCrop, Resize

LONGEST = 256  # tokens of a caption


def conv(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())


class TwoTowers(nn.Module):
    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.pictures = nn.Sequential(conv(3, 32), conv(32, 64), conv(64, width), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(LONGEST, width)
        self.texts = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True)
        self.heads = nn.ModuleList([nn.Linear(4 * width, width), nn.Linear(width, width)])
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return how well each picture of a batch goes with each caption, (B, B)."""
        ids, mask = batch["caption"], batch["caption_mask"]
        tokens = self.texts(self.tokens(ids) + self.places.weight[: ids.shape[1]], src_key_padding_mask=~mask)
        texts = (tokens * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        pairs = zip(self.heads, (self.pictures(batch["image"]), texts), strict=True)
        pictures, texts = (nn.functional.normalize(head(features), dim=1) for head, features in pairs)
        return self.scale.exp() * pictures @ texts.T


parser = argparse.ArgumentParser()
parser.add_argument("store")
for name, default in (("epochs", 30), ("batch-size", 64), ("size", 64), ("width", 128)):
    parser.add_argument(f"--{name}", type=int, default=default)
options = parser.parse_args()
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

pairs = FastDataset(options.store)
is_test = np.arange(len(pairs)) % 10 == 0
finish = Normalize((0.481, 0.458, 0.408), (0.269, 0.261, 0.276))
steps = [RandomResizedCrop(options.size, scale=(0.7, 1.0)), finish]  # no flip: captions say left and right
train = FastLoader(pairs, options.batch_size, indices=~is_test, shuffle=True, transforms=steps, device=device)
centre = (Resize(options.size), CenterCrop(options.size), finish)
test = FastLoader(pairs, int(is_test.sum()), indices=is_test, transforms=centre, device=device)
model = TwoTowers(pairs.tokenizer["vocab_size"], options.width).to(device)
optimizer = torch.optim.AdamW(model.parameters(), 5e-4)
for epoch in range(options.epochs):
    model.train()
    timer, losses = StepTimer(), []
    for batch in timer(train):
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            scores = model(batch)
            own = torch.arange(len(scores), device=device)
            loss = (nn.functional.cross_entropy(scores, own) + nn.functional.cross_entropy(scores.T, own)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    with torch.inference_mode():
        model.eval()
        (scores,) = map(model, test)  # all of them in one batch
    right = (scores.argmax(1).cpu() == torch.arange(len(scores))).float().mean()
    rate = timer.summary().samples_per_s
    print(f"epoch {epoch}: loss {torch.stack(losses).mean():.3f}, right caption {right:.1%}, {rate:,.0f} pairs/s")
