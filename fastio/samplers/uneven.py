"""Says once what an epoch repeats or leaves out so that all ranks get equal batches."""

from __future__ import annotations

import logging

from fastio.samplers.batches import Batches, ElasticSampler

__all__ = ["say_uneven"]

log = logging.getLogger(__name__)

_said: set[str] = set()  # per process: a loader that is rebuilt for each epoch does not repeat it


def say_uneven(path: str, planned: Batches, sampler: ElasticSampler, *, is_rest: bool = False) -> None:
    """
    Log on rank 0 how many samples an epoch repeats or leaves out.

    ``planned`` is the whole epoch, or with ``is_rest`` what is left of it after a resume. Logged as a warning, which
    Python prints by default, once per configuration. If ``drop_last`` leaves out a short batch of a single process,
    that is only INFO: it was asked for. An epoch without any batch is always a warning.
    """
    rules = sampler.configuration() | sampler.division_options()
    samples = rules.get("samples", 0)
    is_empty = len(planned) == 0 and samples > 0 and not is_rest
    if sampler.rank != 0 or not (planned.repeated or planned.dropped or is_empty):
        return
    parts = [f"repeats {planned.repeated}"] if planned.repeated else []
    parts += [f"leaves out {planned.dropped}"] if planned.dropped else []
    options = ", ".join(f"{name}={rules[name]!r}" for name in ("batch_size", "uneven", "drop_last") if name in rules)
    ranks = "1 rank" if sampler.world_size == 1 else f"{sampler.world_size} ranks"
    message = f"{path}: {samples} samples for {ranks} ({options}): "
    period = "the rest of this epoch" if is_rest else "each epoch"
    message += "the epoch has no batch at all" if is_empty else f"{period} {' and '.join(parts)} of them"
    as_asked = sampler.world_size == 1 and not planned.repeated and not is_empty
    if message not in _said:
        _said.add(message)
        log.log(logging.INFO if as_asked else logging.WARNING, "%s", message)
