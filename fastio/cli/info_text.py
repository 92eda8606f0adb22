"""What ``fastio info`` prints about text: the lengths of the samples and the tokenizer behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from fastio.cli.screen import columns, printable, table
from fastio.types.units import counted, number

__all__ = ["print_lengths", "print_tokenizer"]

_BAR = 50  # characters in the longest bar
_EIGHTHS = " ▏▎▍▌▋▊▉"


def print_lengths(histogram: Sequence[dict[str, Any]], unit: str) -> None:
    """Print a bar for every doubling of the length."""
    length = max(8, min(_BAR, columns() - 40))
    most = max(bin_["samples"] for bin_ in histogram)
    total = sum(bin_["samples"] for bin_ in histogram)
    rows = []
    for bin_ in histogram:
        low, high, count = bin_["from"], bin_["to"], bin_["samples"]
        span = number(low) if low == high else f"{number(low)} to {number(high)}"
        rows.append((span, number(count), f"{100 * count / total:.1f} %", _bar(count / most, length)))
    table((unit, "samples", "share", ""), rows, right=(0, 1, 2))


def _bar(share: float, length: int) -> str:
    """
    Return a bar of whole and partial blocks; a share above 0 is always visible.

    >>> _bar(0.05, 50), _bar(0, 50)
    ('██▌', '')
    """
    eighths = max(round(share * length * 8), int(share > 0))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def print_tokenizer(tokenizer: dict[str, Any]) -> None:
    """Print the tokenizer's name, its vocabulary and special tokens, and how documents became sequences."""
    from fastio.converters.text.decode import probe_words

    options = tokenizer.get("options") or {}
    special = ", ".join(f"{role} {value}" for role, value in tokenizer["special"].items() if value is not None)
    size = "unknown vocabulary" if tokenizer["vocab_size"] is None else f"{number(tokenizer['vocab_size'])} ids"
    name = "ready ids" if tokenizer["name"] is None else f"tokenizer {printable(str(tokenizer['name']))}"
    click.echo(
        f"{name}: {size}"
        + (f" ({special})" if special else "")
        + (", its JSON is in the store" if tokenizer["json"] else "")
    )
    added = " and ".join(role for role in ("bos", "eos") if options.get(role))
    rules = [f"{added} added" if added else "no bos, no eos"]
    if options.get("max_length"):
        over = {"refuse": "longer ones refused", "truncate": "longer ones truncated", "split": "longer ones split"}
        rules.append(f"at most {number(options['max_length'])} tokens, {over[options['over']]}")
    if options.get("split"):
        rules.append(f"{counted(options['split'], 'document')} split into several samples")
    if (options.get("cut") or {}).get("documents"):
        cut = options["cut"]
        rules.append(f"{counted(cut['tokens'], 'token')} CUT from {counted(cut['documents'], 'document')}")
    decoded = options.get("decoded") or {}
    if decoded.get("documents"):
        probed = decoded["documents"]
        rules.append(f"when packed, {probe_words(decoded['exact'], probed, options.get('documents', probed))}")
    click.echo("; ".join(rules))
