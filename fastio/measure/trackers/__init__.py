"""Where figures go while a training runs: CSV, OpenMetrics, TensorBoard, Weights & Biases, MLflow."""

from fastio.measure.trackers.csv_file import CSV
from fastio.measure.trackers.experiments import MLflow, WandB
from fastio.measure.trackers.figures import Figure, Figures, Tracker
from fastio.measure.trackers.openmetrics import OpenMetrics
from fastio.measure.trackers.tensorboard import TensorBoard

__all__ = ["CSV", "Figure", "Figures", "MLflow", "OpenMetrics", "TensorBoard", "Tracker", "WandB"]
