"""Small tokenizers, trained for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXTS = ("the cat sat on the mat", "the dog sat on the log", "Grüße aus Köln\n\tund anderswo") * 20


def train(texts: Sequence[str] = TEXTS, *, vocab_size: int = 400, special: Sequence[str] = ("<s>", "</s>")) -> Any:
    """A byte-level BPE: it loses nothing."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def lower(tokenizer: Any) -> Any:
    """The same tokenizer with a normalizer that loses capital letters."""
    tokenizer.normalizer = normalizers.Lowercase()
    return tokenizer


def templated(tokenizer: Any) -> Any:
    """The same tokenizer with a template around every text, and a truncation in its file."""
    pieces = [("<s>", tokenizer.token_to_id("<s>")), ("</s>", tokenizer.token_to_id("</s>"))]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=pieces)
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=8)
    return tokenizer


def saved(tokenizer: Any, path: Path) -> Path:
    """Its JSON."""
    tokenizer.save(str(path))
    return path
