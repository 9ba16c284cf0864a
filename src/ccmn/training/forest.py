"""Random forest of all labels at once, whose fitted form is three arrays.

scikit-learn grows the trees: regression trees of all labels or probabilities on bootstrap samples [1]_. On 0/1 labels
their variance criterion is half of the Gini criterion summed over the labels, and their predictions are probabilities.
They equal classification trees up to ties, and growing them takes less than half of the time. The bootstrap samples
are drawn here, because scikit-learn's forests draw them in proportion to sample weights in some versions: rows with a
large weight would never be out of bag.

Every tree is stored in preorder: a node, its left subtree, its right subtree. Which nodes are leaves then determines
all children, so that stored trees contain no references between nodes that would have to be trusted.

References
----------
.. [1] L. Breiman, "Random Forests", Machine Learning 45, 2001.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor, nn

from ccmn._random import RandomState, as_generator
from ccmn._threads import limit_threads
from ccmn._validation import FloatArray, check_count

DEFAULT_TREES = 100
"""Number of trees. 200 trees gain .007 in mean AP (yeast, enron and tmc with 1,500 rows) for twice the time."""
TRIAL_TREES = 20
"""A caller may end the growth after this number of trees if they do not help."""
DEFAULT_MIN_SAMPLES_LEAF = 5
"""Training rows per leaf. With 3 rows, mean AP changes by +.028 (clean tmc) to -.009 (enron, two-sided noise)."""
MAX_TREE_ROWS = 10_000
"""Each tree is grown on at most this number of random rows, which bounds the time to grow it for any number of rows.

