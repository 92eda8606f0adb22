"""The doctor: runs some steps of any training, names what limits it, and says what to do about it.

``facts`` holds what is known, in figures; rules (``loading_advice``, ``training_advice``, ``cautions``) are functions
of it; ``diagnosis`` orders what they say; ``session``, ``watch`` and ``probe`` find the figures of a running training.
"""
