"""From arrays to fitted weights: one loop for one run or a thousand (``loop.train``), and a closed form.

A fleet is G groups of K runs. The runs of a group see the same rows in the same order and differ in loss, noise rates,
learning rate or seed; groups differ in rows and order. One fit is a fleet of G = 1, K = the learning rates tried.
"""

from ccmn.training.batches import Batches, Rows
from ccmn.training.closed_form import ridge_path
from ccmn.training.labels import DenseLabels, LabelRows, SparseLabels
from ccmn.training.loop import Progress, TrainingResult, train
from ccmn.training.networks import NETWORKS, Network, StackedLinear, StackedMLP, UserNetwork
from ccmn.training.objective import Objective
from ccmn.training.optimiser import StackedAdam
from ccmn.training.ranks import Ranks, SharedAdam, SharedBatches
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
