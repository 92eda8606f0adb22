"""Lines to paste: complete pieces of a script, whose names are imported, defined there, or already in the script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from fastio.measure.doctor.facts import Facts, LoaderFacts, ScriptFacts

__all__ = [
    "STORE",
    "data_loader",
    "fast_loader",
    "other_dataset",
    "pack_command",
    "packed_loader",
    "reads_packed",
]


STORE = "train.lmdb"


def pack_command(loader: LoaderFacts, script: ScriptFacts) -> str:
    """Return the command that packs the dataset's files."""
    assert loader.data_path is not None
    labels = "" if script.labels_path is None or not script.is_flat else f" --labels {shlex.quote(script.labels_path)}"
    command = f"$ fastio pack {shlex.quote(loader.data_path)} {STORE}{labels}"
    needs_labels = script.is_flat and script.gives_pairs and not labels
    return command + ("    # add --labels FILE: no folder says the classes" if needs_labels else "")


def packed_loader(facts: Facts, loader: LoaderFacts, script: ScriptFacts) -> str | None:
    """Return a loader that runs the user's transform in native threads; None unless it is known to be the same."""
    if script.recipe is None:
        return None
    arguments = {"batch_size": repr(loader.batch_size), "shuffle": "True" if script.shuffle else None}
    arguments["drop_last"] = "True" if script.drop_last else None
    arguments["indices"] = script.subset
    arguments["transforms"] = f"[{', '.join(script.recipe)}]" if script.recipe else None
    device = "cpu" if facts.model is None else facts.model.device.partition(":")[0]
    arguments["device"] = f'"{device}"' if device != "cpu" else None
    return _fast_loader(script, script.packed or f'"{STORE}"', arguments)


def fast_loader(script: ScriptFacts, path: str | None = None, **changes: str) -> str | None:
    """Return the script's FastLoader with other arguments, for the store ``path``; None if its call is unknown."""
    if script.arguments is None:
        return None
    arguments = dict(script.arguments)
    dataset = arguments.pop("dataset")
    return _fast_loader(script, dataset if path is None else f'"{path}"', {**arguments, **changes})


def data_loader(
    loader: LoaderFacts, script: ScriptFacts, changes: Mapping[str, object], *, dataset: str | None = None
) -> str:
    """
    Return the script's DataLoader with other arguments, over ``dataset`` or its own; the value ``None`` drops an
    argument.
    """
    workers = loader.workers or 0
    arguments: dict[str, object] = {
        "batch_size": loader.batch_size,
        "shuffle": script.shuffle or None,
        "sampler": script.sampler,
        "batch_sampler": script.batch_sampler,
        "collate_fn": script.collate_fn,
        "drop_last": (script.drop_last and script.batch_sampler is None) or None,
        "num_workers": workers,
        "pin_memory": loader.pin_memory or None,
        "prefetch_factor": None if loader.prefetch_factor in (None, 2) else loader.prefetch_factor,
        "persistent_workers": loader.persistent_workers or None,
        **changes,
    }
    if not arguments["num_workers"]:
        arguments |= {"num_workers": None, "prefetch_factor": None, "persistent_workers": None}
    passed = ", ".join(f"{name}={value}" for name, value in arguments.items() if value is not None)
    own = script.dataset or "loader.dataset"
    uses = " ".join(str(text) for text in (dataset or own, *arguments.values()))
    lines = ["from torch.utils.data import DataLoader" + (", Subset" if (dataset or "").startswith("Subset(") else "")]
    if "FastDataset(" in uses:
        lines.insert(0, "from fastio import FastDataset")
    if script.loader is None and re.search(r"\bloader\.", uses):
        lines.append("# loader: your DataLoader as it is now")
    return "\n".join([*lines, "", f"{script.loader or 'loader'} = DataLoader({dataset or own}, {passed})"])


def reads_packed(script: ScriptFacts, loader: LoaderFacts) -> str:
    """Return the script's dataset over the packed store: with its own transform, or within its own ``__getitem__``."""
    is_dataset = script.data_kind == "pictures" and script.transform is not None and script.gives_pairs
    if is_dataset and (not script.is_part or script.subset is not None):
        packed = f'FastDataset("{STORE}", {script.transform})'
        whole = packed if script.subset is None else f"Subset({packed}, {script.subset})"
        return data_loader(loader, script, {}, dataset=whole)
    is_text = script.data_kind == "text"
    what, order = ("the text", "") if is_text else ("the picture", ": sorted paths")
    where = "" if script.reads is None else f"; for {script.reads} instead of opening a file"
    return (
        "from fastio import FastDataset\n\n"
        f'packed = FastDataset("{STORE}")    # in the order of packed.keys{order}\n'
        f"sample = packed[0]    # {what}, and its label where there are labels{where}"
    )


def other_dataset(script: ScriptFacts, path: str) -> str:
    """Return the script's FastDataset over another store."""
    transform = "" if script.transform is None else f", {script.transform}"
    return f'from fastio import FastDataset\n\ndataset = FastDataset("{path}"{transform})    # for your DataLoader'


def _fast_loader(script: ScriptFacts, dataset: str, arguments: dict[str, str | None]) -> str:
    passed = ", ".join(f"{name}={text}" for name, text in arguments.items() if text is not None)
    line = f"{script.loader or 'loader'} = FastLoader({dataset}, {passed})"
    ours = sorted(set(re.findall(r"\b([A-Z]\w+)\(", passed)))
    lines = ["import torch"] if "torch." in passed else []
    lines.append("from fastio import FastLoader")
    if ours:
        lines.append(f"from fastio.transforms import {', '.join(ours)}")
    return "\n".join([*lines, "", line])
