"""What the examples share: a task whose best possible risk is known, and a linear model trained on it.

Labels follow P(y_j = 1 | x) = sigmoid(w_j x + b_j), so scores that are linear in x can decide as well as anything can:
the risk above the Bayes risk can fall to zero, and what is left of it is due to the labels and the loss. It is computed
from the posterior of fresh rows, without drawing labels for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ccmn import HammingLoss, RankingLoss
from ccmn.data.synthetic import make_noisy_multilabel
from ccmn.losses import MultiLabelLoss
from ccmn.noise import NoiseModel
from ccmn.theory import hamming_excess, ranking_excess

# The matrices are small: a second thread would wait more than work, above all on a busy machine.
torch.set_num_threads(1)

PREVALENCE = [0.2, 0.3, 0.4, 0.5, 0.6]


@dataclass(frozen=True)
class Problem:
    """A loss to learn with and the risk it is after."""

    title: str
    make_loss: Callable[[NoiseModel | None], MultiLabelLoss]
    excess: Callable[[Tensor, Tensor], Tensor]
    """(posterior, scores) -> conditional risk above the Bayes risk."""


PROBLEMS = {
    "hamming": Problem("Hamming loss, logistic phi", lambda noise: HammingLoss("logistic", noise), hamming_excess),
    "ranking": Problem(
        "Ranking loss, sigmoid phi", lambda noise: RankingLoss("sigmoid", noise, dummy=False), ranking_excess
    ),
}


@dataclass(frozen=True)
class Task:
    """Training sets of ``rows`` rows each, and fresh rows to be judged on. The features begin with a constant 1."""

    X: Tensor
    """(sets, rows, 1 + d)"""
    Y: Tensor
    """(sets, rows, q): true labels."""
    X_new: Tensor
    posterior_new: Tensor

    def excess(self, problem: Problem, noise: NoiseModel | None, X: Tensor, Y: Tensor) -> float:
        """Train on (X, Y), believing in ``noise``; the risk above the Bayes risk."""
        loss = problem.make_loss(noise)
        scores = loss.decision(self.X_new @ fit_linear(loss, X, Y))
        return float(problem.excess(self.posterior_new, scores).mean())


def make_task(sets: int, rows: int, new_rows: int) -> Task:
    """Five features, five labels of different prevalence; the same seed every time."""
    data = make_noisy_multilabel(
        sets * rows + new_rows, 5, len(PREVALENCE), prevalence=PREVALENCE, strength=3.0, correlation=0.3, random_state=0
    )
    X = torch.cat([torch.ones(len(data.X), 1), torch.from_numpy(data.X)], 1).double()
    X_train, X_new = X.split([sets * rows, new_rows])
    Y = torch.from_numpy(data.Y[: sets * rows]).double()
    posterior_new = torch.from_numpy(data.posterior[sets * rows :])
    return Task(X_train.reshape(sets, rows, -1), Y.reshape(sets, rows, -1), X_new, posterior_new)


def fit_linear(loss: MultiLabelLoss, X: Tensor, Y: Tensor) -> Tensor:
    """Weights (1 + d, n_outputs) by full-batch L-BFGS, with a ridge of 1/n: it fades as rows come in."""
    W = torch.zeros(X.shape[1], loss.n_outputs(Y.shape[1]), dtype=X.dtype, requires_grad=True)
    optimiser = torch.optim.LBFGS([W], max_iter=200, tolerance_change=1e-10, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss(X @ W, Y) + W.square().sum() / len(X)
        value.backward()
        return value

    optimiser.step(closure)
    return W.detach()
