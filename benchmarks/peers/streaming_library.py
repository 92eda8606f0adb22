"""
MosaicML Streaming, imported next to a torch for CPUs alone.

It imports torchvision. The operators of torchvision's wheel from PyPI are linked with CUDA and do not load there; its
import then fails for want of the two that it describes, which nothing here calls.
"""

from __future__ import annotations

import torch

if torch.version.cuda is None:
    _LIBRARY = torch.library.Library("torchvision", "DEF")
    for _name in ("nms", "qnms"):
        _LIBRARY.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from streaming import MDSWriter, Stream, StreamingDataLoader, StreamingDataset

__all__ = ["MDSWriter", "Stream", "StreamingDataLoader", "StreamingDataset"]
