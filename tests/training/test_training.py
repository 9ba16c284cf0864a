"""Training: stacked runs equal single fits and torch.optim.Adam; selection, interruption, checkpoints, ranks."""

import itertools
import os

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from ccmn import CCMNClassifier
from ccmn.losses import HammingLoss, RankingLoss
from ccmn.noise import ClassConditionalNoise
from ccmn.training.batches import DenseLabels, Features, ProcessGroup, Rows, RunLabels, SparseLabels
from ccmn.training.checkpoint import Checkpoint
from ccmn.training.loop import Part, train
from ccmn.training.networks import StackedAdam, StackedLinear, StackedMLP, UserNetwork
from ccmn.training.selection import KeepBest

N, D, Q = 60, 7, 4
ALL = [np.arange(N)]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D)).astype(np.float32)
Y = torch.from_numpy((X @ RNG.normal(size=(D, Q)) > 0).astype(np.float32))


NUMBERS = itertools.count()


def last():
    """Select the last epoch."""
    return KeepBest(lambda network: torch.full((network.groups, network.runs), -float(next(NUMBERS))))


def whole(loss):
    return [Part(slice(None), loss)]


def fit(
    X=X, *, groups=ALL, seeds=((1,),), lrs=(0.1,), parts=None, rates=None, network=StackedLinear, epochs=6, **extra
):
    """Train G groups of K runs in float64."""
    dtype = torch.float64
    net = network(D, Q, seeds, dtype=dtype)
    lr = torch.tensor(lrs, dtype=dtype).expand(len(groups), -1)
    optimizer = StackedAdam(net.parameters, lr, torch.full_like(lr, 1e-3))
    rows = Rows(groups, extra.pop("batch", 16), [s[0] for s in seeds])
    labels = DenseLabels(Y.to(dtype)) if rates is None else RunLabels(Y, *rates, dtype=dtype)
    arguments = (parts or whole(HammingLoss()), Features(X, dtype=dtype), labels, rows, optimizer)
    return net, train(net, *arguments, extra.pop("selection", None) or last(), epochs=epochs, **extra)


class Dropped(torch.nn.Module):
    """Network with dropout and a running mean that is a new tensor in every step."""

    def __init__(self, n_outputs):
        super().__init__()
        self.linear, self.dropout = torch.nn.Linear(D, n_outputs), torch.nn.Dropout(0.5)
        self.register_buffer("mean", torch.zeros(D))

    def forward(self, features):
        if self.training:
            self.mean = 0.9 * self.mean + features.mean(0).detach()
        return self.linear(self.dropout(features - self.mean))


