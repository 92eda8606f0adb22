from fastio.measure.loop.mock import MockLoader as MockLoader
from fastio.measure.loop.mock import MockTrainer as MockTrainer
from fastio.measure.loop.verdict import StepShares as StepShares
from fastio.measure.loop.verdict import verdict as verdict
