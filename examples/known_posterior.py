"""Shared code of the examples: a task with known Bayes risk, and a linear model that is trained on it.

Labels follow P(y_j = 1 | x) = sigmoid(w_j x + b_j). Scores that are linear in x can attain the Bayes risk, so the
excess risk of a linear model is due to the labels and the loss only. It is computed from the posterior of new rows,
without sampling labels for them.
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

# The matrices are too small for several threads.
torch.set_num_threads(1)

PREVALENCE = [0.2, 0.3, 0.4, 0.5, 0.6]


def hamming_excess(marginals: Tensor, scores: Tensor) -> Tensor:
    """Return the conditional Hamming risk minus the Bayes risk, from marginals and scores of shape (..., q).

    It is the mean over labels of abs(2 P(y_j = 1) - 1) where the sign of the score is wrong.
    """
    wrong = (scores >= 0) != (marginals >= 0.5)
    return ((2 * marginals - 1).abs() * wrong).mean(-1)


def ranking_excess(marginals: Tensor, scores: Tensor) -> Tensor:
    """Return the conditional ranking risk minus the Bayes risk, from marginals and scores of shape (..., q).

    It is the sum of P(y_j = 1) - P(y_k = 1) > 0 over pairs in the wrong order; a tie counts 1/2.
    """
    ahead = (marginals[..., :, None] - marginals[..., None, :]).clamp_min(0)
    difference = scores[..., :, None] - scores[..., None, :]
    return (ahead * ((difference < 0).to(ahead.dtype) + (difference == 0).to(ahead.dtype) / 2)).sum((-2, -1))


@dataclass(frozen=True)
class Problem:
    """Loss to train with, and the excess risk that it aims at."""

    title: str
    make_loss: Callable[[NoiseModel | None], MultiLabelLoss]
    excess: Callable[[Tensor, Tensor], Tensor]
    """(posterior, scores) -> conditional risk minus the Bayes risk."""


PROBLEMS = {
    "hamming": Problem("Hamming loss, logistic phi", lambda noise: HammingLoss("logistic", noise), hamming_excess),
    "ranking": Problem(
        "Ranking loss, sigmoid phi", lambda noise: RankingLoss("sigmoid", noise, dummy=False), ranking_excess
    ),
}


@dataclass(frozen=True)
class Task:
    """Training sets of ``rows`` rows each, and new rows for the evaluation. The first feature is constant 1."""

    X: Tensor
    """(sets, rows, 1 + d)"""
    Y: Tensor
    """(sets, rows, q): true labels."""
    X_new: Tensor
    posterior_new: Tensor

    def excess(self, problem: Problem, noise: NoiseModel | None, X: Tensor, Y: Tensor) -> float:
        """Train on (X, Y), corrected for ``noise``, and return the excess risk."""
        loss = problem.make_loss(noise)
        scores = loss.decision(self.X_new @ fit_linear(loss, X, Y))
        return float(problem.excess(self.posterior_new, scores).mean())


def make_task(sets: int, rows: int, new_rows: int) -> Task:
    """Return a task with five features and five labels of different prevalence."""
    data = make_noisy_multilabel(
        sets * rows + new_rows, 5, len(PREVALENCE), prevalence=PREVALENCE, strength=3.0, correlation=0.3, random_state=0
    )
    X = torch.cat([torch.ones(len(data.X), 1), torch.from_numpy(data.X)], 1).double()
    X_train, X_new = X.split([sets * rows, new_rows])
    Y = torch.from_numpy(data.Y[: sets * rows]).double()
    posterior_new = torch.from_numpy(data.posterior[sets * rows :])
    return Task(X_train.reshape(sets, rows, -1), Y.reshape(sets, rows, -1), X_new, posterior_new)


def fit_linear(loss: MultiLabelLoss, X: Tensor, Y: Tensor) -> Tensor:
    """Return weights (1 + d, n_outputs), trained by full-batch L-BFGS with an L2 penalty of 1/n."""
    W = torch.zeros(X.shape[1], loss.n_outputs(Y.shape[1]), dtype=X.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS([W], max_iter=200, tolerance_change=1e-10, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss(X @ W, Y) + W.square().sum() / len(X)
        value.backward()
        return value

    optimizer.step(closure)
    return W.detach()
