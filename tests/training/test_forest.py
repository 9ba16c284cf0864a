"""Random forest: equality with scikit-learn, missing labels, stored arrays, torch module."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeRegressor

from ccmn.training.forest import Forest, fit_forest


def problem(n=150, d=6, q=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(np.float32).round(1)  # with ties
    Y = (X @ rng.normal(size=(d, q)) + rng.normal(size=(n, q)) > 0.3).astype(float)
    return X, Y


def fit(X, Y, weight=None, n_trees=12, seed=0):
    weight = np.ones(len(X)) if weight is None else weight
    return fit_forest(X, Y, weight, n_trees=n_trees, min_samples_leaf=5, random_state=seed)


def sklearn_trees(X, Y, weight=None, n_trees=12):
    """Grow the trees of ``fit`` on all rows, with weight 0 for rows out of the bag."""
    rng, weight = np.random.default_rng(0), np.ones(len(X)) if weight is None else weight
    trees, bags = [], []
    for _ in range(n_trees):
        bags.append(np.bincount(rng.integers(len(X), size=len(X)), minlength=len(X)))
        tree = DecisionTreeRegressor(max_features="sqrt", min_samples_leaf=5, random_state=int(rng.integers(2**31)))
        trees.append(tree.fit(X, Y, sample_weight=bags[-1] * weight))
    return trees, np.array(bags)


def reference_predict(forest, X):
    """Mean leaf value of recursive walks; the trees are read from the preorder one node at a time."""
    position = leaf = 0

    def read():
        nonlocal position, leaf
        node, position = position, position + 1
        if forest.feature[node] < 0:
            leaf += 1
            return forest.values[leaf - 1].astype(float)
        return forest.feature[node], forest.threshold[node], read(), read()

    def walk(tree, x):
        while isinstance(tree, tuple):
            feature, threshold, left, right = tree
            tree = left if x[feature] <= threshold else right
        return tree

    trees = []
    while position < len(forest.feature):
        trees.append(read())
    return np.array([np.mean([walk(tree, x) for tree in trees], axis=0) for x in np.asarray(X, np.float32)])


@pytest.mark.parametrize("targets", ["labels", "probabilities", "weighted", "one label"])
@pytest.mark.filterwarnings("error")
def test_equals_sklearn(targets):
    X, Y = problem(q=1 if targets == "one label" else 3)
    rng = np.random.default_rng(1)
    weight = rng.integers(1, 5, len(X)) / 2 if targets == "weighted" else None
    Y = np.clip(0.3 * Y + rng.uniform(0, 0.7, Y.shape), 0, 1) if targets == "probabilities" else Y
    forest, oob = fit(X, Y, weight)
    trees, bags = sklearn_trees(X, Y, weight)
    other = np.vstack([problem(seed=5)[0], np.full((1, 6), np.inf), np.full((1, 6), -np.inf)])
    expected = np.mean([tree.predict(other[:-2]).reshape(Y.shape) for tree in trees], axis=0)
    np.testing.assert_allclose(forest.predict(other[:-2]), expected, atol=1e-6)
    np.testing.assert_allclose(forest.predict(other), reference_predict(forest, other), atol=1e-6)
    for row in range(len(X)):
        votes = [tree.predict(X[[row]]).ravel() for tree, bag in zip(trees, bags) if bag[row] == 0]
        expected = np.mean(votes, axis=0) if votes else np.average(Y, axis=0, weights=weight)
        np.testing.assert_allclose(oob[row], expected, atol=1e-6)


def test_rows_without_weight_are_in_no_sample():
    X, Y = problem()
    kept = np.arange(len(X)) % 5 == 0
    forest, oob = fit(X, Y, kept.astype(float))
    subset, subset_oob = fit(X[kept], Y[kept])
    np.testing.assert_allclose(forest.predict(X), subset.predict(X), atol=1e-6)
    np.testing.assert_allclose(oob[kept], subset_oob, atol=1e-6)
    np.testing.assert_allclose(oob[~kept], subset.predict(X[~kept]), atol=1e-6)


def test_thresholds_agree_for_neighboring_float32_values():
    """Midpoints of adjacent float32 numbers are not float32 numbers; values on both sides must stay on their side."""
    low = np.float32([1.0, 1e-3, -7.7, 3e4])
    step = np.nextafter(low, np.float32(np.inf))
    columns = [np.where(np.arange(60) % 2, high, value) for value, high in zip(low, step)]
    X = np.stack(columns, axis=1)
    X[:, 1:] += np.arange(60, dtype=np.float32)[:, None] // 20
    Y = (X[:, :3] > X[:, :3].mean(0)).astype(float)
    forest, _ = fit(X, Y)
    trees, _ = sklearn_trees(X, Y)
    around = [forest.threshold[forest.feature >= 0], *X.T]
    around = np.concatenate([np.nextafter(np.concatenate(around), np.float32(end)) for end in (-np.inf, 0, np.inf)])
    probes = np.concatenate([X, np.tile(around[:, None], (1, 4))])
    expected = np.mean([tree.predict(probes) for tree in trees], axis=0)
    np.testing.assert_allclose(forest.predict(probes), expected, atol=1e-6)


def test_missing_labels_do_not_change_leaf_values():
    """Leaf values are the means of observed labels; a label with missing values at random keeps its probabilities."""
    X, Y = problem(n=200)
    hidden = np.random.default_rng(3).random(Y.shape) < 0.5
    Z = np.where(hidden, np.nan, Y)
    weight = np.random.default_rng(4).uniform(0.5, 2, len(X))
    forest, oob = fit(X, Z, weight, n_trees=4)
    mean = [np.average(z[~np.isnan(z)], weights=weight[~np.isnan(z)]) for z in Z.T]
    trees, bags = sklearn_trees(X, np.where(hidden, mean, Y), weight, n_trees=4)
    first = 0
    for tree, bag in zip(trees, bags):
        leaves = tree.apply(X)
        for leaf in np.flatnonzero(tree.tree_.children_left < 0):
            rows = np.flatnonzero((leaves == leaf) & (bag > 0))
            for label in range(3):
                known = [row for row in rows if not hidden[row, label]]
                expected = np.average(Y[known, label], weights=(bag * weight)[known]) if known else mean[label]
                assert forest.values[first, label] == pytest.approx(expected, abs=1e-6)
            first += 1
    assert first == len(forest.values)
    assert np.isfinite(oob).all()
    Z[:, 1] = np.nan  # a label that is never observed
    forest, oob = fit(X, Z, n_trees=3)
    assert (forest.predict(X)[:, 1] == 0.5).all()
    assert (oob[:, 1] == 0.5).all()


def test_blocks_sizes_and_depth(monkeypatch):
    X, Y = problem(n=400)
    whole = fit(X, Y, n_trees=5)[0].predict(X)
    monkeypatch.setattr("ccmn.training.forest._BLOCK_ELEMENTS", 5 * 3 * 7)
    np.testing.assert_array_equal(fit(X, Y, n_trees=5)[0].predict(X), whole)
    assert not np.array_equal(fit(X, Y, n_trees=5, seed=4)[0].predict(X), whole)
    monkeypatch.setattr("ccmn.training.forest.MAX_TREE_ROWS", 50)
    monkeypatch.setattr("ccmn.training.forest.MAX_DEPTH", 3)
    forest, _ = fit(X, Y, n_trees=8)
    assert forest.structure[2] <= 3
    assert len(forest.values) <= 8 * 50 / 5
    constant, _ = fit(np.zeros_like(X), Y, n_trees=3)
    assert constant.predict(X[:2]).shape == (2, 3)
    assert constant.predict(X[:0]).shape == (0, 3)


# -- Stored arrays


@pytest.fixture(scope="module")
def fitted():
    X, Y = problem()
    return fit(X, Y, n_trees=4)[0], X


def test_depth_limit_of_stored_trees():
    for depth in (32, 33, 200_000):
        feature = np.append(np.tile(np.int32([0, -1]), depth), np.int32(-1))  # left children are leaves
        arrays = {"feature": feature, "threshold": np.zeros(len(feature), np.float32)}
        arrays["values"] = np.zeros((depth + 1, 1), np.float32)
        if depth == 32:
            assert Forest.from_arrays(arrays, 1, 1).structure[2] == 32
            continue
        with pytest.raises(ValueError, match=r"feature .* depth at most 32"):
            Forest.from_arrays(arrays, 1, 1)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("feature", lambda a: None),
        ("feature", lambda a: a.astype(np.int64)),
        ("feature", lambda a: np.where(a == 1, 6, a).astype(np.int32)),
        ("feature", lambda a: np.where(a < 0, -2, a).astype(np.int32)),
        ("threshold", lambda a: a[:-1]),
        ("threshold", lambda a: np.where(np.arange(len(a)) == 3, np.nan, a).astype(np.float32)),
        ("values", lambda a: a[:-1]),
        ("values", lambda a: a * np.float32(np.nan)),
    ],
)
def test_invalid_arrays(fitted, name, change):
    arrays = fitted[0].arrays()
    arrays[name] = change(arrays[name])
    with pytest.raises(ValueError, match=f"{name} of the forest"):
        Forest.from_arrays({key: array for key, array in arrays.items() if array is not None}, 6, 3)


@given(st.lists(st.integers(-1, 2), max_size=25), st.integers(0, 2**32 - 1))
def test_any_node_list_is_rejected_or_predicts(nodes, seed):
    """Every list of nodes that passes the validation predicts what the recursive walk predicts."""
    feature, rng = np.array(nodes, dtype=np.int32), np.random.default_rng(seed)
    threshold = rng.normal(size=len(nodes)).astype(np.float32)
    values = rng.random((nodes.count(-1), 2)).astype(np.float32)
    arrays = {"feature": feature, "threshold": threshold, "values": values}
    open_subtrees, complete = 0, bool(nodes)
    for node in nodes:
        open_subtrees = (open_subtrees or 1) + (1 if node >= 0 else -1)
    if not complete or open_subtrees:
        with pytest.raises(ValueError, match="complete trees"):
            Forest.from_arrays(arrays, 3, 2)
        return
    forest, X = Forest.from_arrays(arrays, 3, 2), rng.normal(size=(4, 3))
    np.testing.assert_allclose(forest.predict(X), reference_predict(forest, X), atol=1e-6)