def fit_module(checkpoint=None, epochs=6, selection=None, n_outputs=Q):
    """Return the network and the result of a small training with dropout."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = UserNetwork(Dropped(n_outputs))
        optimizer = StackedAdam(network.parameters, torch.full((1, 1), 0.1), torch.zeros(1, 1))
        labels = DenseLabels(Y[:, :1].repeat(1, n_outputs))
        arguments = (whole(HammingLoss("logistic")), Features(X), labels, Rows(ALL, 16, [0]), optimizer)
        result = train(network, *arguments, selection or last(), epochs=epochs, checkpoint=checkpoint)
    return network, result


@pytest.mark.parametrize("network", [StackedLinear, StackedMLP])
def test_runs_of_a_stack_equal_single_fits(network):
    """Two groups with losses, noise rates and learning rates per run equal eight single fits."""
    groups, seeds, lrs = [np.arange(0, 40), np.arange(20, 60)], [[5, 5, 6, 6], [7, 7, 8, 8]], [0.05, 0.01, 0.05, 0.01]
    rates = torch.rand(2, 2, 4, Q, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 0.4
    rates[:, :, 0] = 0  # one run without noise correction
    parts = [Part(slice(0, 2), RankingLoss("sigmoid", dummy=False)), Part(slice(2, 4), HammingLoss("logistic"))]
    stack, _ = fit(groups=groups, seeds=seeds, lrs=lrs, parts=parts, rates=rates, network=network)
    outputs = stack.outputs(torch.from_numpy(X).double().expand(2, N, D))
    for g in range(2):
        for k in range(4):
            noise = ClassConditionalNoise(rates[0, g, k].numpy(), rates[1, g, k].numpy())
            loss = RankingLoss("sigmoid", noise, dummy=False) if k < 2 else HammingLoss("logistic", noise)
            rows = Rows([groups[g]], 16, [seeds[g][0]])
            net = network(D, Q, [[seeds[g][k]]], dtype=torch.float64)
            lr = torch.tensor([[lrs[k]]], dtype=torch.float64)
            optimizer = StackedAdam(net.parameters, lr, torch.full_like(lr, 1e-3))
            labels = DenseLabels(Y.double())
            train(net, whole(loss), Features(X, dtype=torch.float64), labels, rows, optimizer, last(), epochs=6)
            single = net.outputs(torch.from_numpy(X).double()[None])
            torch.testing.assert_close(single[0, 0], outputs[g, k], rtol=1e-9, atol=1e-9)


def test_adam_equals_torch_adam():
    """Weights equal those of torch.optim.Adam with weight decay (except for the bias) up to rounding."""
    loss = HammingLoss("square", ClassConditionalNoise(0.2, 0.1, n_labels=Q))
    net, _ = fit(seeds=[[3]], lrs=[0.02], parts=whole(loss), epochs=5)
    start = StackedLinear(D, Q, [[3]], dtype=torch.float64).parameters[0].values.detach()[0, :, 0]
    weight, bias = start[:-1].clone().requires_grad_(), start[-1].clone().requires_grad_()
    optimizer = torch.optim.Adam([{"params": [weight], "weight_decay": 1e-3}, {"params": [bias]}], lr=0.02)
    for epoch in range(5):
        for batch in Rows(ALL, 16, [3]).epoch(epoch):
            index = batch.index[0]
            optimizer.zero_grad()
            loss(torch.from_numpy(X).double()[index] @ weight + bias, Y.double()[index]).backward()
            optimizer.step()
    expected = torch.cat((weight, bias[None])).detach()
    torch.testing.assert_close(net.parameters[0].values.detach()[0, :, 0], expected, rtol=1e-9, atol=1e-10)


def test_the_best_epoch_of_each_run_is_loaded():
    seen = []

    def criterion(net):
        # Run 0 is best in epoch 1, run 1 in epoch 3.
        seen.append(net.parameters[0].values.detach().clone())
        return torch.tensor([[abs(len(seen) - 2.0), abs(len(seen) - 4.0)]])

    selection = KeepBest(criterion)
    net, result = fit(seeds=[[1, 2]], lrs=[0.1, 0.1], selection=selection)
    W = net.parameters[0].values
    torch.testing.assert_close(W[:, :, 0], seen[1][:, :, 0])
    torch.testing.assert_close(W[:, :, 1], seen[3][:, :, 1])
    assert selection.epoch.tolist() == [[[1, 3]]]
    assert len(result.criteria) == len(result.losses) == 6


def test_sparse_features_give_the_same_weights(monkeypatch):
    """Dense batches of a narrow CSR matrix and sparse products of a wide one equal dense features."""
    rows = X * (np.abs(X) > 0.7)
    common = {"seeds": [[1, 2]], "lrs": [0.1, 0.01]}
    dense, _ = fit(rows, **common)
    for widest in (4096, 2):
        monkeypatch.setattr("ccmn.training.batches.MAX_DENSE_FEATURES", widest)
        sparse, _ = fit(scipy.sparse.csr_array(rows), **common)
        torch.testing.assert_close(sparse.parameters[0].values, dense.parameters[0].values, rtol=1e-9, atol=1e-9)


def test_order_depends_only_on_seed_and_epoch():
    rows, alone = Rows([np.arange(50)] * 2, 16, [4, 9]), Rows([np.arange(50)], 16, [9])
    for epoch in (0, 3):
        for both, one in zip(rows.epoch(epoch), alone.epoch(epoch)):
            assert torch.equal(both.index[1], one.index[0])
    assert sorted(torch.cat([batch.index for batch in rows.epoch(1)], 1)[0].tolist()) == list(range(50))
    assert not torch.equal(next(iter(rows.epoch(0))).index, next(iter(rows.epoch(1))).index)


# -- Label sources


@given(n=st.integers(1, 8), q=st.integers(1, 6), seed=st.integers(0, 99), data=st.data())
def test_batches_of_sparse_labels_equal_those_of_dense_labels(n, q, seed, data):
    rng, noise = np.random.default_rng(seed), ClassConditionalNoise(0.2, np.linspace(0, 0.5, q))
    labels = (rng.random((n, q)) < 0.3).astype(np.float32)
    labels[rng.random((n, q)) < 0.1] = np.nan
    rows = torch.tensor(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=9)))
    known = rng.random(n) < 0.5
    p = torch.from_numpy(np.where(known[:, None], labels, noise.debias(labels)))
    sparse = SparseLabels(scipy.sparse.csr_matrix(labels), noise.debiasing(), known)
    dense = DenseLabels(p).targets(rows[None])
    torch.testing.assert_close(sparse.targets(rows[None]), dense, equal_nan=True)
    part = sparse[rows.numpy()].targets(torch.arange(len(rows))[None])
    torch.testing.assert_close(part, dense, equal_nan=True)


# -- Interruption and checkpoints


def squares():
    return KeepBest(lambda net: torch.stack([p.per_run_squares(p.values) for p in net.parameters]).sum(0))


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("number", [1, 3])
def test_killed_while_writing(tmp_path, monkeypatch, step, number):
    """The process is killed before the file is complete or renamed, with and without a previous file."""
    checkpoint, calls, real = Checkpoint(tmp_path / "state", "a fit", every=1), [], getattr(os, step)

    def fails(*arguments):
        calls.append(arguments)
        if len(calls) == number:
            raise SystemExit("killed")
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fails)
        with pytest.raises(SystemExit):
            fit(checkpoint=checkpoint)
    assert (tmp_path / "state").exists() == (number > 1)
    (tmp_path / ".state.part").write_bytes(b"half")
    (resumed, _), (expected, _) = fit(checkpoint=checkpoint), fit()
    assert torch.equal(resumed.parameters[0].values, expected.parameters[0].values)
    checkpoint.remove()
    assert not any(tmp_path.iterdir())


def test_only_rank_0_writes(tmp_path):
    fit(checkpoint=Checkpoint(tmp_path / "state", "a fit", every=1, is_main=False), epochs=2)
    assert not any(tmp_path.iterdir())


def test_dropout_and_replaced_buffers_resume(tmp_path):
    fit_module(Checkpoint(tmp_path / "state", "a fit", every=2), epochs=4)
    resumed, _ = fit_module(Checkpoint(tmp_path / "state", "a fit", every=2))
    uninterrupted, _ = fit_module()
    for name, value in uninterrupted.module.state_dict().items():
        assert torch.equal(resumed.module.state_dict()[name], value), name


def test_foreign_checkpoints_are_rejected(tmp_path):
    """Functions that create networks count by their name only."""
    checkpoint = Checkpoint(tmp_path / "state", "a fit")
    fit_module(checkpoint, epochs=1)
    with pytest.raises(ValueError, match="a different network"):
        fit_module(checkpoint, n_outputs=5)
    with pytest.raises(ValueError, match="a different fit"):
        fit_module(Checkpoint(tmp_path / "state", "another"))


@pytest.mark.parametrize(
    "change",
    [
        *(lambda tensors, name=name: tensors.pop(name) for name in ("steps", "losses", "first.0", "best.0")),
        *(lambda tensors, e=e: tensors["best_epoch"].fill_(e) for e in (-2, 6, 2.0**62, float("nan"))),
        lambda tensors: tensors.update(criteria=tensors["criteria"][1:]),
        None,
    ],
)
def test_damaged_checkpoints_are_rejected(tmp_path, change):
    path = tmp_path / "state"
    fit(selection=squares(), checkpoint=Checkpoint(path, "a fit"))
    if change is None:
        path.write_bytes(path.read_bytes()[:100])
    else:
        with safe_open(path, "pt") as file:
            tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
        change(tensors)
        save_file(tensors, path, metadata)
    with pytest.raises(ValueError, match=r"state is damaged .*delete it"):
        fit(selection=squares(), checkpoint=Checkpoint(path, "a fit"))


# -- Ranks


@given(n=st.integers(1, 20), batch=st.integers(1, 7), world_size=st.integers(1, 5))
def test_shares_make_up_the_batches(n, batch, world_size):
    together = list(Rows([np.arange(n)], batch, [3]).epoch(1))
    parts = []
    for rank in range(world_size):
        shared = Rows([np.arange(n)], batch, [3], ranks=ProcessGroup(rank, world_size))
        parts.append([(index[0].tolist(), weight) for index, weight in shared.epoch(1)])
    for number, (index, _) in enumerate(together):
        shares = [part[number] for part in parts]
        assert sum(weight for _, weight in shares) == pytest.approx(1)
        assert sorted(row for rows, weight in shares if weight for row in rows) == sorted(index[0].tolist())
        assert all(len(rows) == 1 for rows, weight in shares if not weight)


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


def test_parameters_that_several_ranks_do_not_support(monkeypatch):
    assert ProcessGroup.current() == ProcessGroup(0, 1)
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_rank", lambda: 0)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 2)
    with pytest.raises(ValueError, match="correction='abs'"):
        CCMNClassifier(None, correction="abs", random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="random_state"):
        CCMNClassifier(None).fit(X, Y)
