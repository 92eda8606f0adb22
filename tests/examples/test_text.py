"""The examples on text learn toy sets, from the commands of their docstrings."""

from __future__ import annotations

import io
import json
import runpy
from contextlib import redirect_stdout
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from fastio import LengthBucketSampler, PackSampler
from fastio.converters import TokenFileWriter
from tests.examples.running import EXAMPLES, commands, numbers, run_example, run_script


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_character_is_a_token(folder: Path) -> None:
    """Ids follow the order of the characters, line ends among them; they become the same text again."""
    text = "no more, no less\n\nno end"
    (folder / "input.txt").write_text(text)

    run_example("character_tokenizer.py")

    tokenizer = Tokenizer.from_file("chars.json")
    assert [sorted(set(text)).index(character) for character in text] == tokenizer.encode(text).ids
    assert text == tokenizer.decode(tokenizer.encode(text).ids)


def test_classes_of_texts_are_learned(folder: Path) -> None:
    """Reviews of 1 to 12 words, good or bad: losses fall, unknown ones are classified, and little is padding."""
    random = np.random.default_rng(0)
    words = {"pos": ("good", "fine"), "neg": ("bad", "ugly")}
    for part, count in (("train", 96), ("test", 32)):
        for number in range(count):
            label = ("pos", "neg")[number % 2]
            path = folder / "reviews" / part / label / f"{number}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(" ".join(random.choice(words[label], random.integers(1, 12))))

    output = run_example("text_buckets.py", "--batch-size", "8", "--epochs", "3")

    losses = numbers("loss", output)
    assert losses[-1] < losses[0]
    assert numbers("accuracy", output)[-1] > 75


def test_a_gpt_learns_from_a_row_of_ids(folder: Path) -> None:
    """Losses fall on nanoGPT's file and Megatron's, and the second run goes on where the first one stopped."""
    documents = [np.append(np.arange(1, 2 + number % 40), 50256) for number in range(400)]
    np.concatenate(documents).astype(np.uint16).tofile("train.bin")
    with TokenFileWriter("corpus.bin", dtype="uint16", megatron=True) as out:
        for ids in documents:
            out.write(ids)
    small = ("--rows", "4", "--block", "16", "--width", "16", "--vocab", "50257", "--steps")
    names = [words[2] for words in commands("token_stream.py")]
    assert ["train.bin", "corpus"] == names

    first = run_script("token_stream.py", "train.bin", "--dtype", "uint16", "--eos", "50256", *small, "30")
    second = run_script("token_stream.py", "train.bin", "--dtype", "uint16", "--eos", "50256", *small, "40")

    assert "step 30: " in first
    assert second.startswith("step 40: ")
    assert numbers("loss", second)[-1] < 10.8
    (folder / "stream.pt").unlink()
    assert "step 2: " in run_script("token_stream.py", "corpus", *small, "2")


