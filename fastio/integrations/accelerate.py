"""FastLoader in Hugging Face accelerate."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fastio.integrations.factory import LoaderFactory, check_ranks
from fastio.integrations.packages import imported
from fastio.lazy import torch
from fastio.loader.fast_loader import FastLoader
from fastio.loader.position import Place
from fastio.samplers.share import mesh_ranks

if TYPE_CHECKING:
    from accelerate import Accelerator

__all__ = [
    "PreparedLoader",
    "prepare_loader",
]


def _as_it_is(batch: Any) -> Any:
    return batch


def prepare_loader(
    accelerator: Accelerator, factory: LoaderFactory, *, form: Callable[[Any], Any] = _as_it_is
) -> PreparedLoader:
    """
    Build a FastLoader for accelerate, in place of ``accelerator.prepare(loader)``::

        loader = prepare_loader(accelerator, partial(FastLoader, "train.lmdb", 256, shuffle=True))

    ``accelerator.prepare`` leaves a FastLoader as it is. This function builds one that reads only this process's
    share, onto the accelerator's device, and adds what ``prepare`` adds to other loaders: the end of an epoch ends
    ``accumulate``; ``gather_for_metrics`` drops the samples that were repeated to make batches even; ``save_state``
    saves the position, and after ``load_state`` the next loop continues there. The loader's own options (``uneven``,
    ``drop_last``, ``shuffle``, ``seed``) replace ``even_batches``, ``split_batches``, ``dispatch_batches`` and
    ``use_seedable_sampler``.

    ``form`` is applied to each batch. ``prepare`` passes the result through unchanged. Processes that are tensor- or
    context-parallel neighbours in the accelerator's ``parallelism_config`` get the same batches. Raises ValueError for
    DeepSpeed's sequence parallelism.
    """
    rank, world_size = _data_ranks(accelerator)
    device = accelerator.device if accelerator.device.type in ("cpu", "cuda") else None
    loader = factory(rank=rank, world_size=world_size, device=device)
    check_ranks(loader, rank=rank, world_size=world_size)
    prepared = PreparedLoader(loader, form)
    accelerator.prepare_data_loader(prepared)  # which only registers it for save_state
    return prepared


def _data_ranks(accelerator: Accelerator) -> tuple[int, int]:
    """
    Return rank and world size among the processes that take different batches.

    Tensor- and context-parallel neighbours take the same ones. Raises ValueError for DeepSpeed's sequence parallelism,
    which has no mesh.
    """
    config = getattr(accelerator, "parallelism_config", None)
    if config is None or config.non_data_parallel_size == 1:
        return accelerator.process_index, accelerator.num_processes
    if config.sp_size > 1:
        raise ValueError(
            f"sp_size={config.sp_size}: DeepSpeed shares out the batches of its sequence-parallel processes itself: "
            "pass a torch DataLoader of the FastDataset to accelerator.prepare"
        )
    return (0, 1) if config.data_parallel_size == 1 else mesh_ranks(accelerator.torch_device_mesh)


# PreparedLoader: a FastLoader wrapped as a torch DataLoader that accelerate accepts as its own.

if TYPE_CHECKING:
    from accelerate.data_loader import DataLoaderStateMixin
    from torch.utils.data import DataLoader, Dataset
else:
    DataLoader, Dataset = torch.utils.data.DataLoader, torch.utils.data.Dataset
    DataLoaderStateMixin = imported("accelerate.data_loader", extra="accelerate").DataLoaderStateMixin


log = logging.getLogger(__name__)


class PreparedLoader(DataLoader[Any]):
    """
    Yields the batches of ``loader``, each passed through ``form``; each process already reads its own share.

    It is a DataLoader because transformers and accelerate ask for its attributes, and rebuild it to skip batches. Its
    ``batch_sampler`` yields the numbers of batches; its ``dataset`` returns the batch of a number: the next one from
    the running iteration, any other from a new iteration that starts there. So skipped batches are never read.
    ``len`` is that of a whole epoch, also while one is continued; ``loader.remaining`` is what is left.
    """

    _is_accelerate_prepared = True  # accelerate would split this process's share again
    use_stateful_dataloader = True  # accelerate saves the state of loaders that have this attribute

    def __init__(self, loader: FastLoader, form: Callable[[Any], Any]) -> None:
        self.loader = loader
        self._batches = _NumberedBatches(loader)
        self._numbers = _BatchNumbers(loader, self._batches)
        super().__init__(self._batches, batch_sampler=self._numbers, collate_fn=_Form(form))

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; after ``load_state_dict``, the position is kept."""
        self._numbers.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the latest iteration, as FastLoader's own state."""
        return self.loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """
        Let the next iteration continue at this position, with any number of processes and batches of any size.

        ``skip_first_batches`` then raises ValueError: it would skip batches that have not been trained on.
        """
        self.loader.load_state_dict(state)
        self._numbers.start = self.loader.place

    @property
    def counted(self) -> int:
        """The number of batches that a trainer takes of each epoch, if it has counted them; else those of the next."""
        return len(self) if self._numbers.counted is None else self._numbers.counted

    def count_once(self) -> None:
        """Expect a trainer that asks for ``len`` now and never again; an epoch that has more batches logs a warning."""
        self._numbers.counted = len(self)

    def expect_skipped(self, batches: int) -> None:
        """Let the next iteration begin with so many batches that are skipped, in front of its position."""
        self._numbers.skipped = batches

    def close(self) -> None:
        """Stop the loader's threads; calling it twice is harmless."""
        self.loader.close()


