"""Shares of batches: together they are the batch, and weighted by them means are the mean of the whole."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ccmn.training import Ranks, Rows, SharedAdam, SharedBatches, StackedAdam, StackedLinear


@given(n=st.integers(1, 20), batch=st.integers(1, 7), world=st.integers(1, 5))
def test_shares_make_up_the_batches(n, batch, world):
    whole = list(Rows([np.arange(n)], batch, [3]).epoch(1))
    parts = []
    for rank in range(world):
        ranks = Ranks(rank, world)
        shared = SharedBatches(Rows([np.arange(n)], batch, [3]), ranks)
        parts.append([(index[0].tolist(), ranks.share) for index in shared.epoch(1)])
    for number, index in enumerate(whole):
        shares = [part[number] for part in parts]
        assert sum(share for _, share in shares) == pytest.approx(1)
        assert sorted(row for rows, share in shares if share for row in rows) == sorted(index[0].tolist())
        assert all(len(rows) == 1 for rows, share in shares if not share)


def test_the_loss_of_an_epoch_is_weighed_by_shares():
    ranks = Ranks()
    losses = [torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 5.0]])]

    def as_they_come():
        for share, loss in zip((0.5, 0.25), losses):
            ranks.share = share
            yield loss

    torch.testing.assert_close(ranks.mean(as_they_come()), (0.5 * losses[0] + 0.25 * losses[1]) / 2)


def test_a_shared_step_is_a_step_on_the_sum(monkeypatch):
    """The other process' gradient comes in where sums are added up."""
    networks = [StackedLinear(3, 2, [[0]], dtype=torch.float64) for _ in range(2)]
    lr = torch.full((1, 1), 0.1, dtype=torch.float64)
    own, other = (torch.randn(networks[0].parameters[0].values.shape, dtype=torch.float64) for _ in range(2))
    ranks = Ranks(0, 2)
    ranks.share = 0.75
    monkeypatch.setattr(ranks, "add_up", lambda gradient: gradient.add_(0.25 * other))
    SharedAdam(ranks, networks[0].parameters, lr, torch.zeros_like(lr)).step([own.clone()])
    StackedAdam(networks[1].parameters, lr, torch.zeros_like(lr)).step([0.75 * own + 0.25 * other])
    torch.testing.assert_close(*(network.parameters[0].values for network in networks))


@pytest.mark.parametrize("transposed", [False, True])
def test_sums_are_made_in_place_of_whole_memory(monkeypatch, transposed):
    """nccl refuses a tensor with gaps or turned around, as gradients of products may be."""

    def all_reduce(tensor):
        assert tensor.is_contiguous()
        tensor.mul_(2)

    monkeypatch.setattr("torch.distributed.all_reduce", all_reduce)
    tensor = torch.arange(6.0).reshape(2, 3)
    tensor = tensor.T if transposed else tensor
    expected = 2 * tensor
    assert Ranks(0, 2).add_up(tensor) is tensor
    torch.testing.assert_close(tensor, expected)


def test_one_process_alone():
    ranks = Ranks.current()
    assert (ranks.rank, ranks.world, ranks.writes) == (0, 1, True)
    assert ranks.add_up(torch.ones(2)).tolist() == [1, 1]


def test_what_several_processes_cannot_do():
    from ccmn import CCMNClassifier
    from ccmn.models.training_data import check_ranks

    with pytest.raises(ValueError, match="whole batch"):
        check_ranks(CCMNClassifier(correction="abs", random_state=0), Ranks(0, 2))
    with pytest.raises(ValueError, match="start alike"):
        check_ranks(CCMNClassifier(), Ranks(1, 2))
    check_ranks(CCMNClassifier(correction="abs"), Ranks())
