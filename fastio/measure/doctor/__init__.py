"""
The doctor: runs some steps of any training, names what limits it, and says what to do about it.

``facts`` holds the figures; rules (``loading_advice``, ``training_advice``, ``cautions``) are functions of them;
``diagnosis`` puts their results in order; ``session``, ``watch`` and ``probe`` measure a running training.
"""

from __future__ import annotations
