"""What the models of the profile likelihood look at: the features in two shapes, and the other noisy labels.

Held-out scores: the noisy label of every row, as foreseen by a model that did not train on it (section 2).

In-sample scores are no use: a model that has learnt its rows by heart leaves no noise to be seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler, normalize
from sklearn.utils.extmath import randomized_svd
from torch import Tensor

from ccmn._containers import is_sparse
from ccmn._validation import FloatArray
from ccmn.losses import HammingLoss
from ccmn.training.batches import WIDEST_DENSE_BATCH, Features, Rows
from ccmn.training.loop import Objective, train
from ccmn.training.networks import Network, StackedLinear
from ccmn.training.optimizer import StackedAdam
from ccmn.training.selection import KeepBest

WIDEST = 400
"""Features beyond which only the leading directions are looked at."""
DIRECTIONS = 200
LANDMARKS = 300
"""Rows that the kernel features are measured from."""
MOST_LABELS = 300
"""Other labels that are evidence, the most frequent ones first."""


def heads(X: Any, seed: int) -> list[FloatArray]:
    """Two shapes of the same features: as they are (linear) and kernel features about landmark rows.

    Each is centred, with columns of mean square 1 on average, so that one step length suits both. Which of them a
    label is explained by is left to its held-out likelihood.
    """
    base = narrow(X, seed)
    return [base, kernel_features(base, seed)]


def narrow(X: Any, seed: int) -> FloatArray:
    """Dense features, centred: standardised columns, or the leading directions where there are many.

    Rows of a CSR are scaled to length 1 first: word counts say more about the length of a text than about its labels.
    """
    if X.shape[1] <= WIDEST:
        return standardise(np.asarray(X.toarray() if is_sparse(X) else X, dtype=np.float64))
    rows = normalize(X) if is_sparse(X) else standardise(np.asarray(X, dtype=np.float64))
    size = min(DIRECTIONS, min(rows.shape) - 1)
    left, values, _ = randomized_svd(rows, size, n_iter=4, random_state=seed)
    return rescale(left * values)


def standardise(X: FloatArray) -> FloatArray:
    """Columns of mean 0 and deviation 1; constant ones become 0."""
    deviation = X.std(0)
    # Rounding leaves a little deviation in a constant column, which must not be blown up.
    varied = deviation > 1e-9 * np.maximum(1.0, np.abs(X).max(0, initial=0.0))
    return np.where(varied, (X - X.mean(0)) / np.where(varied, deviation, 1), 0.0)


def rescale(X: FloatArray) -> FloatArray:
    """Centred, and all columns by one factor to a mean square of 1 on average: small directions stay small."""
    centred: FloatArray = X - X.mean(0)
    size = float(np.sqrt(np.square(centred).mean()))
    return centred / size if size > 0 else centred


def kernel_features(X: FloatArray, seed: int) -> FloatArray:
    r"""Nystroem features of the Gaussian kernel about random landmark rows.

    .. math:: K(x, c)\, K(c, c')^{-1/2}, \qquad K(x, c) = e^{-\lVert x - c \rVert^2 / m}

    with m the median squared distance of the landmarks.
    """
    chosen = np.random.default_rng(seed).permutation(len(X))[:LANDMARKS]
    landmarks = X[chosen]
    apart = squared_distances(landmarks, landmarks)
    width = float(np.median(apart[np.triu_indices(len(chosen), 1)])) if len(chosen) > 1 else 1.0
    width = width if width > 0 else 1.0
    values, vectors = np.linalg.eigh(np.exp(-apart / width))
    kept = values > 1e-6 * values[-1]
    root = vectors[:, kept] / np.sqrt(values[kept])
    return rescale(np.exp(-squared_distances(X, landmarks) / width) @ root)


def squared_distances(A: FloatArray, B: FloatArray) -> FloatArray:
    """(n, m): between all rows of the one and all of the other."""
    squares = np.square(A).sum(1)[:, None] + np.square(B).sum(1) - 2 * A @ B.T
    return np.asarray(np.maximum(squares, 0))


def label_features(Y: FloatArray) -> tuple[FloatArray, np.ndarray[Any, np.dtype[np.intp]]]:
    r"""Noisy labels as features, standardised, 0 where not observed; and the place of each label among them, or -1.

    Flips are independent given the true labels, so that for every label

    .. math:: P(\tilde y_j = 1 \mid x, \tilde y_{others}) = \rho_{neg} + r\, P(y_j = 1 \mid x, \tilde y_{others}) :

    the other noisy labels sharpen the posterior at no price (section 17). Where every row has equally many labels
    (classes, one a row) they give the label away, flips are not independent, and there are no such features.
    """
    observed = ~np.isnan(Y)
    if Y.shape[1] > 1 and np.ptp(np.nansum(Y, 1)) == 0:
        return np.empty((len(Y), 0)), np.full(Y.shape[1], -1, dtype=np.intp)
    many = np.maximum(observed.sum(0), 1)
    mean = np.nansum(Y, 0) / many
    centred = np.where(observed, Y - mean, 0.0)
    deviation = np.sqrt(np.square(centred).sum(0) / many)
    varied = np.flatnonzero(deviation > 0)
    kept = np.sort(varied[np.argsort(-deviation[varied], kind="stable")[:MOST_LABELS]])
    place = np.full(Y.shape[1], -1, dtype=np.intp)
    place[kept] = np.arange(kept.size)
    return centred[:, kept] / deviation[kept], place


RATES = (2e-2, 1e-3)
"""Learning rates, all tried at once in every fold."""
STEPS = 20
"""Mini-batches an epoch."""
EPOCHS = 40
PATIENCE = 5
WEIGHT_DECAY = 1e-4
MOST_FOLDS = 5
MOST_ROWS = 20_000
"""Rows a fold's model is trained on: the order of the scores is settled long before."""
_BLOCK = 2**24
"""Dense entries of X that a held-out block may have."""

Fold = NDArray[np.intp]


def out_of_fold_scores(X: Any, Y: FloatArray, seed: int) -> FloatArray:
    r"""P(noisy label = 1 | x) for every row and label, from linear logistic models trained on the other folds.

    Each fold's model minimises the plain logistic Hamming loss, Eq. (3), of the noisy labels,

    .. math:: \sum_j \tilde y_j \log(1 + e^{-f_j}) + (1 - \tilde y_j) \log(1 + e^{f_j}), \qquad f = xW + b,

    over the rows outside the fold (20,000 of them at most, taken at random). The fold itself chooses two numbers,
    common to all labels: the learning rate and the epoch at which to stop. All folds train at once, as the groups of
    one fleet; with wide features one after the other.

    Parameters
    ----------
    X : array or CSR (n, d)
        Dense features are standardised; a CSR is scaled as a whole and never made dense.
    Y : (n, q)
        Noisy labels in {0, 1}, NaN where not observed.
    seed : int
    """
    n, q = Y.shape
    if n < 2:
        return np.full((n, q), 0.5)
    folds = spread_folds(Y, number_of_folds(Y), np.random.default_rng(seed))
    features, labels = Features(standardised(X)), torch.from_numpy(Y.astype(np.float32))
    one_by_one = X.shape[1] > WIDEST_DENSE_BATCH
    scores = np.empty((n, q))
    for part in [[k] for k in range(len(folds))] if one_by_one else [list(range(len(folds)))]:
        held_out = equally_long([folds[k] for k in part])
        groups = training_rows(folds, part, np.random.default_rng([seed, *part]))
        outputs = _foresee(features, labels, groups, held_out, [seed + k for k in part])
        scores[held_out.numpy()] = torch.sigmoid(outputs).numpy()
    return scores


def number_of_folds(Y: FloatArray) -> int:
    """5, or 3 where half of the labels have fewer than 150 of their rarer class; never more than rows."""
    rarer = np.minimum((Y == 1).sum(0), (Y == 0).sum(0))
    return min(len(Y), MOST_FOLDS if np.median(rarer) >= 150 else 3)


def spread_folds(Y: FloatArray, k: int, rng: np.random.Generator) -> list[Fold]:
    """k folds of equal size (give or take a row) in which every label has its share, rare ones above all.

    Rows are sorted by the rarest label they hold, at random within it, and dealt out like cards.

    >>> [fold.size for fold in spread_folds(np.eye(10)[:, :2], 3, np.random.default_rng(0))]
    [4, 3, 3]
    """
    counts = np.where(Y == 1, (Y == 1).sum(0), np.inf)
    order = np.lexsort((rng.random(len(Y)), counts.argmin(1), counts.min(1)))
    return [order[start::k] for start in range(k)]


def equally_long(folds: Sequence[Fold]) -> Tensor:
    """Folds (G, B) as one tensor: a shorter one repeats a row, whose score is then written twice."""
    longest = max(fold.size for fold in folds)
    return torch.from_numpy(np.stack([np.resize(fold, longest) for fold in folds])).long()


def training_rows(folds: Sequence[Fold], part: Sequence[int], rng: np.random.Generator) -> list[Fold]:
    """The rows outside each fold of a part, in random order and as many for each: at most ``MOST_ROWS``."""
    shortest = sum(fold.size for fold in folds) - max(fold.size for fold in folds)
    others = [np.concatenate([fold for j, fold in enumerate(folds) if j != k]) for k in part]
    return [rng.permutation(rows)[: min(shortest, MOST_ROWS)] for rows in others]


def standardised(X: Any) -> Any:
    """Features on a common scale, float32: mean 0 and deviation 1; of a CSR the stored values get mean square 1."""
    if not is_sparse(X):
        return StandardScaler().fit_transform(X).astype(np.float32, copy=False)
    csr = X.tocsr()
    size = np.sqrt(np.square(csr.data, dtype=np.float64).mean()) if csr.nnz else 1.0
    # The places of the entries are shared with X: only the values are copied.
    values = (csr.data / (size or 1.0)).astype(np.float32, copy=False)
    return scipy.sparse.csr_array((values, csr.indices, csr.indptr), shape=csr.shape)


def _foresee(
    features: Features, labels: Tensor, groups: Sequence[Fold], held_out: Tensor, seeds: Sequence[int]
) -> Tensor:
    """Train a group per fold, each learning rate a run; the outputs (G, B, q) of the best run on the held-out rows."""
    q, size = labels.shape[1], len(groups[0])
    loss = HammingLoss("logistic")
    network = StackedLinear(features.d, q, [[seed] * len(RATES) for seed in seeds])
    _start_from_prevalence(network, labels)
    runs = torch.tensor(RATES).expand(len(seeds), -1)

    def held_out_loss(network: Network) -> Tensor:
        blocks = [
            loss.risk(outputs, labels[index].unsqueeze(1)).sum(-1)
            for index, outputs in _outputs(network, features, held_out)
        ]
        return torch.stack(blocks).sum(0) / held_out.shape[1]

    selection = KeepBest(held_out_loss, patience=PATIENCE)
    optimiser = StackedAdam(network.parameters, runs, torch.full_like(runs, WEIGHT_DECAY))
    # So many steps an epoch, whatever the size, but for very small and very large data.
    rows = Rows(groups, min(max(size // STEPS, 16), 1024), seeds)
    result = train(network, Objective.of(loss), features, labels, rows, optimiser, selection, epochs=EPOCHS)
    if result.interrupted:
        raise KeyboardInterrupt
    with torch.no_grad():
        best = held_out_loss(network).argmin(1)
        outputs = torch.cat([outputs for _, outputs in _outputs(network, features, held_out)], 2)
    return outputs[torch.arange(len(seeds)), best]


def _start_from_prevalence(network: Network, labels: Tensor) -> None:
    """No slopes, and the log-odds of each label: what a random start adds is noise that early stopping keeps."""
    ones, zeros = (labels == 1).sum(0) + 0.5, (labels == 0).sum(0) + 0.5
    weights = network.parameters[0].values.data
    weights.zero_()
    weights[:, -1] = torch.log(ones / zeros)


def _outputs(network: Network, features: Features, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Row numbers (G, b) and their outputs (G, K, b, q), a block at a time."""
    width = features.d if features.is_dense else min(features.d, WIDEST_DENSE_BATCH)
    size = max(1, _BLOCK // (width * rows.shape[0]))
    for start in range(0, rows.shape[1], size):
        index = rows[:, start : start + size]
        yield index, network.outputs(features.gather(index))
