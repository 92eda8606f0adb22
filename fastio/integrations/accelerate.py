"""FastLoader under Hugging Face accelerate."""

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
    ``loader = prepare_loader(accelerator, partial(FastLoader, "train.lmdb", 256, shuffle=True))``.

    In the place of ``accelerator.prepare(loader)``, which leaves a FastLoader as it is: the loader reads this process's
    share from the start, onto the accelerator's device. What ``prepare`` adds to other loaders is there too: the end
    of an epoch ends ``accumulate``, ``gather_for_metrics`` leaves out samples that were repeated for even batches, and
    ``save_state`` keeps the position; after ``load_state``, the next loop goes on there. The loader's own options
    (``uneven``, ``drop_last``, ``shuffle``, ``seed``) hold instead of ``even_batches``, ``split_batches``,
    ``dispatch_batches`` and ``use_seedable_sampler``.

    ``form`` is applied to each batch. ``prepare`` lets the result pass as it is. ValueError where processes share data
    otherwise than each having its own (tensor, context or sequence parallelism).
    """
    _check_mesh(accelerator)
    rank, world_size = accelerator.process_index, accelerator.num_processes
    device = accelerator.device if accelerator.device.type in ("cpu", "cuda") else None
    loader = factory(rank=rank, world_size=world_size, device=device)
    check_ranks(loader, rank=rank, world_size=world_size)
    prepared = PreparedLoader(loader, form)
    accelerator.prepare_data_loader(prepared)  # which only notes it for save_state
    return prepared


def _check_mesh(accelerator: Accelerator) -> None:
    mesh = getattr(accelerator, "parallelism_config", None)
    sizes = {name: getattr(mesh, name, 1) for name in ("tp_size", "cp_size", "sp_size")}
    shared = [f"{name}={size}" for name, size in sizes.items() if size > 1]
    if shared:
        raise ValueError(
            f"{', '.join(shared)}: several processes take the same batches; build FastLoader yourself, with rank= and "
            f"world_size= of the processes that have data of their own"
        )
