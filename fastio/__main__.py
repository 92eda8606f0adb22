"""``python -m fastio``: the command line, as torchrun starts it."""

from fastio.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