class _BatchNumbers(DataLoaderStateMixin):  # type: ignore[misc] # accelerate is not typed
    """
    A batch sampler for finished batches: yields lists with one batch number each.

    While it is iterated, accelerate learns from it when the epoch ends and how many samples of the last step are new.
    """

    def __init__(self, loader: FastLoader, batches: _NumberedBatches) -> None:
        self.start: Place = (0, None, 0)  # where the next iteration starts
        self.counted: int | None = None  # see PreparedLoader.counted
        self.skipped = 0  # how many batches the next iteration yields before that, which are not fetched
        self._loader = loader
        self._batches = batches
        self.gradient_state = imported("accelerate.state", extra="accelerate").GradientState()
        self._drop_last = True  # the remainder is already known here

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[list[Place]]:
        epoch, consumed, first = self.start
        self._loader.skip_to(self.start)
        count = first + self._loader.remaining
        skipped, self.skipped = self.skipped, 0
        if self.counted is not None and skipped + count - first > self.counted:
            log.warning(
                "%s: epoch %d has %d batches, but the trainer takes %d of each: the others will not come",
                self._loader.base.store.path,
                epoch,
                skipped + count - first,
                self.counted,
            )
        self.start = epoch + 1, None, 0
        self.begin()
        self.remainder = _new_in_last_step(self._loader, consumed)
        try:
            for number in range(first - skipped, count):
                self.end_of_dataloader = number == count - 1
                yield [(epoch, consumed, number)]
                is_skipped = self._batches.latest != (epoch, consumed, number)
                if is_skipped != (number < first) and (consumed or first):
                    raise ValueError(
                        f"{self._loader.base.store.path}: the loaded state continues the epoch behind the batches "
                        "that were trained on, and skip_first_batches would skip others: iterate the loader itself"
                    )
            self._loader.skip_to((epoch + 1, None, 0))
        finally:
            self.end()

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration."""
        if epoch != self.start[0]:
            self._loader.set_epoch(epoch)
            self.start = epoch, None, 0


class _NumberedBatches(Dataset[Any]):
    """Returns the batch of a number; it is fetched as a list of one, like samples of other datasets."""

    def __init__(self, loader: FastLoader) -> None:
        self._loader = loader
        self._running: Iterator[Any] = iter(())
        self.latest: Place | None = None  # the number of the batch that ``_running`` has yielded last

    def __len__(self) -> int:
        """Return the number of samples of all ranks together: trainers compute epochs and remainders from it."""
        return len(self._loader.dataset)

    def __getitems__(self, positions: list[Place]) -> list[Any]:
        ((epoch, consumed, number),) = positions
        if number < 0:
            raise ValueError(f"{self._loader.base.store.path}: the epoch continues {-number} batches further on")
        if self.latest != (epoch, consumed, number - 1):
            self._loader.skip_to((epoch, consumed, number))
            self._running = iter(self._loader)
        self.latest = None
        batch = next(self._running)
        self.latest = epoch, consumed, number
        return [batch]


class _Form:
    """The collate function: returns the single batch of the list in the form the model takes."""

    def __init__(self, form: Callable[[Any], Any]) -> None:
        self._form = form

    def __call__(self, batches: list[Any]) -> Any:
        return self._form(batches[0])


def _new_in_last_step(loader: FastLoader, consumed: Any) -> int:
    """
    Return how many samples of the last step, over all ranks, are not repetitions; 0 if none is repeated.

    ``consumed`` is what had been consumed of the epoch before. -1 means unknown to accelerate; returned if a
    batch_sampler has made the order.
    """
    if loader.division is None or not isinstance(consumed, int | None):
        return -1
    left = replace(loader.division, start=consumed or 0)
    return left.left - left.full_steps * left.batch_size * left.world_size if left.repeated else 0