It also bounds the size: 100 trees with leaves of 5 rows have at most 200,000 leaves, 20 MB with 20 labels.
"""
MAX_DEPTH = 32
"""Largest depth of a tree, which is the number of comparisons in :class:`ForestModule`."""
MAX_FEATURES = 5000
"""Largest number of dense features. Above it, reduce the dimension first, for example by a truncated SVD."""
MAX_LABELS = 100
"""Largest number of labels: every leaf stores one probability per label."""
_BLOCK_ELEMENTS = 1 << 20
"""Leaf values that are gathered at a time."""
_OPERATIONS_PER_PATH = 500
"""The path of a row through a tree takes about as long as this number of floating-point operations."""


@dataclass(frozen=True, eq=False)
class Forest:
    """Fitted forest: the nodes of all trees in preorder, one tree after the other.

    Parameters
    ----------
    feature : int32 array of shape (n_nodes,)
        Feature that each node compares; -1 for a leaf.
    threshold : float32 array of shape (n_nodes,)
        Rows with ``x <= threshold`` belong to the left child; 0 for a leaf.
    values : float32 array of shape (n_leaves, n_labels)
        Label probabilities of the leaves, in the order of the nodes.
    n_features : int
        Number of features.
    """

    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    values: NDArray[np.float32]
    n_features: int

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return len(self.module.roots)

    @cached_property
    def module(self) -> ForestModule:
        """Torch module of the forest."""
        return ForestModule(self)

    def predict(self, X: Any) -> NDArray[np.float32]:
        """Return label probabilities, the mean over the trees.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Finite dense features; compared in float32.

        Returns
        -------
        float32 array of shape (n, n_labels)
            Probabilities.
        """
        blocks = [self.module.mean_value(leaves).numpy() for _, leaves in self._leaf_blocks(X)]
        return np.concatenate(blocks) if blocks else np.empty((0, self.values.shape[1]), dtype=np.float32)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays to store; :meth:`from_arrays` reads them.

        Returns
        -------
        dict
            Arrays "feature", "threshold" and "values".
        """
        return {"feature": self.feature, "threshold": self.threshold, "values": self.values}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], n_features: int, n_labels: int) -> Forest:
        """Return the forest of stored arrays, which are validated: they may come from an untrusted file.

        Parameters
        ----------
        arrays : mapping
            Result of :meth:`arrays`.
        n_features, n_labels : int
            Expected numbers of features and labels.

        Returns
        -------
        Forest
            Valid forest: every walk from a root ends in a leaf after at most ``MAX_DEPTH`` comparisons.

        Raises
        ------
        ValueError
            If an array is missing or invalid; the message names it.
        """
        expected = {"feature": (np.int32, 1), "threshold": (np.float32, 1), "values": (np.float32, 2)}
        for name, (dtype, ndim) in expected.items():
            array = arrays.get(name)
            if array is None:
                raise ValueError(f"{name} of the forest is missing")
            if array.dtype != dtype or array.ndim != ndim:
                raise ValueError(
                    f"{name} of the forest must be {np.dtype(dtype)} with {ndim} dimensions; got {array.dtype} of "
                    f"shape {array.shape}"
                )
        feature, threshold, values = (np.ascontiguousarray(arrays[name]) for name in expected)
        leaves = int((feature < 0).sum())
        if not ((feature >= -1) & (feature < n_features)).all():
            raise ValueError(f"feature of the forest must be from -1 to {n_features - 1}")
        if threshold.shape != feature.shape or not np.isfinite(threshold).all():
            raise ValueError(f"threshold of the forest must be {len(feature)} finite numbers, one per node")
        if values.shape != (leaves, n_labels) or not ((values >= 0) & (values <= 1)).all():
            raise ValueError(
                f"values of the forest must be probabilities of shape {leaves, n_labels}; got shape {values.shape}"
            )
        forest = cls(feature, threshold, values, n_features)
        _ = forest.module  # validates the structure
        return forest

    def _leaf_blocks(self, X: Any) -> Iterator[tuple[slice, Tensor]]:
        """Yield slices of the rows and the leaves (n_trees, rows) that they reach."""
        rows = np.ascontiguousarray(X, dtype=np.float32)
        if rows.ndim != 2 or rows.shape[1] != self.n_features:
            raise ValueError(f"X must have shape (n, {self.n_features}); got {rows.shape}")
        step = max(1, _BLOCK_ELEMENTS // (self.n_trees * self.values.shape[1]))
        for start in range(0, len(rows), step):
            block = slice(start, start + step)
            with limit_threads(len(rows) * self.n_trees * _OPERATIONS_PER_PATH):
                leaves = self.module.leaves(torch.tensor(rows[block]))
            yield block, leaves


class ForestModule(nn.Module):
    """Torch module of a forest, for export and compilation; all weights are buffers.

    ``forward`` takes features (n, n_features) and returns label probabilities (n, n_labels). All rows walk through all
    trees for a fixed number of comparisons; leaves refer to themselves. Temporary memory is n x n_trees x n_labels
    numbers: pass large inputs in batches.

    Parameters
    ----------
    forest : Forest
        Fitted forest.
    """

    feature: Tensor
    threshold: Tensor
    right: Tensor
    roots: Tensor
    leaf: Tensor
    values: Tensor

    def __init__(self, forest: Forest) -> None:
        super().__init__()
        is_leaf = forest.feature < 0
        right, roots = _preorder_structure(is_leaf)
        self.depth = _depth(is_leaf, right, roots)
        buffers = {
            "feature": np.maximum(forest.feature, 0).astype(np.int64),
            # No number is <= NaN, so that a leaf always continues with its "right child": itself.
            "threshold": np.where(is_leaf, np.float32(np.nan), forest.threshold),
            "right": right,
            "roots": roots,
            "leaf": np.cumsum(is_leaf) - 1,
            "values": forest.values,
        }
        for name, array in buffers.items():
            self.register_buffer(name, torch.tensor(array))

    def forward(self, X: Tensor) -> Tensor:
        """Return label probabilities (n, n_labels) of features (n, n_features)."""
        return self.mean_value(self.leaves(X))

    def leaves(self, X: Tensor) -> Tensor:
        """Return the leaf (n_trees, n) that each row reaches in each tree, as a row of ``values``."""
        n, n_features = X.shape
        n_trees = self.roots.shape[0]
        entries = X.to(torch.float32).reshape(-1)
        # index_select on flat tensors is two to three times as fast as gather and advanced indexing.
        offset = (torch.arange(n, device=X.device) * n_features).repeat(n_trees)
        node = self.roots.unsqueeze(1).expand(n_trees, n).reshape(-1)
        for _ in range(self.depth):
            x = entries.index_select(0, offset + self.feature.index_select(0, node))
            is_left = x <= self.threshold.index_select(0, node)
            node = torch.where(is_left, node + 1, self.right.index_select(0, node))
        return self.leaf.index_select(0, node).reshape(n_trees, n)

    def mean_value(self, leaves: Tensor) -> Tensor:
        """Return the mean (n, n_labels) of the values of leaves (n_trees, n)."""
        gathered = self.values.index_select(0, leaves.reshape(-1))
        by_tree = gathered.reshape(leaves.shape[0], leaves.shape[1], self.values.shape[1])
        # In float64, the sum does not depend on its order, which varies with the number of rows.
        return by_tree.mean(0, dtype=torch.float64).to(self.values.dtype)


def _preorder_structure(is_leaf: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the right child of every node (a leaf: itself) and the roots of trees in preorder.

    The balance, the number of inner nodes minus the number of leaves so far, falls below its previous value for the
    first time where a subtree ends.
    """
    n = len(is_leaf)
    balance = np.cumsum(np.where(is_leaf, -1, 1))
    if n == 0 or balance[-1] >= 0 or not (balance[:-1] > balance[-1]).all():
        raise ValueError("feature of the forest must contain complete trees in preorder")
    lowest = np.minimum.accumulate(np.append(0, balance))
    roots = np.flatnonzero(np.diff(lowest[:-1], prepend=1) < 0)
    # The left subtree of node i ends at the first node j > i whose balance is one below that of i.
    order = np.argsort(balance, kind="stable")
    keys = balance * n + np.arange(n)
    ends = order[np.searchsorted(keys[order], keys[~is_leaf] - n)]
    right = np.arange(n)
    right[~is_leaf] = ends + 1
    return right, roots


def _depth(is_leaf: NDArray[np.bool_], right: NDArray[np.int64], roots: NDArray[np.int64]) -> int:
    """Return the largest depth; raise a ValueError if it exceeds ``MAX_DEPTH``."""
    level = roots
    for depth in range(MAX_DEPTH + 1):
        inner = level[~is_leaf[level]]
        if not len(inner):
            return depth
        level = np.append(inner + 1, right[inner])
    raise ValueError(f"feature of the forest must contain trees of depth at most {MAX_DEPTH}")


def fit_forest(
    X: Any,
    Y: Any,
    *,
    n_trees: int = DEFAULT_TREES,
    min_samples_leaf: int = DEFAULT_MIN_SAMPLES_LEAF,
    sample_weight: Any = None,
    random_state: RandomState = None,
    on_tree: Callable[[int, int], None] = lambda done, total: None,
    is_useless: Callable[[Forest, FloatArray], bool] = lambda forest, oob: False,
) -> tuple[Forest, FloatArray]:
    """Fit a random forest to labels or label probabilities and return it with its out-of-bag predictions.

    Each tree is grown on a bootstrap sample of at most ``MAX_TREE_ROWS`` rows; each split considers the square root of
    the number of features. Missing labels are replaced by the mean of the label when trees are grown. The values of
    the leaves are then computed from the observed labels alone, and are the mean of the label in leaves without any.

    Parameters
    ----------
    X : array of shape (n, d)
        Finite dense features, at most ``MAX_FEATURES``. Their scale has no effect.
    Y : array of shape (n, q)
        Labels or probabilities from 0 to 1 of at most ``MAX_LABELS`` labels; NaN where not observed.
    n_trees : int, default=100
        Number of trees.
    min_samples_leaf : int, default=5
        Smallest number of training rows in a leaf.
    sample_weight : array of shape (n,), optional
        Sample weights. Rows with weight 0 are in no bootstrap sample.
    random_state : int, Generator or None, default=None
        Seed of the bootstrap samples and of the features that splits consider.
    on_tree : callable, optional
        Called after each tree with the number of trees that are done and of all trees.
    is_useless : callable, optional
        Called with the forest of the first ``TRIAL_TREES`` trees and its out-of-bag predictions. If it returns True,
        this forest is the result.

    Returns
    -------
    forest : Forest
        Fitted forest.
    oob : array of shape (n, q)
        Mean prediction of the trees whose bootstrap sample does not contain the row. Rows that are in every sample get
        the mean of the label.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> forest, oob = fit_forest(X, X > 0, n_trees=20, random_state=0)
    >>> forest.predict([[1.0, -1.0]]).round(1)
    array([[1., 0.]], dtype=float32)
    >>> bool(((oob > 0.5) == (X > 0)).mean() > 0.95)
    True
    """
    from sklearn.tree import DecisionTreeRegressor

    rows, targets, weight = _check_training_data(X, Y, sample_weight)
    rng = as_generator(random_state)
    options = {"max_depth": MAX_DEPTH, "max_features": "sqrt"}
    options["min_samples_leaf"] = check_count(min_samples_leaf, "min_samples_leaf")
    observed, used = ~np.isnan(targets), np.flatnonzero(weight)
    # A label without observations has the mean 0.5.
    mean = np.ma.filled(np.ma.average(np.ma.masked_invalid(targets), axis=0, weights=weight), 0.5)
    imputed = np.where(observed, targets, mean)
    trees: list[Any] = []
    samples: list[_Sample] = []

    def grown() -> tuple[Forest, FloatArray]:
        forest = _flatten(trees, rows.shape[1])
        if not observed.all():
            forest = _with_observed_values(forest, rows, targets, samples, mean)
        return forest, _out_of_bag(forest, rows, samples, mean)

    for number in range(check_count(n_trees, "n_trees")):
        drawn = used[rng.integers(len(used), size=min(len(used), MAX_TREE_ROWS))]
        sample, counts = np.unique(drawn, return_counts=True)
        tree = DecisionTreeRegressor(**options, random_state=int(rng.integers(2**31)))
        trees.append(tree.fit(rows[sample], imputed[sample], sample_weight=counts * weight[sample]).tree_)
        samples.append(_Sample(sample, counts * weight[sample]))
        on_tree(number + 1, n_trees)
        if number + 1 == TRIAL_TREES < n_trees and is_useless(*(trial := grown())):
            return trial
    return grown()


class _Sample(NamedTuple):
    """Bootstrap sample: different rows and their weights, which count how often a row was drawn."""

    rows: NDArray[np.intp]
    weights: FloatArray


def _check_training_data(X: Any, Y: Any, sample_weight: Any) -> tuple[NDArray[np.float32], FloatArray, FloatArray]:
    """Return features, targets (n, q) and sample weights, or raise a ValueError."""
    rows, targets = np.asarray(X, dtype=np.float32), np.asarray(Y, dtype=np.float64)
    if rows.ndim != 2 or targets.ndim != 2 or len(rows) != len(targets) or 0 in (rows.size, targets.size):
        raise ValueError(f"X and Y must be matrices with the same rows; got shapes {rows.shape} and {targets.shape}")
    if rows.shape[1] > MAX_FEATURES or targets.shape[1] > MAX_LABELS:
        raise ValueError(
            f"a forest takes at most {MAX_FEATURES} features and {MAX_LABELS} labels; got {rows.shape[1]} and "
            f"{targets.shape[1]}"
        )
    if not np.isfinite(rows).all():
        raise ValueError("X must be finite in float32")
    if ((targets < 0) | (targets > 1)).any():
        raise ValueError("Y must be labels or probabilities, from 0 to 1, or NaN where not observed")
    if sample_weight is None:
        return rows, targets, np.ones(len(rows))
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (len(rows),) or not (np.isfinite(weight) & (weight >= 0)).all() or not weight.any():
        raise ValueError(f"sample_weight must be {len(rows)} numbers of at least 0, not all 0")
    return rows, targets, weight


def _flatten(trees: Sequence[Any], n_features: int) -> Forest:
    """Return the forest of fitted scikit-learn trees."""
    for tree in trees:
        inner = np.flatnonzero(tree.children_left >= 0)
        if (tree.children_left[inner] != inner + 1).any():
            raise RuntimeError("scikit-learn no longer stores trees in preorder; use a version that ccmn supports")
    is_leaf = np.concatenate([tree.children_left < 0 for tree in trees])
    threshold = np.concatenate([tree.threshold for tree in trees])
    # scikit-learn compares float32 features with float64 thresholds. The largest float32 number that does not exceed
    # the threshold gives the same result for every feature value.
    rounded = threshold.astype(np.float32)
    rounded = np.where(rounded > threshold, np.nextafter(rounded, np.float32(-np.inf)), rounded)
    feature = np.concatenate([tree.feature for tree in trees])
    values = np.concatenate([tree.value[tree.children_left < 0, :, 0] for tree in trees])
    return Forest(
        np.where(is_leaf, -1, feature).astype(np.int32),
        np.where(is_leaf, np.float32(0), rounded),
        values.clip(0, 1).astype(np.float32),
        n_features,
    )


def _with_observed_values(
    forest: Forest,
    rows: NDArray[np.float32],
    targets: FloatArray,
    samples: Sequence[_Sample],
    mean: FloatArray,
) -> Forest:
    """Return the forest with leaf values that are means of the observed labels of their bootstrap samples."""
    leaves = np.concatenate([block.numpy().astype(np.int32) for _, block in forest._leaf_blocks(rows)], axis=1)
    observed = ~np.isnan(targets)
    known = np.where(observed, targets, 0.0)
    total, count = np.zeros(forest.values.shape), np.zeros(forest.values.shape)
    for tree_leaves, sample in zip(leaves, samples):
        reached = tree_leaves[sample.rows]
        first, last = reached.min(), reached.max() + 1
        sums = csr_array((sample.weights, (reached - first, sample.rows)), shape=(last - first, len(rows)))
        total[first:last], count[first:last] = sums @ known, sums @ observed.astype(np.float64)
    values = np.divide(total, count, out=np.tile(mean, (len(total), 1)), where=count > 0)
    return Forest(forest.feature, forest.threshold, values.clip(0, 1).astype(np.float32), forest.n_features)


def _out_of_bag(forest: Forest, rows: NDArray[np.float32], samples: Sequence[_Sample], mean: FloatArray) -> FloatArray:
    """Return the mean prediction (n, q) of the trees whose sample leaves a row out, else the mean of the label."""
    left_out = np.ones((len(samples), len(rows)), dtype=bool)
    for tree, sample in zip(left_out, samples):
        tree[sample.rows] = False
    predicted = np.tile(mean, (len(rows), 1))
    for block, leaves in forest._leaf_blocks(rows):
        trees = left_out[:, block]
        total = np.einsum("tn,tnq->nq", trees.astype(np.float32), forest.values[leaves.numpy()])
        count = trees.sum(0)[:, None]
        np.divide(total, count, out=predicted[block], where=count > 0)
    return predicted
