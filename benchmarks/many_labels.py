"""Many labels: time and peak memory of a training step on sparse labels, and top-k prediction.

    python benchmarks/many_labels.py            (131,072 labels, batch 64, 768 features; 5 GB of memory)
    python benchmarks/many_labels.py --quick    (16,384 labels, 64 features)

The baseline of the step is the same step with cross-entropy on dense targets, which are built beforehand. The baseline
of the prediction sorts all scores of a row. Memory is the peak of a step in a separate process, beyond parameters,
gradient and optimizer state (two moments), in units of one (batch, labels) float32 tensor.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse
import torch
from harness import Result, compare, parser, peak_extra_megabytes, report

from ccmn import CCMNClassifier, ClassConditionalNoise
from ccmn.losses import HammingLoss, RankingLoss
from ccmn.training.batches import Batch, DenseLabels, Features, SparseLabels
from ccmn.training.loop import Objective, make_step
from ccmn.training.networks import StackedLinear
from ccmn.training.optimizer import StackedAdam

SIZES = {False: (131_072, 768, 64), True: (16_384, 64, 64)}

STEP = """
import numpy as np, scipy.sparse, torch
from ccmn.losses import RankingLoss
from ccmn.noise import ClassConditionalNoise
from ccmn.training.batches import SparseLabels
from ccmn.training.loop import Objective
from ccmn.training.networks import StackedLinear
from ccmn.training.optimizer import StackedAdam
from ccmn.training.batches import Batch, Features
from ccmn.training.loop import make_step
q, d, batch, n = {q}, {d}, {batch}, 1024
X = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
Y = scipy.sparse.random(n, q, 5 / q, "csr", dtype=np.float32, random_state=0)
Y.data[:] = 1
network = StackedLinear(d, q + 1, [[0]])
lr = torch.full((1, 1), 1e-3)
optimizer = StackedAdam(network.parameters, lr, torch.zeros(1, 1))
noise = ClassConditionalNoise(0.3, 1 / q, n_labels=q)
step = make_step(network, Objective.of(RankingLoss()), optimizer, Features(X), SparseLabels(Y, noise.debiasing()), None)
step(Batch(torch.arange(2).unsqueeze(0)))  # allocate what is reused
for kept in (*optimizer.first, *optimizer.second):
    kept.fill_(1e-12)  # make the pages resident
begin()
for start in (0, batch, 2 * batch):
    step(Batch(torch.arange(start, start + batch).unsqueeze(0)))
"""


def sparse_task(q: int, d: int, n: int):
    """Return random features, CSR labels with five labels per row, and a noise model."""
    X = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
    Y = scipy.sparse.random(n, q, 5 / q, "csr", dtype=np.float32, random_state=0)
    Y.data[:] = 1
    return X, Y, ClassConditionalNoise(0.3, 1 / q, n_labels=q)


def steps(q: int, d: int, batch: int) -> list[Result]:
    """Compare a step of the unbiased ranking loss on CSR labels with cross-entropy on dense labels."""
    X, Y, noise = sparse_task(q, d, batch)
    index = torch.arange(batch).unsqueeze(0)

    def prepared(loss, labels):
        network = StackedLinear(d, loss.n_outputs(q), [[0]])
        optimizer = StackedAdam(network.parameters, torch.full((1, 1), 1e-3), torch.zeros(1, 1))
        step = make_step(network, Objective.of(loss), optimizer, Features(X), labels, None)
        return lambda: step(Batch(index))

    plain = prepared(HammingLoss("logistic"), DenseLabels(torch.from_numpy(Y.toarray())))
    sigmoid = prepared(RankingLoss("sigmoid"), SparseLabels(Y, noise.debiasing()))
    return [
        compare(f"step, q = {q}, d = {d}, batch {batch}: ranking/sigmoid", sigmoid, "same step with BCE", plain, 4.0)
    ]


def prediction(q: int, d: int, rows: int) -> Result:
    """Compare the prediction of the top five labels with sorting all scores."""
    X, Y, noise = sparse_task(q, d, 256)
    settings = {"loss": "ranking", "lr": 1e-3, "epochs": 1, "batch_size": 64, "random_state": 0}
    clf = CCMNClassifier(noise, **settings).fit(X, Y)
    X = X[:rows]

    def whole():
        return np.argsort(-clf.decision_function(X), axis=1)[:, :5]

    return compare(f"top 5 of {q} labels, {rows} rows", lambda: clf.top_labels(X, 5), "sorting all scores", whole, 4.0)


def main() -> None:
    options = parser(__doc__.splitlines()[0]).parse_args()
    q, d, batch = SIZES[options.quick]
    results = [*steps(q, d, batch), prediction(q, d, batch)]
    score = 4 * batch * (q + 1) / 2**20
    notes = {"one score-sized tensor, MB": round(score, 1)}
    for features in (16, d):  # with few features the gradient is small and does not dominate
        # The gradient is the only tensor with the size of the parameters that a step allocates.
        gradient = 4 * (features + 1) * (q + 1) / 2**20
        extra = peak_extra_megabytes(STEP.format(q=q, d=features, batch=batch)) - gradient
        title = f"peak of a step without parameters, gradient, optimizer state, d = {features}, in score-sized tensors"
        notes[title] = round(extra / score, 2)
    report(results, notes, options.json)


if __name__ == "__main__":
    main()