def test_a_model_learns_from_chats() -> None:
    """From chats that the script makes: the loss over the assistant's turns falls within 20 steps."""
    losses = numbers("loss", run_example("chats.py"))

    assert 4 == len(losses)
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.filterwarnings("ignore:The number of training batches:UserWarning")
@pytest.mark.filterwarnings("ignore:.*LeafSpec:DeprecationWarning", "ignore:.*LeafSpec:FutureWarning")
def test_trainers_have_the_losses_of_the_usual_road() -> None:
    """
    20 steps under a plain loop, transformers' Trainer and Lightning: the losses of chats that transformers renders,
    masks and pads itself, in the same order.
    """
    transformers = pytest.importorskip("transformers")
    found = numbers("loss", run_example("chat_trainers.py"))
    example = runpy.run_path(str(EXAMPLES / "chat_trainers.py"), run_name="example")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file="tokenizer.json", pad_token="<pad>")
    tokenizer.chat_template = Path("chat_template.jinja").read_text()
    samples = [_rendered(tokenizer, json.loads(line)) for line in Path("chats.jsonl").read_text().splitlines()]
    plan = LengthBucketSampler([len(sample["input_ids"]) for sample in samples], batch_size=example["ROWS"]).plan(0)
    collate = transformers.DataCollatorForTokenClassification(tokenizer)
    batches = [collate([samples[index] for index in plan.indices[place]]) for place in plan.slices()]
    printed = io.StringIO()
    with redirect_stdout(printed):
        example["loop"](example["model_for"](len(tokenizer)), batches)
    expected = numbers("loss", printed.getvalue())

    assert 20 == len(expected)
    assert expected[-1] < expected[0]
    assert pytest.approx(expected * 3, abs=1e-6) == found


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning")  # TRL 1.16 asks for it
def test_chats_and_pairs_train_as_under_trl_alone() -> None:
    """
    Where TRL is installed: 20 losses each of its SFTTrainer, on padded chats and on packed rows, and of its
    DPOTrainer, are those of its own datasets, masks and collators.
    """
    pytest.importorskip("trl", minversion="1")
    found = numbers("loss", run_example("trl_trainers.py"))
    example = runpy.run_path(str(EXAMPLES / "trl_trainers.py"), run_name="example")
    padded, pairs = example["sft"](20, uses_store=False), example["dpo"](20, uses_store=False)
    expected = padded + _trl_packed(example) + pairs

    assert 60 == len(expected)
    assert pytest.approx(expected, abs=1e-6) == found


def _trl_packed(example: dict[str, Any]) -> list[float]:
    """The losses of TRL's padding-free collator on PackSampler's rows, of ids and masks that transformers makes."""
    import datasets
    import trl

    tokenizer = example["loaded_tokenizer"]()
    chats = [_rendered(tokenizer, json.loads(line)) for line in Path("chats.jsonl").read_text().splitlines()]
    plan = PackSampler([len(chat["input_ids"]) for chat in chats], max_tokens=512).plan(0)
    rows = [[chats[index] for index in plan.indices[place]] for place in plan.slices()]
    joined = [
        {
            **{name: list(chain.from_iterable(chat[name] for chat in row)) for name in ("input_ids", "labels")},
            "seq_lengths": [len(chat["input_ids"]) for chat in row],
        }
        for row in rows
    ]
    options = {**example["arguments_for"](20), "per_device_train_batch_size": 1}
    arguments = trl.SFTConfig(**options, padding_free=True, dataset_kwargs={"skip_prepare_dataset": True})
    trainer = trl.SFTTrainer(
        example["tiny_model"](len(tokenizer)),
        arguments,
        train_dataset=datasets.Dataset.from_list(joined),
        processing_class=tokenizer,
    )
    return example["losses_of"](trainer)  # type: ignore[no-any-return]


def _rendered(tokenizer: Any, chat: dict[str, Any]) -> dict[str, list[int]]:
    """Ids, and labels of the assistant's turns, as transformers has them."""
    how = {"tokenize": True, "return_dict": True, "return_assistant_tokens_mask": True}
    made = tokenizer.apply_chat_template(chat["messages"], **how)
    counted = zip(made["input_ids"], made["assistant_masks"], strict=True)
    return {"input_ids": made["input_ids"], "labels": [i if counts else -100 for i, counts in counted]}


def test_a_small_gpt_learns_to_count(folder: Path) -> None:
    """Paragraphs of one pattern: losses fall far below a guess among the characters, and what it writes are those."""
    paragraphs = ["abcdefghij" * (1 + number % 4) for number in range(200)]
    (folder / "input.txt").write_text("\n\n".join(paragraphs) + "\n")
    tiny = ("--rows", "8", "--block", "32", "--width", "32", "--write", "40")

    output = run_example("nanogpt.py", "--epochs", "3", *tiny)

    losses, validation = numbers("loss", output), numbers("validation", output)
    assert validation[-1] < losses[0]
    assert validation[-1] < np.log(10) / 2
    assert set(output.splitlines()[-1]) <= set("abcdefghij")
