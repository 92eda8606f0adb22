"""Crops, resizes and flips as data: planned for a whole batch and executed in the decoder, or called on one picture.

Names, arguments, defaults and sampling rules follow ``torchvision.transforms.v2``.
"""

from __future__ import annotations

import sys
from typing import Any

from fastio.lazy import attach_stub
from fastio.transforms.other_names import instead_of

_public, __dir__, __all__ = attach_stub(__name__)


def __getattr__(name: str) -> Any:
    """
    Import a public name when it is first used; explain torchvision's names of what needs no transform, or has none.

    Raises ImportError in ``from fastio.transforms import ToTensor``, which would drop the text of an AttributeError,
    and that anywhere else.
    """
    is_import = sys._getframe(1).f_code.co_name == "_handle_fromlist"
    error = ImportError if is_import else AttributeError
    if (advice := instead_of(name)) is not None:
        raise error(f"fastio.transforms has no {name}: {advice}")
    return _public(name)
