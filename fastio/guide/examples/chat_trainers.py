"""Fine-tuning on chats under a plain loop, the Trainer of transformers, or Lightning: the same 20 losses.

    $ python chats.py make                       # chats.jsonl, and tokenizer.json with chat_template.jinja beside it
    $ fastio pack chats.jsonl chats.h5 --tokenizer tokenizer.json --chat messages
    $ python chat_trainers.py loop
    $ python chat_trainers.py trainer
    $ python chat_trainers.py lightning

It needs `pip install 'fastio[transformers]'`, and for Lightning `fastio[lightning]`. Batches have input_ids,
attention_mask and labels, as all of them take them; labels are -100 but for the assistant's turns.
"""

import argparse
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from fastio import FastDataset, FastLoader, LengthBucketSampler

STEPS, RATE, ROWS = 20, 1e-2, 8


class TinyModel(LlamaForCausalLM):
    """It prints its losses, and has no use for lengths; or take AutoModelForCausalLM.from_pretrained("...")."""

    def forward(self, lengths: torch.Tensor | None = None, **inputs: Any) -> Any:
        del lengths
        out = super().forward(**inputs)
        print(f"loss {out.loss.item():.8f}")
        return out


def model_for(vocabulary: int) -> TinyModel:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    return TinyModel(LlamaConfig(vocab_size=vocabulary, **sizes))


def loop(model: TinyModel, batches: Iterable[dict[str, Any]]) -> None:
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    for _, batch in zip(range(STEPS), batches, strict=False):
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def trainer_of(model: TinyModel) -> Trainer:
    arguments = TrainingArguments(
        "out",
        max_steps=STEPS,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        optim="sgd",
        max_grad_norm=0,
        per_device_train_batch_size=ROWS,
        save_strategy="no",
        report_to="none",
        use_cpu=not torch.cuda.is_available(),
    )
    return Trainer(model, arguments)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("loop", "trainer", "lightning"))
    what = parser.parse_args().what
    chats = FastDataset("chats.h5")
    buckets = LengthBucketSampler(chats.lengths, batch_size=ROWS)
    load = partial(FastLoader, chats, batch_sampler=buckets, collate="pad")
    model = model_for(chats.tokenizer["vocab_size"])
    if what == "loop":
        loop(model, load())
    elif what == "trainer":
        from fastio.integrations.transformers import use_loaders

        trainer = trainer_of(model)
        use_loaders(trainer, train=load)
        trainer.train()
    else:
        import pytorch_lightning as pl

        from fastio.integrations.lightning import FastDataModule

        class Chats(pl.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def training_step(self, batch: dict[str, Any]) -> torch.Tensor:
                return self.model(**batch).loss

            def configure_optimizers(self) -> torch.optim.Optimizer:
                return torch.optim.SGD(self.parameters(), RATE)

        pl.Trainer(max_steps=STEPS, logger=False, enable_checkpointing=False).fit(Chats(), FastDataModule(train=load))


if __name__ == "__main__":
    main()
