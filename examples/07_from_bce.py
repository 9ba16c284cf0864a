"""Does replacing BCE help, and does the scale of the inputs matter?
=================================================================

A small network is trained on noisy labels with BCE and with the unbiased losses for the same rates. The features are
those of a simulated table. They are scaled to [0, 1] or standardized. The pairs of a row are micro-F1 and average
precision on the true labels of other rows after 15, 30 and 100 epochs, means over four draws of noise and weights.
With --scenes, the features are pixels in [0, 1], and the test rows are pictures by other writers.

Result: the unbiased losses need standardized inputs, or more epochs. Their terms partly cancel at the start, and the
sigmoid surrogate has the smallest slopes. Standardized pixels lead to overfitting with every loss.

Run time: about three minutes; a few seconds with --quick. Prints a table.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

from ccmn import ClassConditionalNoise, HammingLoss, RankingLoss
from ccmn.data import load_digit_scenes, make_noisy_multilabel
from ccmn.metrics import average_precision, micro_f1

EPOCHS = (15, 30, 100)
ROWS = 2000


def train(loss, X: torch.Tensor, Y: torch.Tensor, X_test: torch.Tensor, epochs: tuple[int, ...], seed: int):
    """Train a network and yield the scores of the test rows after each number of epochs."""
    torch.manual_seed(seed)
    n_outputs = loss.n_outputs(10) if hasattr(loss, "n_outputs") else 10
    model = torch.nn.Sequential(torch.nn.Linear(X.shape[1], 64), torch.nn.ReLU(), torch.nn.Linear(64, n_outputs))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(1, max(epochs) + 1):
        for rows in torch.randperm(len(X)).split(100):
            optimizer.zero_grad()
            loss(model(X[rows]), Y[rows]).backward()
            optimizer.step()
        if epoch in epochs:
            with torch.no_grad():
                yield loss.decision(model(X_test)) if hasattr(loss, "decision") else model(X_test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="run a small version as a test")
    parser.add_argument("--scenes", action="store_true", help="use pictures of digits")
    options = parser.parse_args()
    quick = options.quick
    epochs, seeds = ((1, 2, 3), 1) if quick else (EPOCHS, 4)
    table = make_noisy_multilabel(2 * ROWS, 40, 10, strength=4, random_state=0)
    data = load_digit_scenes(2 * ROWS) if options.scenes else table
    raw, span = data.X.astype(np.float32), np.ptp(data.X[:ROWS], axis=0).astype(np.float32)
    raw = (raw - raw[:ROWS].min(0)) / np.where(span > 0, span, 1)
    train_X = raw[:ROWS]
    scaled = ((raw - train_X.mean(0)) / np.maximum(train_X.std(0), 0.01)).clip(-10, 10)
    for rho_pos, rho_neg in ((0.1, 0.4), (0.4, 0.0)):
        noise = ClassConditionalNoise(rho_pos, rho_neg, n_labels=10)
        losses = {
            "BCE": torch.nn.BCEWithLogitsLoss(),
            'HammingLoss("logistic")': HammingLoss("logistic", noise=noise),
            'RankingLoss("sigmoid")': RankingLoss("sigmoid", noise=noise),
        }
        print(f"missing {rho_pos}, added {rho_neg}: micro-F1 and average precision after {epochs} epochs")
        for inputs, X in (("raw", raw), ("standardized", scaled)):
            X = torch.tensor(X)
            for name, loss in losses.items():
                found = []
                for seed in range(seeds):
                    Y = torch.tensor(noise.corrupt(data.Y[:ROWS], random_state=seed), dtype=torch.float32)
                    for f in train(loss, X[:ROWS], Y, X[ROWS:], epochs, seed):
                        scores = f.numpy()
                        found.append([micro_f1(data.Y[ROWS:], scores >= 0), average_precision(data.Y[ROWS:], scores)])
                means = np.reshape(found, (seeds, len(epochs), 2)).mean(0)
                print(f"{inputs:<13}{name:<24}" + "   ".join(f"{f1:.2f} / {ap:.2f}" for f1, ap in means), flush=True)


if __name__ == "__main__":
    main()
