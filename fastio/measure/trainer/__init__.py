"""Networks to measure with, and their training step: a yardstick, not a framework."""

from __future__ import annotations

from fastio.measure.trainer.pictures import CIFAR10CNN, RESNET50
from fastio.measure.trainer.run import (
    SYNTHETIC,
    TrainResult,
    accuracy,
    classes_of,
    feed,
    fitted,
    open_test,
    open_training,
    synthetic,
    train,
)
from fastio.measure.trainer.step import Amp, StepOptions, Task, TrainStep, Workload
from fastio.measure.trainer.text import TRANSFORMER

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
