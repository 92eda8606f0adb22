"""Where figures go while a training runs: CSV, OpenMetrics, TensorBoard, Weights & Biases, MLflow."""

from fastio.measure.trackers.csv_file import CSV
from fastio.measure.trackers.figures import Figure, Figures, Tracker
from fastio.measure.trackers.mlflow import MLflow
from fastio.measure.trackers.openmetrics import OpenMetrics
from fastio.measure.trackers.tensorboard import TensorBoard
from fastio.measure.trackers.wandb import WandB

__all__ = ["CSV", "Figure", "Figures", "MLflow", "OpenMetrics", "TensorBoard", "Tracker", "WandB"]
