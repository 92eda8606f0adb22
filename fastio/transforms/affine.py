"""Matrices of ``KeepGeometry``: their inverse, and boxes that they move."""

from __future__ import annotations

import torch

__all__ = ["invert_geometry", "move_boxes"]


def invert_geometry(geometry: torch.Tensor) -> torch.Tensor:
    """
    Return the matrices ``(..., 2, 3)`` that take positions in transformed pictures back to the stored ones.

    >>> invert_geometry(torch.tensor([[2.0, 0, 6], [0, 4, 8]])).tolist()
    [[0.5, 0.0, -3.0], [0.0, 0.25, -2.0]]
    """
    inverse = torch.linalg.inv(geometry[..., :2].to(torch.float64))
    offset = -inverse @ geometry[..., 2:].to(torch.float64)
    return torch.cat((inverse, offset), dim=-1).to(geometry.dtype)


def move_boxes(boxes: torch.Tensor, geometry: torch.Tensor) -> torch.Tensor:
    """
    Return boxes ``(..., N, 4)``, two corners each, where matrices ``(..., 2, 3)`` take them; nothing is clipped.

    ``move_boxes(predicted, invert_geometry(batch["geometry"]))`` are predictions in pixels of the stored pictures.
    """
    corners = boxes.reshape(*boxes.shape[:-1], 2, 2)
    moved = corners @ geometry[..., None, :, :2].mT + geometry[..., None, None, :, 2]
    # A mirrored box has left and right exchanged.
    return torch.cat((moved.amin(-2), moved.amax(-2)), dim=-1)
