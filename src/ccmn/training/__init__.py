"""Training of networks: the loop, networks, label sources, model selection, streams and linear solvers."""

from ccmn.training.batches import Batch, Batches, DenseLabels, Features, LabelSource, Rows, RunLabels, SparseLabels
from ccmn.training.distributed import ProcessGroup, SharedBatches
from ccmn.training.loop import EpochProgress, Objective, TrainingResult, train
from ccmn.training.networks import NETWORKS, Network, StackedLinear, StackedMLP, UserNetwork
from ccmn.training.optimizer import StackedAdam
from ccmn.training.ridge import ridge_path
from ccmn.training.selection import BestWeights, KeepBest, KeepLast, Selection
from ccmn.training.stream import Stream, StreamProgress, StreamSettings

__all__ = [
    "NETWORKS",
    "Batch",
    "Batches",
    "BestWeights",
    "DenseLabels",
    "EpochProgress",
    "Features",
    "KeepBest",
    "KeepLast",
    "LabelSource",
    "Network",
    "Objective",
    "ProcessGroup",
    "Rows",
    "RunLabels",
    "Selection",
    "SharedBatches",
    "SparseLabels",
    "StackedAdam",
    "StackedLinear",
    "StackedMLP",
    "Stream",
    "StreamProgress",
    "StreamSettings",
    "TrainingResult",
    "UserNetwork",
    "ridge_path",
    "train",
]
