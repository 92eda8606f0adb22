"""Where figures go while a training runs: CSV, OpenMetrics, TensorBoard, Weights & Biases, MLflow."""

from __future__ import annotations

from fastio.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
