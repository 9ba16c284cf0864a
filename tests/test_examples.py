"""Computations of the examples, compared with reference implementations."""

import numpy as np
import torch

from ccmn.losses import RankingLoss
from helpers import load_script


def test_hessian_of_the_ranking_loss_with_square_surrogate():
    rng = np.random.default_rng(0)
    X, p = rng.normal(size=(9, 3)), rng.normal(0.5, 1, size=(9, 4))
    form = load_script("examples/03_ranking_square.py").hessian(X, p)
    design = torch.from_numpy(np.hstack([X, np.ones((9, 1))]))
    loss = RankingLoss("square")

    def risk(flat):
        return loss.risk(design @ flat.view(4, 5), torch.from_numpy(p)).mean()

    expected = torch.autograd.functional.hessian(risk, torch.zeros(20, dtype=torch.float64))
    np.testing.assert_allclose(form @ np.eye(20), expected.numpy(), atol=1e-10)
