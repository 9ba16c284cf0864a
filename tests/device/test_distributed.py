"""Distributed training on a CUDA device: reductions over NCCL. Skipped without a device.

NCCL requires one GPU per process: with one GPU, a group of one process reduces.
"""

import tempfile
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
import torch.distributed as dist

from ccmn.data import make_noisy_multilabel
from ccmn.models import CCMNClassifier
from ccmn.noise import ClassConditionalNoise
from ccmn.training.batches import ProcessGroup

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


class ReducingGroup(ProcessGroup):
    """Single process that still reduces through the process group."""

    is_distributed = True


@contextmanager
def group(backend, rank, world, file):
    dist.init_process_group(backend, init_method=f"file://{file}", rank=rank, world_size=world)
    try:
        yield
    finally:
        dist.destroy_process_group()


def curve(loss, model):
    """Return loss and criterion of every epoch; the last batch of an epoch is smaller."""
    noise = ClassConditionalNoise(0.1, 0.3, n_labels=5)
    task = make_noisy_multilabel(430, 8, 5, noise=noise, random_state=0)
    settings = {"lr": [0.01, 0.001], "epochs": 6, "batch_size": 50, "random_state": 0}
    surrogate = "sigmoid" if loss == "ranking" else "logistic"
    clf = CCMNClassifier(noise, loss=loss, surrogate=surrogate, model=model, device="cuda", **settings)
    return clf.fit(task.X, task.Y_noisy).history_.to_numpy(dtype=np.float64)


CASES = [("ranking", "linear"), ("hamming", "mlp")]


@contextmanager
def reducing():
    """Fit in one process with the distributed code path: gradients and criteria are reduced by the process group."""
    with patch.object(ProcessGroup, "current", classmethod(lambda cls: ReducingGroup())):
        yield


def test_reductions_over_nccl():
    single = [curve(*case) for case in CASES]
    with tempfile.TemporaryDirectory() as folder, group("nccl", 0, 1, Path(folder) / "store"), reducing():
        transposed = torch.arange(6.0, device="cuda").reshape(2, 3).T
        assert torch.equal(ReducingGroup().sum_over_ranks(transposed.clone()), transposed)
        for case, expected in zip(CASES, single):
            np.testing.assert_allclose(curve(*case), expected, rtol=1e-4, atol=1e-4, err_msg=str(case))
