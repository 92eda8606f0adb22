"""TRL's DPOTrainer on preference pairs that are tokenised once, while packing.

    $ python preference_pairs.py make            # pairs.jsonl, and model/tokenizer.json with its template beside it
    $ fastio pack pairs.jsonl pairs.h5 --tokenizer model/tokenizer.json --chat prompt
    $ python preference_pairs.py train

It needs `pip install trl` and `fastio[transformers]`. The trainer's own dataset is a few rows that nothing trains on:
`use_loaders` gives it the batches of the store, which are those that its own collator would make.
"""

import argparse
import json
import random
from functools import partial
from pathlib import Path

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer

from fastio import FastLoader
from fastio.integrations.transformers import use_loaders

TEMPLATE = """{% for turn in messages %}<|{{ turn.role }}|>{{ turn.content }}<|end|>{% endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""
NAMED = {"bos_token": "<s>", "eos_token": "<|end|>", "pad_token": "<pad>"}


def make() -> None:
    draw, pairs = random.Random(0), []
    for _ in range(300):
        number = draw.randint(0, 50)
        prompt = [{"role": "user", "content": f"What comes after {number}?"}]
        good, bad = (f"After {number} comes {number + step}." for step in (1, draw.randint(2, 9)))
        answers = {"chosen": good, "rejected": bad}
        turns = {name: [{"role": "assistant", "content": text}] for name, text in answers.items()}
        pairs.append({"prompt": prompt, **turns})
    Path("pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
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


def train(steps: int, *, uses_store: bool = True) -> list[float]:
    """Return the losses, which TRL rounds in what it prints."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_file="model/tokenizer.json", **NAMED)
    tokenizer.chat_template = Path("model/chat_template.jinja").read_text()
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes))  # or from_pretrained(...)
    reference = LlamaForCausalLM(model.config)
    reference.load_state_dict(model.state_dict())
    arguments = DPOConfig(
        "out",
        max_steps=steps,
        per_device_train_batch_size=8,
        learning_rate=1e-2,
        max_length=None,
        train_sampling_strategy="sequential",
        report_to="none",
        save_strategy="no",
        bf16=torch.cuda.is_available(),
        use_cpu=not torch.cuda.is_available(),
        logging_steps=5,
    )
    rows = [json.loads(line) for line in Path("pairs.jsonl").read_text().splitlines()]
    own = Dataset.from_list(rows[:8] if uses_store else rows)
    trainer = DPOTrainer(model, reference, arguments, train_dataset=own, processing_class=tokenizer)
    if uses_store:
        use_loaders(trainer, train=partial(FastLoader, "pairs.h5", 8, collate="preference"))
    losses: list[float] = []
    compute = trainer.compute_loss

    def noted(*args: object, **named: object) -> object:
        loss = compute(*args, **named)
        losses.append(float(loss[0] if isinstance(loss, tuple) else loss))
        return loss

    trainer.compute_loss = noted
    trainer.train()
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("make", "train"))
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    if options.what == "make":
        make()
    else:
        print(*(f"loss {loss:.8f}" for loss in train(options.steps)), sep="\n")
