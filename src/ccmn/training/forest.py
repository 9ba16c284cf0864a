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

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ccmn._validation import FloatArray

MAX_TREE_ROWS = 10_000
"""Each tree is grown on at most this number of random rows, which bounds the time to grow it for any number of rows.

It also bounds the size: 100 trees with leaves of 5 rows have at most 200,000 leaves, 20 MB with 20 labels.
"""
MAX_DEPTH = 32
"""Largest depth of a tree, which is the number of comparisons of a prediction."""
MAX_FEATURES = 5000
"""Largest number of dense features. Above it, reduce the dimension first, for example by a truncated SVD."""
MAX_LABELS = 100
"""Largest number of labels: every leaf stores one probability per label."""
_BLOCK_ELEMENTS = 1 << 20
"""Leaf values that are gathered at a time."""


@dataclass(frozen=True, eq=False)
class Forest:
    """Fitted forest: the nodes of all trees in preorder, one tree after the other.

    Node i compares ``feature[i]``, -1 for a leaf; rows with ``x <= threshold[i]`` belong to the left child. ``values``
    (n_leaves, n_labels) are the label probabilities of the leaves, in the order of the nodes.
    """

    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    values: NDArray[np.float32]
    n_features: int

    @cached_property
    def structure(self) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Right child of every node (a leaf: itself), roots of the trees, and largest depth, at most ``MAX_DEPTH``."""
        is_leaf = self.feature < 0
        right, roots = _preorder_structure(is_leaf)
        level = roots
        for depth in range(MAX_DEPTH + 1):
            inner = level[~is_leaf[level]]
            if not len(inner):
                return right, roots, depth
            level = np.append(inner + 1, right[inner])
        raise ValueError(f"feature of the forest must contain trees of depth at most {MAX_DEPTH}")

    def predict(self, X: Any) -> NDArray[np.float32]:
        """Return label probabilities (n, n_labels) of finite features (n, n_features): the mean over the trees."""
        rows = np.ascontiguousarray(X, dtype=np.float32)
        (right, roots, depth), is_leaf = self.structure, self.feature < 0
        feature, leaf = np.maximum(self.feature, 0), np.cumsum(is_leaf) - 1
        # No number is <= NaN, so that a leaf always continues with its "right child": itself.
        threshold = np.where(is_leaf, np.float32(np.nan), self.threshold)
        step = max(1, _BLOCK_ELEMENTS // (len(roots) * self.values.shape[1]))
        result = np.empty((len(rows), self.values.shape[1]), dtype=np.float32)
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            offset = np.tile(np.arange(len(block)) * block.shape[1], len(roots))
            node = np.repeat(roots, len(block))
            for _ in range(depth):
                is_left = block.ravel()[offset + feature[node]] <= threshold[node]
                node = np.where(is_left, node + 1, right[node])
            # In float64, the sum does not depend on its order, which varies with the number of rows.
            leaves = self.values[leaf[node]].reshape(len(roots), len(block), -1)
            result[start : start + step] = leaves.mean(0, dtype=np.float64)
        return result

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays to store; :meth:`from_arrays` reads them."""
        return {"feature": self.feature, "threshold": self.threshold, "values": self.values}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], n_features: int, n_labels: int) -> Forest:
        """Return the forest of stored arrays, which may come from an untrusted file.

        Every walk from a root of a valid forest ends in a leaf after at most ``MAX_DEPTH`` comparisons. Otherwise, a
        ValueError names the array that is missing or invalid.
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
        _ = forest.structure  # raises an error if it is invalid
        return forest


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


def fit_forest(
    X: NDArray[np.float32],
    Y: FloatArray,
    sample_weight: FloatArray,
    *,
    n_trees: int,
    min_samples_leaf: int,
    random_state: int,
) -> tuple[Forest, FloatArray]:
    """Fit a random forest to labels or label probabilities and return it with its out-of-bag predictions.

    Each tree is grown on a bootstrap sample of at most ``MAX_TREE_ROWS`` rows; each split considers the square root of
    the number of features. Missing labels are replaced by the mean of the label when trees are grown. The values of
    the leaves are then computed from the observed labels alone, and are the mean of the label in leaves without any.

    X (n, d) are finite dense features with d at most ``MAX_FEATURES``, Y (n, q) labels or probabilities of at most
    ``MAX_LABELS`` labels, NaN where not observed. Rows of weight 0 are in no bootstrap sample. The out-of-bag
    predictions (n, q) are means over the trees whose sample does not contain the row; without one, the mean label.
    """
    from sklearn.tree import DecisionTreeRegressor

    rng, used = np.random.default_rng(random_state), np.flatnonzero(sample_weight)
    observed = ~np.isnan(Y)
    # A label without observations has the mean 0.5.
    mean = np.ma.filled(np.ma.average(np.ma.masked_invalid(Y), axis=0, weights=sample_weight), 0.5)
    imputed = np.where(observed, Y, mean)
    total, count = np.zeros(Y.shape), np.zeros((len(Y), 1))
    trees = []
    for _ in range(n_trees):
        drawn = used[rng.integers(len(used), size=min(len(used), MAX_TREE_ROWS))]
        sample, draws = np.unique(drawn, return_counts=True)
        weight = draws * sample_weight[sample]
        model = DecisionTreeRegressor(
            max_depth=MAX_DEPTH,
            max_features="sqrt",
            min_samples_leaf=min_samples_leaf,
            random_state=int(rng.integers(2**31)),
        )
        tree = model.fit(X[sample], imputed[sample], sample_weight=weight).tree_
        is_leaf = tree.children_left < 0
        leaves, values = (np.cumsum(is_leaf) - 1)[tree.apply(X)], tree.value[is_leaf, :, 0]
        if not observed.all():
            reached = sparse.csr_array((weight, (leaves[sample], sample)), shape=(len(values), len(X)))
            known = reached @ observed.astype(np.float64)
            sums = reached @ np.where(observed, Y, 0.0)
            values = np.divide(sums, known, out=np.tile(mean, (len(values), 1)), where=known > 0)
        values = values.clip(0, 1).astype(np.float32)
        held_out = np.ones(len(X), dtype=bool)
        held_out[sample] = False
        total[held_out] += values[leaves[held_out]]
        count[held_out] += 1
        trees.append((*_nodes(tree, is_leaf), values))
    feature, threshold, leaf_values = (np.concatenate(parts) for parts in zip(*trees))
    forest = Forest(feature, threshold, leaf_values, X.shape[1])
    return forest, np.divide(total, count, out=np.tile(mean, (len(Y), 1)), where=count > 0)


def _nodes(tree: Any, is_leaf: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return features and thresholds of the nodes of a fitted scikit-learn tree."""
    inner = np.flatnonzero(~is_leaf)
    if (tree.children_left[inner] != inner + 1).any():
        raise RuntimeError("scikit-learn no longer stores trees in preorder; use a version that ccmn supports")
    # scikit-learn compares float32 features with float64 thresholds. The largest float32 number that does not exceed
    # the threshold gives the same result for every feature value.
    threshold = tree.threshold.astype(np.float32)
    threshold = np.where(threshold > tree.threshold, np.nextafter(threshold, np.float32(-np.inf)), threshold)
    return np.where(is_leaf, -1, tree.feature).astype(np.int32), np.where(is_leaf, np.float32(0), threshold)
