"""Begins a sentence with a capital letter, but never a command or a file's name."""

from __future__ import annotations

import re

__all__ = ["capitalized"]

_WORD = re.compile(r"[a-z]+(?=[ ,:;'-]|$)")


def capitalized(text: str) -> str:
    """
    Return the text with a capital first letter if it begins with an ordinary word.

    >>> capitalized("loading alone would keep up")
    'Loading alone would keep up'
    >>> capitalized("`fastio verify` compared them"), capitalized("train.py:31 in Photos waits"), capitalized("fastio")
    ('`fastio verify` compared them', 'train.py:31 in Photos waits', 'fastio')
    """
    word = _WORD.match(text)
    return text if word is None or word[0] == "fastio" else text[:1].upper() + text[1:]
