from fastio.measure.trackers.csv_file import CSV as CSV
from fastio.measure.trackers.experiments import MLflow as MLflow
from fastio.measure.trackers.experiments import TensorBoard as TensorBoard
from fastio.measure.trackers.experiments import WandB as WandB
from fastio.measure.trackers.figures import Figure as Figure
from fastio.measure.trackers.figures import Figures as Figures
from fastio.measure.trackers.figures import Tracker as Tracker
from fastio.measure.trackers.openmetrics import OpenMetrics as OpenMetrics
