"""Out-of-fold scores of the noisy labels, and the features from which the models of the labels are fitted.

In-sample scores cannot be used to estimate noise: a model that has memorized its training rows reproduces their noise.
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

from ccmn._containers import is_sparse, to_dense_array
from ccmn._random import RandomState, as_generator
from ccmn._threads import limit_threads
from ccmn._validation import FloatArray
from ccmn.losses import HammingLoss
from ccmn.training.batches import MAX_DENSE_FEATURES, Features, Rows
from ccmn.training.loop import Objective, train
from ccmn.training.networks import Network, StackedLinear
from ccmn.training.optimizer import StackedAdam
from ccmn.training.selection import KeepBest

LEARNING_RATES = (2e-2, 1e-3)
"""Learning rates that are trained in parallel in every fold."""
STEPS_PER_EPOCH = 20
"""Mini-batches per epoch."""
MAX_EPOCHS = 40
"""Epochs if early stopping does not end the training before."""
PATIENCE = 5
"""Epochs without improvement after which the training stops."""
WEIGHT_DECAY = 1e-4
"""Weight decay of the scoring models."""
MAX_FOLDS = 5
"""Number of folds for labels with enough positives and negatives."""
MAX_TRAINING_ROWS = 20_000
"""Rows on which the model of a fold is trained; more rows hardly change the order of the scores."""
MAX_FEATURES = 400
"""Features above this number are replaced by their principal components."""
N_COMPONENTS = 120
"""Number of these principal components."""
N_LANDMARKS = 150
"""Landmark rows of the kernel features."""
MAX_OTHER_LABELS = 300
"""Number of other labels that are used as features; the most balanced ones are kept."""
_MAX_BLOCK_ENTRIES = 2**24
"""Dense entries of X in one block of held-out rows."""

Fold = NDArray[np.intp]


def out_of_fold_scores(X: Any, Y: FloatArray, random_state: RandomState = 0) -> FloatArray:
    r"""Return out-of-fold probabilities of the noisy labels from cross-validated linear logistic models.

    The model of each fold minimizes the logistic Hamming loss of the noisy labels, without noise correction,

    .. math:: \sum_j \tilde y_j \log(1 + e^{-f_j}) + (1 - \tilde y_j) \log(1 + e^{f_j}), \qquad f = xW + b,

    on at most 20,000 random rows outside the fold. The fold itself selects the learning rate and the number of epochs,
    which are common to all labels. All folds are trained in parallel, or one after another if there are many features.

    Parameters
    ----------
    X : array or CSR matrix of shape (n, d)
        Features. Dense features are standardized; a sparse matrix is scaled as a whole and stays sparse.
    Y : array of shape (n, q)
        Noisy labels in {0, 1}, NaN where not observed.
    random_state : int, Generator or None, default=0
        Seed of folds and mini-batches.

    Returns
    -------
    float64 array of shape (n, q)
        P(noisy label = 1 | x) by the model that was not trained on the row.

    Examples
    --------
    >>> from ccmn.data import make_noisy_multilabel
    >>> from ccmn.estimation import out_of_fold_scores
    >>> task = make_noisy_multilabel(200, 5, 2, random_state=0)
    >>> out_of_fold_scores(task.X, task.Y_noisy, random_state=0).shape
    (200, 2)
    """
    X, Y = X if is_sparse(X) else to_dense_array(X), to_dense_array(Y)
    n, q = Y.shape
    if n < 2:
        return np.full((n, q), 0.5)
    fixed = isinstance(random_state, (int, np.integer))
    seed = int(random_state) if fixed else int(as_generator(random_state).integers(2**31))  # type: ignore[arg-type]
    folds = stratified_folds(Y, number_of_folds(Y), np.random.default_rng(seed))
    features, labels = Features(scale_features(X)), torch.from_numpy(Y.astype(np.float32))
    one_by_one = X.shape[1] > MAX_DENSE_FEATURES
    scores = np.empty((n, q))
    for part in [[k] for k in range(len(folds))] if one_by_one else [list(range(len(folds)))]:
        held_out = _stack_folds([folds[k] for k in part])
        groups = training_rows(folds, part, np.random.default_rng([seed, *part]))
        outputs = _held_out_outputs(features, labels, groups, held_out, [seed + k for k in part])
        scores[held_out.numpy()] = torch.sigmoid(outputs).numpy()
    return scores


def number_of_folds(Y: FloatArray) -> int:
    """Return 5, or 3 if half of the labels have fewer than 150 rows of their rarer class; at most n."""
    rarer = np.minimum((Y == 1).sum(0), (Y == 0).sum(0))
    return min(len(Y), MAX_FOLDS if np.median(rarer) >= 150 else 3)


def stratified_folds(Y: FloatArray, k: int, rng: np.random.Generator) -> list[Fold]:
    """Return k folds of equal size, stratified by the rarest label of each row.

    Rows are sorted by their rarest label, in random order within a label, and assigned to the folds in turn.

    >>> [fold.size for fold in stratified_folds(np.eye(10)[:, :2], 3, np.random.default_rng(0))]
    [4, 3, 3]
    """
    counts = np.where(Y == 1, (Y == 1).sum(0), np.inf)
    order = np.lexsort((rng.random(len(Y)), counts.argmin(1), counts.min(1)))
    return [order[start::k] for start in range(k)]


def _stack_folds(folds: Sequence[Fold]) -> Tensor:
    """Return folds as one tensor (G, B); a shorter fold repeats a row, whose score is then written twice."""
    size = max(fold.size for fold in folds)
    return torch.from_numpy(np.stack([np.resize(fold, size) for fold in folds])).long()


def training_rows(folds: Sequence[Fold], part: Sequence[int], rng: np.random.Generator) -> list[Fold]:
    """Return the training rows of the folds in ``part``: equally many for each, in random order."""
    smallest = sum(fold.size for fold in folds) - max(fold.size for fold in folds)
    others = [np.concatenate([fold for j, fold in enumerate(folds) if j != k]) for k in part]
    return [rng.permutation(rows)[: min(smallest, MAX_TRAINING_ROWS)] for rows in others]


def scale_features(X: Any) -> Any:
    """Return float32 features: standardized columns, or a CSR matrix whose stored values have mean square 1."""
    if not is_sparse(X):
        return StandardScaler().fit_transform(X).astype(np.float32, copy=False)
    csr = X.tocsr()
    scale = np.sqrt(np.square(csr.data, dtype=np.float64).mean()) if csr.nnz else 1.0
    # The index arrays are shared with X; only the values are copied.
    values = (csr.data / (scale or 1.0)).astype(np.float32, copy=False)
    return scipy.sparse.csr_array((values, csr.indices, csr.indptr), shape=csr.shape)


def _held_out_outputs(
    features: Features, labels: Tensor, groups: Sequence[Fold], held_out: Tensor, seeds: Sequence[int]
) -> Tensor:
    """Train one model per fold and learning rate; return the outputs (G, B, q) of the best ones on held-out rows."""
    q, size = labels.shape[1], len(groups[0])
    loss = HammingLoss("logistic")
    network = StackedLinear(features.d, q, [[seed] * len(LEARNING_RATES) for seed in seeds])
    # Weights start at zero and biases at the log-odds of each label: early stopping would keep a random start.
    ones, zeros = (labels == 1).sum(0) + 0.5, (labels == 0).sum(0) + 0.5
    weights = network.parameters[0].values.data
    weights.zero_()
    weights[:, -1] = torch.log(ones / zeros)
    learning_rates = torch.tensor(LEARNING_RATES).expand(len(seeds), -1)

    def held_out_loss(network: Network) -> Tensor:
        blocks = [
            loss.risk(outputs, labels[index].unsqueeze(1)).sum(-1)
            for index, outputs in _output_blocks(network, features, held_out)
        ]
        return torch.stack(blocks).sum(0) / held_out.shape[1]

    selection = KeepBest(held_out_loss, patience=PATIENCE)
    optimizer = StackedAdam(network.parameters, learning_rates, torch.full_like(learning_rates, WEIGHT_DECAY))
    rows = Rows(groups, min(max(size // STEPS_PER_EPOCH, 16), 1024), seeds)
    result = train(network, Objective.of(loss), features, labels, rows, optimizer, selection, epochs=MAX_EPOCHS)
    if result.interrupted:
        raise KeyboardInterrupt
    with torch.no_grad():
        best = held_out_loss(network).argmin(1)
        outputs = torch.cat([outputs for _, outputs in _output_blocks(network, features, held_out)], 2)
    return outputs[torch.arange(len(seeds)), best]


def _output_blocks(network: Network, features: Features, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield row indices (G, b) and their outputs (G, K, b, q), one block of rows at a time."""
    width = features.d if features.is_dense else min(features.d, MAX_DENSE_FEATURES)
    size = max(1, _MAX_BLOCK_ENTRIES // (width * rows.shape[0]))
    for start in range(0, rows.shape[1], size):
        index = rows[:, start : start + size]
        yield index, network.outputs(features.gather(index))


def feature_maps(X: Any, seed: int) -> list[FloatArray]:
    """Return linear and kernel features of the same rows.

    Both are centered and have a mean square of 1 over all columns, so that one step size suits both. The held-out
    likelihood of each label selects between them.
    """
    linear = reduce_features(X, seed)
    return [linear, kernel_features(linear, seed)]


def reduce_features(X: Any, seed: int, n_components: int = N_COMPONENTS) -> FloatArray:
    """Return dense centered features: standardized columns, or principal components if there are many columns.

    The rows of a wide sparse matrix are normalized first, so that the length of a text has no influence.
    """
    if X.shape[1] <= MAX_FEATURES:
        return standardize(np.asarray(X.toarray() if is_sparse(X) else X, dtype=np.float64))
    rows = normalize(X) if is_sparse(X) else standardize(np.asarray(X, dtype=np.float64))
    size = min(n_components, min(rows.shape) - 1)
    with limit_threads(rows.shape[0] * size**2):
        left, values, _ = randomized_svd(rows, size, n_iter=2, random_state=seed)
    return rescale(left * values)


def standardize(X: FloatArray) -> FloatArray:
    """Return columns of mean 0 and standard deviation 1; constant columns become 0."""
    deviation = X.std(0)
    # Rounding errors give a constant column a small deviation, which must not be scaled up.
    varied = deviation > 1e-9 * np.maximum(1.0, np.abs(X).max(0, initial=0.0))
    return np.where(varied, (X - X.mean(0)) / np.where(varied, deviation, 1), 0.0)


def rescale(X: FloatArray) -> FloatArray:
    """Return centered columns divided by one common factor, so that their mean square is 1."""
    centered: FloatArray = X - X.mean(0)
    scale = float(np.sqrt(np.square(centered).mean()))
    return centered / scale if scale > 0 else centered


def kernel_features(X: FloatArray, seed: int) -> FloatArray:
    r"""Return Nystroem features of the Gaussian kernel with random landmark rows.

    .. math:: K(x, c)\, K(c, c')^{-1/2}, \qquad K(x, c) = e^{-\lVert x - c \rVert^2 / m}

    where m is the median squared distance between landmarks.
    """
    landmarks = X[np.random.default_rng(seed).permutation(len(X))[:N_LANDMARKS]]
    distances = squared_distances(landmarks, landmarks)
    width = float(np.median(distances[np.triu_indices(len(landmarks), 1)])) if len(landmarks) > 1 else 1.0
    width = width if width > 0 else 1.0
    values, vectors = np.linalg.eigh(np.exp(-distances / width))
    kept = values > 1e-6 * values[-1]
    root = vectors[:, kept] / np.sqrt(values[kept])
    return rescale(np.exp(-squared_distances(X, landmarks) / width) @ root)


def squared_distances(A: FloatArray, B: FloatArray) -> FloatArray:
    """Return the squared distances (n, m) between all rows of A and all rows of B."""
    squares = np.square(A).sum(1)[:, None] + np.square(B).sum(1) - 2 * A @ B.T
    return np.asarray(np.maximum(squares, 0))


def label_features(Y: FloatArray) -> tuple[FloatArray, NDArray[np.intp]]:
    r"""Return noisy labels as standardized features (0 where not observed), and the column of each label, or -1.

    Flips are independent given the true labels, so that for every label

    .. math:: P(\tilde y_j = 1 \mid x, \tilde y_{others}) = \rho_{neg} + r\, P(y_j = 1 \mid x, \tilde y_{others}) .

    The other noisy labels therefore improve the model of a label without further assumptions. If every row has the
    same number of labels (for example one class per row), they determine the label, flips are not independent, and no
    features are returned.
    """
    observed = ~np.isnan(Y)
    if Y.shape[1] > 1 and np.ptp(np.nansum(Y, 1)) == 0:
        return np.empty((len(Y), 0)), np.full(Y.shape[1], -1, dtype=np.intp)
    counts = np.maximum(observed.sum(0), 1)
    mean = np.nansum(Y, 0) / counts
    centered = np.where(observed, Y - mean, 0.0)
    deviation = np.sqrt(np.square(centered).sum(0) / counts)
    varied = np.flatnonzero(deviation > 0)
    kept = np.sort(varied[np.argsort(-deviation[varied], kind="stable")[:MAX_OTHER_LABELS]])
    column = np.full(Y.shape[1], -1, dtype=np.intp)
    column[kept] = np.arange(kept.size)
    return centered[:, kept] / deviation[kept], column
