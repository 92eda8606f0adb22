"""FastLoader in Hugging Face accelerate."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastio.integrations.factory import LoaderFactory, check_ranks
from fastio.integrations.prepared import PreparedLoader
from fastio.samplers.mesh import mesh_ranks

if TYPE_CHECKING:
    from accelerate import Accelerator

__all__ = ["prepare_loader"]


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
