"""FastLoader in Hugging Face accelerate."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastio.integrations.factory import LoaderFactory, check_ranks
from fastio.integrations.prepared import PreparedLoader

if TYPE_CHECKING:
    from accelerate import Accelerator

__all__ = ["prepare_loader"]


def _as_it_is(batch: Any) -> Any:
    return batch


def prepare_loader(
    accelerator: Accelerator, factory: LoaderFactory, *, form: Callable[[Any], Any] = _as_it_is
) -> PreparedLoader:
    """
    Build a FastLoader for accelerate, in place of ``accelerator.prepare(loader)``.

        loader = prepare_loader(accelerator, partial(FastLoader, "train.lmdb", 256, shuffle=True))

    ``accelerator.prepare`` leaves a FastLoader as it is. This function builds one that reads only this process's
    share, onto the accelerator's device, and adds what ``prepare`` adds to other loaders: the end of an epoch ends
    ``accumulate``; ``gather_for_metrics`` drops the samples that were repeated to make batches even; ``save_state``
    saves the position, and after ``load_state`` the next loop continues there. The loader's own options (``uneven``,
    ``drop_last``, ``shuffle``, ``seed``) replace ``even_batches``, ``split_batches``, ``dispatch_batches`` and
    ``use_seedable_sampler``.

    ``form`` is applied to each batch. ``prepare`` passes the result through unchanged. Raises ValueError if several
    processes take the same batches (tensor, context or sequence parallelism).
    """
    _check_mesh(accelerator)
    rank, world_size = accelerator.process_index, accelerator.num_processes
    device = accelerator.device if accelerator.device.type in ("cpu", "cuda") else None
    loader = factory(rank=rank, world_size=world_size, device=device)
    check_ranks(loader, rank=rank, world_size=world_size)
    prepared = PreparedLoader(loader, form)
    accelerator.prepare_data_loader(prepared)  # which only registers it for save_state
    return prepared


def _check_mesh(accelerator: Accelerator) -> None:
    mesh = getattr(accelerator, "parallelism_config", None)
    sizes = {name: getattr(mesh, name, 1) for name in ("tp_size", "cp_size", "sp_size")}
    shared = [f"{name}={size}" for name, size in sizes.items() if size > 1]
    if shared:
        raise ValueError(
            f"{', '.join(shared)}: several processes take the same batches; build the FastLoader yourself, with "
            "the rank= and world_size= of the data-parallel groups"
        )
