"""The option ``--source-kind``, whose values are the names in ``fastio.converters.SOURCES``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from fastio.converters.labels.filters import Filter

    _ParamType = click.ParamType[str]
else:
    _ParamType = click.ParamType  # not generic before click 8.2

__all__ = ["no_text", "source_kind_option", "split_of", "target_words"]

_AUTO = "auto"


class _Kind(_ParamType):
    """A name in SOURCES. The registry is imported when a value is given or help is shown."""

    name = "kind"

    def __init__(self, *, with_text: bool) -> None:
        self._with_text = with_text

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """All values, as click writes a choice."""
        del param, ctx
        return f"[{'|'.join(self._names())}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, or the present name of a kind that was called otherwise."""
        if value == _AUTO:  # the default, which needs no registry
            return _AUTO
        from fastio.converters import SOURCES

        present = {alias: source.name for source in SOURCES.values() for alias in source.aliases}
        kind = present.get(value, value)
        if kind not in self._names():
            self.fail(f"{value!r} is not one of {', '.join(map(repr, self._names()))}.", param, ctx)
        return str(kind)

    def _names(self) -> list[str]:
        from fastio.converters import SOURCES

        return [_AUTO, *(name for name, each in SOURCES.items() if self._with_text or each.open is not None)]


def source_kind_option(about: str, *, with_text: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ``--source-kind KIND`` to a command, which gets it as ``kind``; ``about`` is its help."""
    return click.option(
        "--source-kind", "kind", type=_Kind(with_text=with_text), default=_AUTO, help=f"{about}  [default: auto]"
    )


def split_of(src: str, split: str | None, filters: tuple[Filter, ...]) -> tuple[str | None, tuple[Filter, ...]]:
    """
    Return the split for ``recognise``, and the filters. A table with a column "split" has its parts there: the filter
    then takes the rows of this part, and None is returned for the split.
    """
    if split is None:
        return None, filters
    from fastio.converters.sources.tables.rows import has_split_column
    from fastio.store.files.local import is_local

    if not is_local(src) or has_split_column(src, split):
        return None, (*filters, ("split", split))
    return split, filters


def no_text(src: str) -> str:
    """Why SRC takes no options about text."""
    from fastio.store.formats import names_store

    if names_store(src):
        return f"{src} is a packed store, whose samples stay as they are; unpack it first: fastio unpack {src} FOLDER"
    return f"{src} does not look like text; if it is, name its --source-kind"


def target_words() -> str:
    """Which names of stores say their format, in words."""
    from fastio.store import FORMATS

    suffixes = [suffix for container in FORMATS.values() for suffix in container.suffixes]
    shards = [f"name-%06d{container.suffixes[0]}" for container in FORMATS.values() if container.has_shards]
    return f"{', '.join(suffixes[:-1])} or {suffixes[-1]}, or names shards: {' or '.join(shards)}"
