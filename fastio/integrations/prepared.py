"""PreparedLoader: a FastLoader as a torch DataLoader that accelerate takes for one of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader, Dataset

from fastio.integrations.packages import imported
from fastio.loader.fast_loader import FastLoader

if TYPE_CHECKING:
    from accelerate.data_loader import DataLoaderStateMixin
else:
    DataLoaderStateMixin = imported("accelerate.data_loader", extra="accelerate").DataLoaderStateMixin

__all__ = ["PreparedLoader"]

Place = tuple[int, int]  # epoch and batch


class PreparedLoader(DataLoader[Any]):
    """
    The batches of ``loader``, as ``form`` makes them; each process has its own share of them already.

    A DataLoader, for transformers and accelerate ask for its attributes and build it anew to skip batches. Its
    ``batch_sampler`` yields the numbers of batches, and its ``dataset`` hands out the batch of a number: the next one
    from the running iteration, any other from an iteration that begins there. So nothing is read to be skipped.
    """

    _is_accelerate_prepared = True  # accelerate would share out again what is this process's share
    use_stateful_dataloader = True  # accelerate saves the state of a loader that says so

    def __init__(self, loader: FastLoader, form: Callable[[Any], Any]) -> None:
        self.loader = loader
        self._numbers = _BatchNumbers(loader)
        self._batches = _NumberedBatches(loader)
        super().__init__(self._batches, batch_sampler=self._numbers, collate_fn=_Form(form))

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be this epoch; that of a loaded state keeps its position."""
        self._numbers.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the latest iteration stands: FastLoader's own state."""
        return self.loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration go on there."""
        self.loader.load_state_dict(state)
        self._numbers.start = state["epoch"], state["batch"]

    def close(self) -> None:
        """End the loader's threads; twice does no harm."""
        self.loader.close()


class _BatchNumbers(DataLoaderStateMixin):  # type: ignore[misc] # accelerate is not typed
    """
    A batch sampler of batches that are made already: lists of one place each.

    While it is iterated, accelerate knows by it when the epoch ends, and how many samples of the last step are new.
    """

    def __init__(self, loader: FastLoader) -> None:
        self.start: Place = (0, 0)  # where the next iteration begins
        self._loader = loader
        self.gradient_state = imported("accelerate.state", extra="accelerate").GradientState()
        self._drop_last = True  # the remainder is known here, and not to be computed

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[list[Place]]:
        epoch, first = self.start
        _go_to(self._loader, (epoch, first))
        count = len(self._loader)
        self.start = epoch + 1, 0
        self.begin()
        self.remainder = _new_in_last_step(self._loader)
        try:
            for number in range(first, count):
                self.end_of_dataloader = number == count - 1
                yield [(epoch, number)]
            _go_to(self._loader, (epoch + 1, 0))
        finally:
            self.end()

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be this epoch."""
        if epoch != self.start[0]:
            self._loader.set_epoch(epoch)
            self.start = epoch, 0


class _NumberedBatches(Dataset[Any]):
    """The batch of a place, which is fetched as a list of one, like the samples of other datasets."""

    def __init__(self, loader: FastLoader) -> None:
        self._loader = loader
        self._running: Iterator[Any] = iter(())
        self._next: Place | None = None  # what ``_running`` yields next

    def __len__(self) -> int:
        """Samples, of all ranks together: trainers count epochs and remainders by it."""
        return len(self._loader.dataset)

    def __getitems__(self, places: list[Place]) -> list[Any]:
        (place,) = places
        if place != self._next:
            _go_to(self._loader, place)
            self._running = iter(self._loader)
        self._next = None
        batch = next(self._running)
        self._next = place[0], place[1] + 1
        return [batch]


class _Form:
    """The collate function: the one batch of the list, as the model takes it."""

    def __init__(self, form: Callable[[Any], Any]) -> None:
        self._form = form

    def __call__(self, batches: list[Any]) -> Any:
        return self._form(batches[0])


def _go_to(loader: FastLoader, place: Place) -> None:
    loader.load_state_dict({**loader.state_dict(), "epoch": place[0], "batch": place[1]})


def _new_in_last_step(loader: FastLoader) -> int:
    """
    How many of the last step's samples, all ranks' behind each other, come for the first time; 0 where all do.

    -1, accelerate's word for unknown, where a batch_sampler has made the order.
    """
    division = loader.division
    if division is None:
        return -1
    return division.count % (division.batch_size * division.world_size) if division.repeated else 0
