"""Networks to measure with, and their training step: a yardstick, not a framework."""

from __future__ import annotations

from fastio.trainer.cifar10cnn import CIFAR10CNN
from fastio.trainer.feed import SYNTHETIC, classes_of, feed, fitted, open_test, open_training, synthetic
from fastio.trainer.resnet50 import RESNET50
from fastio.trainer.run import TrainResult, accuracy, train
from fastio.trainer.step import Amp, StepOptions, TrainStep
from fastio.trainer.transformer import TRANSFORMER
from fastio.trainer.workload import Task, Workload

__all__ = [
    "MODELS",
    "SYNTHETIC",
    "Amp",
    "StepOptions",
    "Task",
    "TrainResult",
    "TrainStep",
    "Workload",
    "accuracy",
    "classes_of",
    "feed",
    "fitted",
    "open_test",
    "open_training",
    "synthetic",
    "train",
]

MODELS = {workload.name: workload for workload in (CIFAR10CNN, RESNET50, TRANSFORMER)}
