"""Ranks share batches: the shares make up the batch, and weighted by them, means are the mean of the whole batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ccmn import CCMNClassifier
from ccmn.losses import HammingLoss
from ccmn.training.batches import Batch, DenseLabels, Features, Rows
from ccmn.training.distributed import ProcessGroup, SharedBatches
from ccmn.training.loop import Objective, make_step
from ccmn.training.networks import StackedLinear
from ccmn.training.optimizer import StackedAdam


@given(n=st.integers(1, 20), batch=st.integers(1, 7), world_size=st.integers(1, 5))
def test_shares_make_up_the_batches(n, batch, world_size):
    whole = list(Rows([np.arange(n)], batch, [3]).epoch(1))
    parts = []
    for rank in range(world_size):
        shared = SharedBatches(Rows([np.arange(n)], batch, [3]), ProcessGroup(rank, world_size))
        parts.append([(index[0].tolist(), weight) for index, weight in shared.epoch(1)])
    for number, (index, _) in enumerate(whole):
        shares = [part[number] for part in parts]
        assert sum(weight for _, weight in shares) == pytest.approx(1)
        assert sorted(row for rows, weight in shares if weight for row in rows) == sorted(index[0].tolist())
        assert all(len(rows) == 1 for rows, weight in shares if not weight)


def test_distributed_step_uses_the_weighted_sum_of_gradients(monkeypatch):
    """Two ranks with 3 and 1 rows of a batch of 4 take the same step as one process with all 4 rows."""
    X = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = DenseLabels((X[:, :2] > 0).double())
    lr = torch.full((1, 1), 0.1, dtype=torch.float64)

    def step_of(group):
        network = StackedLinear(3, 2, [[0]], dtype=torch.float64)
        optimizer = StackedAdam(network.parameters, lr, torch.zeros_like(lr))
        objective, features = Objective.of(HammingLoss("square")), Features(X, dtype=torch.float64)
        return network, optimizer, make_step(network, objective, optimizer, features, labels, group=group)

    whole, _, step = step_of(None)
    step(Batch(torch.arange(4)[None]))
    # The gradient of the other rank, which the process group adds.
    _, _, step = step_of(ProcessGroup(1, 2))
    received = []
    monkeypatch.setattr(ProcessGroup, "sum_over_ranks", lambda self, tensor: received.append(tensor.clone()) or tensor)
    loss = step(Batch(torch.tensor([[3]]), 0.25))
    monkeypatch.setattr(ProcessGroup, "sum_over_ranks", lambda self, tensor: tensor.add_(received[0]))
    network, _, step = step_of(ProcessGroup(0, 2))
    loss = loss + step(Batch(torch.arange(3)[None], 0.75))
    torch.testing.assert_close(network.parameters[0].values, whole.parameters[0].values)
    outputs = StackedLinear(3, 2, [[0]], dtype=torch.float64).outputs(X[None])[0, 0]
    torch.testing.assert_close(loss[0, 0], HammingLoss("square")(outputs, labels.targets(torch.arange(4)[None])[0, 0]))


@pytest.mark.parametrize("transposed", [False, True])
def test_tensors_are_contiguous_when_they_are_summed(monkeypatch, transposed):
    """NCCL accepts only contiguous tensors; gradients of products may be transposed."""

    def all_reduce(tensor):
        assert tensor.is_contiguous()
        tensor.mul_(2)

    monkeypatch.setattr("torch.distributed.all_reduce", all_reduce)
    tensor = torch.arange(6.0).reshape(2, 3)
    tensor = tensor.T if transposed else tensor
    expected = 2 * tensor
    assert ProcessGroup(0, 2).sum_over_ranks(tensor) is tensor
    torch.testing.assert_close(tensor, expected)


def test_single_process():
    group = ProcessGroup.current()
    assert (group.rank, group.world_size, group.is_main, group.is_distributed) == (0, 1, True, False)
    assert group.sum_over_ranks(torch.ones(2)).tolist() == [1, 1]


def test_parameters_that_several_ranks_do_not_support(monkeypatch):
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 2)
    X = np.eye(4)
    with pytest.raises(ValueError, match="correction='abs'"):
        CCMNClassifier(None, correction="abs", random_state=0).fit(X, X)
    with pytest.raises(ValueError, match="random_state"):
        CCMNClassifier(None).fit(X, X)
