"""From arrays to fitted weights: one loop for one run or a thousand (``loop.train``), and a closed form.

A fleet is G groups of K runs. The runs of a group see the same rows in the same order and differ in loss, noise rates,
learning rate or seed; groups differ in rows and order. One fit is a fleet of G = 1, K = the learning rates tried.
"""

from ccmn.training.batches import Batches, DenseLabels, LabelRows, Rows, SparseLabels
from ccmn.training.distributed import Ranks, SharedAdam, SharedBatches
from ccmn.training.loop import Objective, Progress, TrainingResult, train
from ccmn.training.networks import NETWORKS, Network, StackedLinear, StackedMLP, UserNetwork
from ccmn.training.optimizer import StackedAdam
from ccmn.training.ridge import ridge_path
from ccmn.training.selection import KeepBest, KeepLast, Selection
from ccmn.training.stream import Passed, Stream, StreamSettings

__all__ = [
    "NETWORKS",
    "Batches",
    "DenseLabels",
    "KeepBest",
    "KeepLast",
    "LabelRows",
    "Network",
    "Objective",
    "Passed",
    "Progress",
    "Ranks",
    "Rows",
    "Selection",
    "SharedAdam",
    "SharedBatches",
    "SparseLabels",
    "StackedAdam",
    "StackedLinear",
    "StackedMLP",
    "Stream",
    "StreamSettings",
    "TrainingResult",
    "UserNetwork",
    "ridge_path",
    "train",
]
