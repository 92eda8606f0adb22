"""A small language model, fine-tuned on chats: packed rows, and a loss over the assistant's turns alone.

    $ python chats.py make                       # chats.jsonl, and tokenizer.json with chat_template.jinja beside it
    $ fastio pack chats.jsonl chats.h5 --tokenizer tokenizer.json --chat messages
    $ python chats.py train

With a model of your own, take its tokenizer.json: its chat template lies beside it.
"""

import argparse
import json
import random
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn

from fastio import FastDataset, FastLoader, PackSampler

TEMPLATE = """{% for turn in messages %}<|{{ turn.role }}|>{% if turn.role == 'assistant' -%}
{% generation %}{{ turn.content }}<|end|>{% endgeneration %}
{%- else %}{{ turn.content }}<|end|>{% endif %}{% endfor %}"""
SPECIAL = ["<|user|>", "<|assistant|>", "<|end|>", "<pad>"]


def make() -> None:
    draw, chats = random.Random(0), []
    for _ in range(400):
        turns = []
        for _ in range(draw.randint(1, 4)):
            number = draw.randint(0, 20)
            turns.append({"role": "user", "content": f"What comes after {number}?"})
            turns.append({"role": "assistant", "content": f"After {number} comes {number + 1}."})
        chats.append({"messages": turns})
    Path("chats.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator((turn["content"] for chat in chats for turn in chat["messages"]), trainer)
    tokenizer.save("tokenizer.json")
    Path("chat_template.jinja").write_text(TEMPLATE)


class TinyModel(nn.Module):
    def __init__(self, vocabulary: int, width: int = 32) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(128, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
        earlier = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool, device=ids.device).tril()
        hidden = ~(earlier & (documents[:, :, None] == documents[:, None, :]))  # each chat sees itself alone
        embedded = self.tokens(ids) + self.places(positions)
        return self.head(self.layers(embedded, hidden.repeat_interleave(4, 0)))


def train(steps: int) -> None:
    torch.manual_seed(0)
    chats = FastDataset("chats.h5")
    rows = PackSampler(chats.lengths, max_tokens=128, rows=4)
    loader = FastLoader(chats, batch_sampler=rows, collate="pack")
    model = TinyModel(chats.tokenizer["vocab_size"])
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for step, batch in zip(range(1, steps + 1), loader, strict=False):
        scores = model(batch["input_ids"], batch["position_ids"], batch["document_ids"])
        # Each place foretells the next id, which counts where labels has it: -100 in the user's turns and in padding.
        loss = nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"step {step}: loss {loss.item():.3f}")


parser = argparse.ArgumentParser()
parser.add_argument("what", choices=("make", "train"))
parser.add_argument("--steps", type=int, default=20)
options = parser.parse_args()
make() if options.what == "make" else train(options.steps)
