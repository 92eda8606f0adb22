"""Text of different lengths, classified by a small transformer: batches of similar length, padded and masked.

    $ fastio pack reviews/train train.h5 --tokenizer bytes --max-length 512 --too-long truncate  # class folders of .txt
    $ fastio pack reviews/test test.h5 --tokenizer bytes --max-length 512 --too-long truncate
    $ python text_buckets.py train.h5 test.h5 --epochs 5

Native threads fill the batches. --tokenizer takes any tokenizer.json of Hugging Face, too.
"""

import argparse

import torch
from torch import nn

from fastio import FastDataset, FastLoader, LengthBucketSampler, StepTimer

WIDTH, LONGEST = 128, 512  # LONGEST as --max-length


class TextClassifier(nn.Module):
    def __init__(self, vocabulary: int, classes: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, WIDTH), nn.Embedding(LONGEST, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        embedded = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        encoded = self.encoder(embedded, src_key_padding_mask=~mask)
        mean = (encoded * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return self.head(mean)


@torch.inference_mode()
def accuracy(model: nn.Module, loader: FastLoader) -> float:
    model.eval()
    scores = [(model(batch["input_ids"], batch["attention_mask"]), batch["labels"]) for batch in loader]
    return torch.cat([score.argmax(1) == labels for score, labels in scores]).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    train_set, test_set = FastDataset(options.train), FastDataset(options.test)
    lengths = train_set.column("length")
    buckets = LengthBucketSampler(lengths, batch_size=options.batch_size)
    train = FastLoader(train_set, batch_sampler=buckets, collate="pad", device=device)
    buckets = LengthBucketSampler(test_set.column("length"), batch_size=options.batch_size, shuffle=False)
    test = FastLoader(test_set, batch_sampler=buckets, collate="pad", device=device)

    model = TextClassifier(train_set.tokenizer["vocab_size"], len(train_set.classes)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 5e-4)
    for epoch in range(options.epochs):
        model.train()
        timer, losses = StepTimer(), []
        for batch in timer(train):
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                scores = model(batch["input_ids"], batch["attention_mask"])
                loss = nn.functional.cross_entropy(scores, batch["labels"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        loss, rate = torch.stack(losses).mean(), timer.summary().samples_per_s
        print(f"epoch {epoch}: loss {loss:.3f}, accuracy {accuracy(model, test):.1%}, {rate:,.0f} texts/s", end=", ")
        print(f"{train.stats.padding:.1%} of the slots are padding")


if __name__ == "__main__":
    main()
