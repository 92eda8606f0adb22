"""What the epochs of a training will read, counted by the code that loads, without reading a sample."""

from fastio.measure.plan.planning import EpochPlan, NodeReads, PlanOptions, TrainingPlan
from fastio.measure.plan.waits import EpochWaits

__all__ = ["EpochPlan", "EpochWaits", "NodeReads", "PlanOptions", "TrainingPlan"]
