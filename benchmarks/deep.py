"""Compare losses for a CNN that is trained on noisy labels with unknown rates.

    python benchmarks/deep.py            12,000 images, 15 epochs, results/deep.csv
    python benchmarks/deep.py --quick    1,500 images, 4 epochs

The images are digit scenes (``load_digit_scenes``); test images show other writers than training images. The noise is
two-sided, with rates of .1 to .5 that sum to at most .6 for every label. All methods train the same CNN with the same
optimizer, schedule and batches, and are evaluated after the last epoch on true test labels. Rates are estimated by
``cross_fit_proba`` and ``estimate_noise`` from out-of-fold embeddings. Posterior labels are the probabilities of the
true labels given the noisy ones and a second cross-fitting with these rates, ``cross_fit_proba(..., noise=)`` and
``noise.posterior``. Posterior labels were selected with seed 0, learning rate and epochs also with images of seed 1.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from harness import machine, parser, save
from torch import Tensor

from ccmn import ClassConditionalNoise, cross_fit_proba, estimate_noise
from ccmn.data import load_digit_scenes
from ccmn.losses import ForwardLoss, HammingLoss, MultiLabelLoss, RankingLoss
from ccmn.metrics import average_precision, hamming_loss

RESULTS = Path(__file__).resolve().parent.parent / "results" / "deep.csv"
Q, SEED = 10, 1


class Size(NamedTuple):
    """Numbers of images and epochs."""

    train: int = 12_000
    test: int = 2000
    batch: int = 128
    epochs: int = 15
    folds: int = 3
    fold_epochs: int = 8
    width: int = 16
    """Channels of the first layer."""


QUICK = Size(train=1500, test=1000, batch=64, epochs=4, folds=2, fold_epochs=4, width=8)


def make_cnn(n_outputs: int, width: int) -> torch.nn.Module:
    """Return a CNN: (B, 1, 16, 24) -> (B, n_outputs)."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, width, 3, padding=1),
        torch.nn.BatchNorm2d(width),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(width, 2 * width, 3, padding=1),
        torch.nn.BatchNorm2d(2 * width),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(2 * width, 4 * width, (4, 6)),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(4 * width, n_outputs),
    )


def cross_fit(images: np.ndarray, noisy: np.ndarray, size: Size, **settings: object):
    """Return out-of-fold results of the CNN."""
    settings = {"n_folds": size.folds, "batch_size": size.batch, "random_state": SEED, **settings}
    return cross_fit_proba(lambda: make_cnn(Q, size.width), images, noisy, **settings)


def train(images: Tensor, targets: Tensor, loss: MultiLabelLoss, test: Tensor, size: Size) -> Tensor:
    """Return the test scores of the CNN after the last epoch."""
    torch.manual_seed(SEED)
    soft = bool((targets % 1 != 0).any())  # loss modules accept hard labels only
    network = make_cnn(loss.n_outputs(Q), size.width)
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=1e-2)
    steps = size.epochs * -(-len(images) // size.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps, pct_start=0.1)
    for _ in range(size.epochs):
        network.train()
        for rows in torch.randperm(len(images)).split(size.batch):
            optimizer.zero_grad(set_to_none=True)
            outputs = network(images[rows])
            value = loss.risk(outputs, targets[rows]).mean() if soft else loss(outputs, targets[rows])
            value.backward()
            optimizer.step()
            schedule.step()
    network.eval()
    with torch.no_grad():
        return loss.decision(torch.cat([network(part) for part in test.split(500)]))


def run(size: Size) -> pd.DataFrame:
    """Return the results of all losses."""
    # The first half of the scenes and the second half show different writers.
    data = load_digit_scenes(2 * size.train)
    images, Y = data.X.reshape(-1, 1, 16, 24).astype(np.float32), data.Y.astype(np.float64)
    rows, held_out = slice(0, size.train), slice(size.train, size.train + size.test)
    noise = ClassConditionalNoise.sample(Q, max_sum=0.6, random_state=SEED)
    noisy = noise.corrupt(Y[rows], random_state=100 + SEED)
    embeddings = cross_fit(images[rows], noisy, size, epochs=size.fold_epochs).embeddings
    rates = estimate_noise(embeddings, noisy, random_state=SEED).noise
    fitted = cross_fit(images[rows], noisy, size, epochs=size.epochs, lr=2e-3, patience=4, head=None, noise=rates)
    posterior = rates.posterior(noisy, fitted.pred_proba)
    methods = {
        "BCE, clean labels": (Y[rows], HammingLoss("logistic")),
        "BCE": (noisy, HammingLoss("logistic")),
        "Hamming logistic relu, estimated rates": (noisy, HammingLoss("logistic", rates, correction="relu")),
        "ranking sigmoid, estimated rates": (noisy, RankingLoss("sigmoid", rates)),
        "forward loss, estimated rates": (noisy, ForwardLoss(rates)),
        "ranking sigmoid, posterior labels": (posterior, RankingLoss("sigmoid")),
    }
    X, X_test, results = torch.tensor(images[rows]), torch.tensor(images[held_out]), []
    for method, (targets, loss) in methods.items():
        scores = train(X, torch.tensor(targets, dtype=torch.float32), loss, X_test, size).numpy()
        values = {
            "hamming_loss": float(hamming_loss(Y[held_out], (scores >= 0).astype(int))),
            "average_precision": float(average_precision(Y[held_out], scores)),
            "rho_pos_error": abs(rates.rho_pos - noise.rho_pos).mean(),
            "rho_neg_error": abs(rates.rho_neg - noise.rho_neg).mean(),
        }
        results.append({"noise": "two-sided", "seed": SEED, "method": method, **values, "train": size.train})
    return pd.DataFrame(results).round(5)


def main() -> None:
    options = parser(__doc__.splitlines()[0]).parse_args()
    warnings.simplefilter("ignore")  # rates of some labels are poorly identified
    table = run(QUICK if options.quick else Size())
    if not options.quick:
        save(table, RESULTS)
    if options.json:
        print(json.dumps({"machine": machine(), "results": table.to_dict("records")}))
    else:
        print(table.to_string())


if __name__ == "__main__":
    main()
