"""A small GPT on a long row of token ids that is read where it lies: random windows, a document mask, checkpoints.

    $ python token_stream.py train.bin --dtype uint16 --eos 50256 --steps 200
    $ python token_stream.py corpus --steps 200                  # Megatron's corpus.bin and corpus.idx

A run that was stopped goes on with the window that comes next, from stream.pt.
"""

import argparse
from itertools import islice
from pathlib import Path

import torch
from torch import nn

from fastio import FastLoader, TokenStream

parser = argparse.ArgumentParser()
parser.add_argument("path")
parser.add_argument("--dtype")
for name, default in (("eos", None), ("steps", 200), ("rows", 8), ("block", 64), ("width", 64), ("vocab", 50304)):
    parser.add_argument(f"--{name}", type=int, default=default)
options = parser.parse_args()
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class TinyGPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = (
            nn.Embedding(options.vocab, options.width),
            nn.Embedding(options.block, options.width),
        )
        layer = nn.TransformerEncoderLayer(options.width, 4, 4 * options.width, 0.0, "gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(options.width, options.vocab)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        ids, places, documents = (
            batch[name][:, : options.block] for name in ("input_ids", "position_ids", "document_ids")
        )
        is_other = documents[:, :, None] != documents[:, None, :]  # a token sees its own document, up to itself
        hidden = is_other | torch.ones_like(is_other[0]).triu(1)
        embedded = self.tokens(ids) + self.places(places.clamp(max=options.block - 1))
        return self.head(self.layers(embedded, mask=hidden.repeat_interleave(4, 0)))


stream = TokenStream(options.path, dtype=options.dtype, eos=options.eos, vocab_size=options.vocab)
windows = stream.windows(options.block + 1, random=True, documents="mask")
loader = FastLoader(windows, options.rows, shuffle=True, drop_last=True, device=device)
model = TinyGPT().to(device)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
checkpoint, done = Path("stream.pt"), 0
if checkpoint.exists():
    saved = torch.load(checkpoint)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    loader.load_state_dict(saved["loader"])
    done = saved["steps"]
while done < options.steps:
    for batch in islice(loader, options.steps - done):
        targets = batch["input_ids"][:, 1:].clone()
        targets[
            batch["document_ids"][:, 1:] != batch["document_ids"][:, :-1]
        ] = -100  # nothing foretells another document
        loss = nn.functional.cross_entropy(model(batch).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
    print(f"step {done}: loss {loss.item():.3f}")
torch.save(
    {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict(), "steps": done},
    checkpoint,
)
