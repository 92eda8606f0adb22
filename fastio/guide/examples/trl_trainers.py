"""TRL's SFTTrainer and DPOTrainer on chats and preference pairs that are tokenised once, while packing.

    $ python trl_trainers.py make      # chats.jsonl, pairs.jsonl, and model/tokenizer.json with its template beside it
    $ fastio pack chats.jsonl chats.h5 --tokenizer model/tokenizer.json --chat messages
    $ python trl_trainers.py sft
    $ python trl_trainers.py sft --packed
    $ fastio pack pairs.jsonl pairs.h5 --tokenizer model/tokenizer.json --chat prompt
    $ python trl_trainers.py dpo

It needs `pip install trl` and `fastio[transformers]`. A trainer's own dataset is a few rows that nothing trains on:
`use_loaders` gives it the batches of the store, which are those that its own collator would make. In chats the turns of
the assistant count, as with `assistant_only_loss=True`.
"""

import argparse
import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Trainer
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from fastio import FastDataset, FastLoader, PackSampler
from fastio.integrations.transformers import use_loaders

TEMPLATE = """{% for turn in messages %}<|{{ turn.role }}|>{% if turn.role == 'assistant' -%}
{% generation %}{{ turn.content }}<|end|>{% endgeneration %}
{%- else %}{{ turn.content }}<|end|>{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""
NAMED = {"bos_token": "<s>", "eos_token": "<|end|>", "pad_token": "<pad>"}
ROWS = 8


def make() -> None:
    draw, chats, pairs = random.Random(0), [], []
    for _ in range(300):
        turns = []
        for number in draw.sample(range(50), draw.randint(1, 4)):
            turns.append({"role": "user", "content": f"What comes after {number}?"})
            turns.append({"role": "assistant", "content": f"After {number} comes {number + 1}."})
        chats.append({"messages": turns})
        wrong = {"role": "assistant", "content": f"After {number} comes {number + draw.randint(2, 9)}."}
        pairs.append({"prompt": turns[-2:-1], "chosen": turns[-1:], "rejected": [wrong]})
    for name, rows in (("chats", chats), ("pairs", pairs)):
        Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = [*NAMED.values(), "<|user|>", "<|assistant|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["What comes after 12? After 12 comes 13."], trainer)
    Path("model").mkdir(exist_ok=True)
    tokenizer.save("model/tokenizer.json")
    Path("model/tokenizer_config.json").write_text(json.dumps(NAMED))
    Path("model/chat_template.jinja").write_text(TEMPLATE)


def loaded_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = PreTrainedTokenizerFast(tokenizer_file="model/tokenizer.json", **NAMED)
    tokenizer.chat_template = Path("model/chat_template.jinja").read_text()
    return tokenizer


def tiny_model(vocabulary: int) -> LlamaForCausalLM:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(vocab_size=vocabulary, **sizes))  # or from_pretrained(...)


def arguments_for(steps: int) -> dict[str, Any]:
    return {
        "output_dir": "out",
        "max_steps": steps,
        "per_device_train_batch_size": ROWS,
        "learning_rate": 1e-2,
        "max_length": None,
        "train_sampling_strategy": "sequential",
        "report_to": "none",
        "save_strategy": "no",
        "bf16": torch.cuda.is_available(),
        "use_cpu": not torch.cuda.is_available(),
        "logging_steps": 5,
    }


def rows_of(name: str, *, uses_store: bool) -> Dataset:
    rows = [json.loads(line) for line in Path(name).read_text().splitlines()]
    return Dataset.from_list(rows[:ROWS] if uses_store else rows)


def model_inputs(batch: dict[str, Any]) -> dict[str, Any]:
    """Of a packed batch, what TRL calls padding-free: positions that begin anew say where documents begin."""
    return {name: batch[name][None] for name in ("input_ids", "position_ids", "labels")}


def sft(steps: int, *, uses_store: bool = True, packed: bool = False) -> list[float]:
    """Return the losses, which TRL rounds in what it prints."""
    tokenizer = loaded_tokenizer()
    arguments = SFTConfig(**arguments_for(steps), assistant_only_loss=True)
    own = rows_of("chats.jsonl", uses_store=uses_store)
    trainer = SFTTrainer(tiny_model(len(tokenizer)), arguments, train_dataset=own, processing_class=tokenizer)
    if packed:
        chats = FastDataset("chats.h5")
        rows = PackSampler(chats.lengths, max_tokens=512)
        load = partial(FastLoader, chats, batch_sampler=rows, collate="pack")
        use_loaders(trainer, train=load, inputs=model_inputs)
    elif uses_store:
        use_loaders(trainer, train=partial(FastLoader, "chats.h5", ROWS, collate="pad"))
    return losses_of(trainer)


def dpo(steps: int, *, uses_store: bool = True) -> list[float]:
    tokenizer = loaded_tokenizer()
    model, reference = (tiny_model(len(tokenizer)) for _ in range(2))
    own = rows_of("pairs.jsonl", uses_store=uses_store)
    arguments = DPOConfig(**arguments_for(steps))
    trainer = DPOTrainer(model, reference, arguments, train_dataset=own, processing_class=tokenizer)
    if uses_store:
        use_loaders(trainer, train=partial(FastLoader, "pairs.h5", ROWS, collate="preference"))
    return losses_of(trainer)


def losses_of(trainer: Trainer) -> list[float]:
    losses: list[float] = []
    compute = trainer.compute_loss

    def noted(*args: Any, **named: Any) -> Any:
        loss = compute(*args, **named)
        losses.append((loss[0] if isinstance(loss, tuple) else loss).item())
        return loss

    trainer.compute_loss = noted
    trainer.train()
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("make", "sft", "dpo"))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--packed", action="store_true", help="sft: rows of 512 tokens instead of padded chats")
    options = parser.parse_args()
    if options.what == "make":
        make()
    else:
        losses = dpo(options.steps) if options.what == "dpo" else sft(options.steps, packed=options.packed)
        print(*(f"loss {loss:.8f}" for loss in losses), sep="\n")
