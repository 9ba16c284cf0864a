"""Training loop: equal to single fits and to torch.optim.Adam; selection, early stopping, interruption, checkpoints."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch

from ccmn.losses import HammingLoss, RankingLoss
from ccmn.noise import ClassConditionalNoise
from ccmn.training.batches import Features, Rows, RunLabels
from ccmn.training.checkpoint import Checkpoint
from ccmn.training.loop import Objective, Part, train
from ccmn.training.networks import StackedLinear, StackedMLP, UserNetwork
from ccmn.training.optimizer import StackedAdam
from ccmn.training.selection import KeepBest, KeepLast

N, D, Q = 60, 7, 4
ALL = [np.arange(N)]
HAMMING = Objective.of(HammingLoss())


@pytest.fixture
def task():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)).astype(np.float32)
    Y = (X @ rng.normal(size=(D, Q)) > 0).astype(np.float32)
    return X, torch.from_numpy(Y)


def fit(
    X, Y, *, groups=ALL, seeds, lrs, objective=HAMMING, rates=None, network=StackedLinear, epochs=6, batch=16, **extra
):
    """Train G groups of K runs in float64."""
    dtype = torch.float64
    net = network(D, Q, seeds, dtype=dtype)
    features = Features(X, dtype=dtype)
    lr = torch.tensor(lrs, dtype=dtype).expand(len(groups), -1)
    optimizer = StackedAdam(net.parameters, lr, torch.full_like(lr, 1e-3))
    rows = Rows(groups, batch, [s[0] for s in seeds])
    selection = extra.pop("selection", None) or KeepLast()
    labels = Y.to(dtype) if rates is None else RunLabels(Y, *rates, dtype=dtype)
    result = train(net, objective, features, labels, rows, optimizer, selection, epochs=epochs, **extra)
    return net, result


@pytest.mark.parametrize("network", [StackedLinear, StackedMLP])
def test_runs_of_a_stack_equal_single_fits(task, network):
    """Two groups with losses, noise rates and learning rates per run equal eight single fits."""
    X, Y = task
    groups, seeds, lrs = [np.arange(0, 40), np.arange(20, 60)], [[5, 5, 6, 6], [7, 7, 8, 8]], [0.05, 0.01, 0.05, 0.01]
    rho_pos, rho_neg = torch.rand(2, 2, 4, Q, generator=torch.Generator().manual_seed(0)) * 0.4
    rho_pos[:, 0] = rho_neg[:, 0] = 0  # one run without noise correction
    losses = [Part(slice(0, 2), RankingLoss("sigmoid", dummy=False)), Part(slice(2, 4), HammingLoss("logistic"))]
    stack, _ = fit(
        X,
        Y,
        groups=groups,
        seeds=seeds,
        lrs=lrs,
        objective=Objective(losses),
        rates=(rho_pos, rho_neg),
        network=network,
    )
    outputs = stack.outputs(torch.from_numpy(X).double().expand(2, N, D))
    for g in range(2):
        for k in range(4):
            noise = ClassConditionalNoise(rho_pos[g, k].numpy(), rho_neg[g, k].numpy())
            loss = RankingLoss("sigmoid", noise, dummy=False) if k < 2 else HammingLoss("logistic", noise)
            net = network(D, Q, [[seeds[g][k]]], dtype=torch.float64)
            lr = torch.tensor([[lrs[k]]], dtype=torch.float64)
            optimizer = StackedAdam(net.parameters, lr, torch.full_like(lr, 1e-3))
            rows = Rows([groups[g]], 16, [seeds[g][0]])
            train(
                net,
                Objective.of(loss),
                Features(X, dtype=torch.float64),
                Y.double(),
                rows,
                optimizer,
                KeepLast(),
                epochs=6,
            )
            single = net.outputs(torch.from_numpy(X).double()[None])
            torch.testing.assert_close(single[0, 0], outputs[g, k], rtol=1e-9, atol=1e-9)


def test_adam_equals_torch_adam(task):
    """Weights equal those of torch.optim.Adam with weight decay (except for the bias) up to rounding."""
    X, Y = task
    loss = HammingLoss("square", ClassConditionalNoise(0.2, 0.1, n_labels=Q))
    net, _ = fit(X, Y, seeds=[[3]], lrs=[0.02], objective=Objective.of(loss), epochs=5)
    start = StackedLinear(D, Q, [[3]], dtype=torch.float64).parameters[0].values.detach()[0, :, 0]
    weight, bias = start[:-1].clone().requires_grad_(), start[-1].clone().requires_grad_()
    optimizer = torch.optim.Adam([{"params": [weight], "weight_decay": 1e-3}, {"params": [bias]}], lr=0.02)
    for epoch in range(5):
        for batch in Rows([np.arange(N)], 16, [3]).epoch(epoch):
            index = batch.index[0]
            optimizer.zero_grad()
            loss(torch.from_numpy(X).double()[index] @ weight + bias, Y.double()[index]).backward()
            optimizer.step()
    expected = torch.cat((weight, bias[None])).detach()
    torch.testing.assert_close(net.parameters[0].values.detach()[0, :, 0], expected, rtol=1e-9, atol=1e-10)


def test_gradient_clipping_is_per_run():
    net = StackedLinear(2, 1, [[0, 1]], dtype=torch.float64)
    optimizer = StackedAdam(net.parameters, torch.ones(1, 2), torch.zeros(1, 2), clip=1.0)
    gradient = torch.zeros_like(net.parameters[0].values)
    gradient[0, :, 0] = 3.0
    gradient[0, 0, 1] = 0.5
    optimizer.step([gradient])
    assert gradient[0, :, 0].norm().item() == pytest.approx(1.0)
    assert gradient[0, 0, 1].item() == 0.5


def test_keep_best_loads_the_best_epoch_of_each_run(task):
    X, Y = task
    seen = []

    def criterion(net):
        # Run 0 is best in epoch 1, run 1 in epoch 3.
        seen.append([p.values.detach().clone() for p in net.parameters])
        return torch.tensor([[abs(len(seen) - 2.0), abs(len(seen) - 4.0)]])

    selection = KeepBest(criterion)
    net, result = fit(
        X,
        Y,
        seeds=[[1, 2]],
        lrs=[0.1, 0.1],
        selection=selection,
    )
    W = net.parameters[0].values
    torch.testing.assert_close(W[:, :, 0], seen[1][0][:, :, 0])
    torch.testing.assert_close(W[:, :, 1], seen[3][0][:, :, 1])
    assert selection.best_epoch.tolist() == [[1, 3]]
    assert len(result.criteria) == len(result.losses) == 6


def test_patience_stops(task):
    X, Y = task
    values = iter([3.0, 2.0, 2.5, 2.5, 2.5, 0.0])
    selection = KeepBest(lambda net: torch.tensor([[next(values)]]), patience=3)
    _, result = fit(X, Y, seeds=[[1]], lrs=[0.1], selection=selection)
    assert len(result.losses) == 5


def test_ctrl_c_keeps_the_best_weights(task):
    X, Y = task

    def on_progress(progress):
        if progress.epoch == 2:
            raise KeyboardInterrupt

    net, result = fit(X, Y, seeds=[[1]], lrs=[0.1], on_progress=on_progress)
    assert result.interrupted
    assert len(result.losses) == 3
    assert torch.isfinite(net.parameters[0].values).all()


@pytest.mark.parametrize("network", [StackedLinear, StackedMLP])
def test_resumed_fit_equals_uninterrupted_fit(task, tmp_path, network):
    X, Y = task
    common = dict(seeds=[[1, 2]], lrs=[0.1, 0.01], network=network)  # noqa: C408

    def best():
        return KeepBest(lambda net: torch.stack([p.per_run_squares(p.values) for p in net.parameters]).sum(0))

    whole, whole_result = fit(X, Y, epochs=10, selection=best(), **common)
    path = tmp_path / "fit.ckpt"

    def stop(progress):
        if progress.epoch == 6:
            raise KeyboardInterrupt

    fit(X, Y, epochs=10, selection=best(), on_progress=stop, checkpoint=Checkpoint(path, "same", every=2), **common)
    resumed, result = fit(X, Y, epochs=10, selection=best(), checkpoint=Checkpoint(path, "same", every=2), **common)
    for a, b in zip(whole.parameters, resumed.parameters):
        assert torch.equal(a.values, b.values)
    assert torch.equal(torch.stack(result.losses), torch.stack(whole_result.losses))
    with pytest.raises(ValueError, match="belongs to a different fit"):
        fit(X, Y, checkpoint=Checkpoint(path, "other"), **common)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match="is damaged"):
        fit(X, Y, checkpoint=Checkpoint(path, "same"), **common)


def test_sparse_features_give_the_same_weights(task, monkeypatch):
    """Dense batches of a narrow CSR matrix and sparse products of a wide one equal dense features."""
    X, Y = task
    X = X * (np.abs(X) > 0.7)
    common = dict(seeds=[[1, 2]], lrs=[0.1, 0.01])  # noqa: C408
    dense, _ = fit(X, Y, **common)
    for widest in (4096, 2):
        monkeypatch.setattr("ccmn.training.batches.MAX_DENSE_FEATURES", widest)
        sparse, _ = fit(scipy.sparse.csr_array(X), Y, **common)
        torch.testing.assert_close(sparse.parameters[0].values, dense.parameters[0].values, rtol=1e-9, atol=1e-9)


def test_user_modules(task):
    X, Y = task
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(D, 9), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(9, Q))
    net = UserNetwork(module)
    lr = torch.tensor([[0.05]])
    optimizer = StackedAdam(net.parameters, lr, torch.zeros_like(lr))
    selection = KeepBest(lambda network: network.outputs(torch.from_numpy(X)[None]).square().mean((-1, -2)))
    result = train(
        net, Objective.of(HammingLoss()), Features(X), Y, Rows([np.arange(N)], 16, [0]), optimizer, selection, epochs=40
    )
    assert result.losses[-1].item() < 0.5 * result.losses[0].item()
    assert not module.training
    with pytest.raises(ValueError, match="trainable parameters"):
        UserNetwork(torch.nn.ReLU())


def test_sample_weights_count_rows(task):
    """In full batches, a weight of 2 equals a repeated row and a weight of 0 a missing row."""
    X, Y = task
    weights = torch.tensor(np.random.default_rng(0).integers(0, 3, N), dtype=torch.float64)
    repeated = np.repeat(np.arange(N), weights.int().numpy())
    common = dict(seeds=[[1]], lrs=[0.1], objective=Objective.of(RankingLoss("hinge", dummy=False)), batch=10**6)  # noqa: C408
    a, _ = fit(X, Y, weights=weights / weights.mean(), **common)
    b, _ = fit(X, Y, groups=[repeated], **common)
    torch.testing.assert_close(a.parameters[0].values, b.parameters[0].values, rtol=1e-9, atol=1e-10)


def test_order_depends_only_on_seed_and_epoch():
    rows = Rows([np.arange(50), np.arange(50)], 16, [4, 9])
    alone = Rows([np.arange(50)], 16, [9])
    for epoch in (0, 3):
        for both, one in zip(rows.epoch(epoch), alone.epoch(epoch)):
            assert torch.equal(both.index[1], one.index[0])
    assert sorted(torch.cat([batch.index for batch in rows.epoch(1)], 1)[0].tolist()) == list(range(50))
    assert not torch.equal(next(iter(rows.epoch(0))).index, next(iter(rows.epoch(1))).index)
