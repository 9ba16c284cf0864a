"""Random forest: equality with scikit-learn, missing labels, stored arrays, torch module."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestRegressor
from sklearn.tree import DecisionTreeRegressor

from ccmn.training import forest as forest_module
from ccmn.training.forest import Forest, ForestModule, fit_forest


def problem(n=150, d=6, q=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(np.float32).round(1)  # with ties
    Y = (X @ rng.normal(size=(d, q)) + rng.normal(size=(n, q)) > 0.3).astype(float)
    return X, Y


def sklearn_trees(X, Y, weight=None, n_trees=12):
    """Grow the trees of ``fit_forest(..., random_state=0)`` on all rows, with weight 0 for rows out of the bag."""
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


# -- Fit and prediction


@pytest.mark.parametrize("targets", ["labels", "probabilities", "weighted", "one label"])
@pytest.mark.filterwarnings("error")
def test_equals_sklearn(targets):
    X, Y = problem(q=1 if targets == "one label" else 3)
    rng = np.random.default_rng(1)
    weight = rng.integers(1, 5, len(X)) / 2 if targets == "weighted" else None
    Y = np.clip(0.3 * Y + rng.uniform(0, 0.7, Y.shape), 0, 1) if targets == "probabilities" else Y
    forest, oob = fit_forest(X, Y, n_trees=12, sample_weight=weight, random_state=0)
    trees, bags = sklearn_trees(X, Y, weight)
    other = problem(seed=5)[0]
    expected = np.mean([tree.predict(other).reshape(Y.shape) for tree in trees], axis=0)
    np.testing.assert_allclose(forest.predict(other), expected, atol=1e-6)
    np.testing.assert_allclose(forest.predict(other), reference_predict(forest, other), atol=1e-6)
    assert (forest.n_trees, forest.values.shape[1]) == (12, Y.shape[1])
    assert forest.module.depth == max(tree.get_depth() for tree in trees)
    for row in range(len(X)):
        votes = [tree.predict(X[[row]]).ravel() for tree, bag in zip(trees, bags) if bag[row] == 0]
        expected = np.mean(votes, axis=0) if votes else np.average(Y, axis=0, weights=weight)
        np.testing.assert_allclose(oob[row], expected, atol=1e-6)


def test_rows_in_every_bootstrap_sample_get_the_mean():
    X, Y = problem(n=30)
    _, oob = fit_forest(X, Y, n_trees=1, random_state=0)
    in_bag = sklearn_trees(X, Y, n_trees=1)[1][0] > 0
    np.testing.assert_allclose(oob[in_bag], np.tile(Y.mean(0), (in_bag.sum(), 1)))


def test_equals_a_forest_of_sklearn():
    X, Y = problem()
    model = RandomForestRegressor(12, min_samples_leaf=2, random_state=0).fit(X, Y)
    forest = forest_module._flatten([tree.tree_ for tree in model.estimators_], 6)
    np.testing.assert_allclose(forest.predict(X), model.predict(X), atol=1e-6)


def test_rows_without_weight_are_in_no_sample():
    X, Y = problem()
    kept = np.arange(len(X)) % 5 == 0
    forest, oob = fit_forest(X, Y, n_trees=12, sample_weight=kept.astype(float), random_state=0)
    subset, subset_oob = fit_forest(X[kept], Y[kept], n_trees=12, random_state=0)
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
    forest, _ = fit_forest(X, Y, n_trees=12, random_state=0)
    trees, _ = sklearn_trees(X, Y)
    probes = np.concatenate([X, np.nextafter(X, np.float32(np.inf)), np.nextafter(X, np.float32(-np.inf))])
    thresholds = forest.threshold[forest.feature >= 0]
    around = [thresholds, np.nextafter(thresholds, np.float32(np.inf)), np.nextafter(thresholds, np.float32(-np.inf))]
    probes = np.concatenate([probes, np.tile(np.concatenate(around)[:, None], (1, 4))])
    expected = np.mean([tree.predict(probes) for tree in trees], axis=0)
    np.testing.assert_allclose(forest.predict(probes), expected, atol=1e-6)


def test_thresholds_are_rounded_down():
    X = np.repeat(np.float32([1, 1 + 2**-22]), 20)[:, None]
    between = np.float64(1 + 2**-23 + 2**-24)  # not a float32 number, and its nearest one is above it
    tree = DecisionTreeRegressor().fit(X, np.repeat([0.0, 1.0], 20)).tree_
    tree.threshold[0] = between
    flat = forest_module._flatten([tree], 1)
    assert np.float32(between) > between >= flat.threshold[0] == np.float32(1 + 2**-23)


def test_missing_labels_do_not_change_leaf_values():
    """Leaf values are the means of observed labels; a label with missing values at random keeps its probabilities."""
    X, Y = problem(n=200)
    hidden = np.random.default_rng(3).random(Y.shape) < 0.5
    Z = np.where(hidden, np.nan, Y)
    weight = np.random.default_rng(4).uniform(0.5, 2, len(X))
    forest, oob = fit_forest(X, Z, n_trees=4, sample_weight=weight, random_state=0)
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


def test_label_that_is_never_observed():
    X, Y = problem()
    Y[:, 1] = np.nan
    forest, oob = fit_forest(X, Y, n_trees=3, random_state=0)
    assert (forest.predict(X)[:, 1] == 0.5).all()
    assert (oob[:, 1] == 0.5).all()


def test_blocks_and_seed(monkeypatch):
    X, Y = problem()
    first, first_oob = fit_forest(X, Y, n_trees=5, random_state=3)
    monkeypatch.setattr(forest_module, "_BLOCK_ELEMENTS", 5 * 3 * 7)
    second, second_oob = fit_forest(X, Y, n_trees=5, random_state=3)
    np.testing.assert_array_equal(first.predict(X), second.predict(X))
    np.testing.assert_allclose(first_oob, second_oob, atol=1e-7)
    assert second.predict(X[:0]).shape == (0, 3)
    assert not np.array_equal(first.predict(X), fit_forest(X, Y, n_trees=5, random_state=4)[0].predict(X))


def test_size_and_depth_are_bounded(monkeypatch):
    monkeypatch.setattr(forest_module, "MAX_TREE_ROWS", 50)
    monkeypatch.setattr(forest_module, "MAX_DEPTH", 3)
    X, Y = problem(n=400)
    forest, _ = fit_forest(X, Y, n_trees=8, random_state=0)
    assert forest.module.depth <= 3
    assert len(forest.values) <= 8 * 50 / 5


def test_constant_features_give_single_leaves():
    Y = problem(n=40)[1]
    forest, _ = fit_forest(np.zeros((40, 2)), Y, n_trees=3, random_state=0)
    assert forest.module.depth == 0
    assert forest.predict(np.ones((2, 2))).shape == (2, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.full((20, 2), np.nan)}, "X must be finite"),
        ({"X": np.full((20, 2), 1e300)}, "X must be finite"),
        ({"X": np.zeros((19, 2))}, "same rows"),
        ({"X": np.zeros((20, 5001))}, "5000 features"),
        ({"Y": np.full((20, 1), 1.5)}, "from 0 to 1"),
        ({"Y": np.zeros((20, 101))}, "100 labels"),
        ({"sample_weight": -np.ones(20)}, "sample_weight"),
        ({"sample_weight": np.zeros(20)}, "sample_weight"),
        ({"n_trees": 0}, "n_trees"),
        ({"min_samples_leaf": 0}, "min_samples_leaf"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_invalid_training_data(change, message):
    arguments = {"X": np.zeros((20, 2)), "Y": np.zeros((20, 1)), **change}
    with pytest.raises(ValueError, match=message):
        fit_forest(arguments.pop("X"), arguments.pop("Y"), **arguments)


def test_prediction_requires_the_features_of_the_fit():
    forest = fit_forest(*problem(), n_trees=2, random_state=0)[0]
    with pytest.raises(ValueError, match="shape"):
        forest.predict(np.zeros((2, 5)))


# -- Stored arrays


@pytest.fixture(scope="module")
def fitted():
    X, Y = problem()
    return fit_forest(X, Y, n_trees=4, random_state=0)[0], X


def test_arrays_are_restored(fitted):
    forest, X = fitted
    loaded = Forest.from_arrays(forest.arrays(), 6, 3)
    np.testing.assert_array_equal(loaded.predict(X), forest.predict(X))


def chain(depth):
    """Return the arrays of one tree whose left children are leaves."""
    feature = np.append(np.tile(np.int32([0, -1]), depth), np.int32(-1))
    return {
        "feature": feature.astype(np.int32),
        "threshold": np.zeros(len(feature), np.float32),
        "values": np.zeros((depth + 1, 1), np.float32),
    }


def test_depth_limit_of_stored_trees():
    assert Forest.from_arrays(chain(32), 1, 1).module.depth == 32
    for depth in (33, 200_000):
        with pytest.raises(ValueError, match=r"feature .* depth at most 32"):
            Forest.from_arrays(chain(depth), 1, 1)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("feature", lambda a: None),
        ("feature", lambda a: a.astype(np.int64)),
        ("feature", lambda a: a[:, None]),
        ("feature", lambda a: np.where(a == 1, 6, a).astype(np.int32)),
        ("feature", lambda a: np.where(a < 0, -2, a).astype(np.int32)),
        ("threshold", lambda a: a[:-1]),
        ("threshold", lambda a: np.where(np.arange(len(a)) == 3, np.nan, a).astype(np.float32)),
        ("threshold", lambda a: a.astype(np.float64)),
        ("values", lambda a: a[:-1]),
        ("values", lambda a: a[:, :-1]),
        ("values", lambda a: a + np.float32(1)),
        ("values", lambda a: a * np.float32(np.nan)),
    ],
)
def test_invalid_arrays(fitted, name, change):
    arrays = fitted[0].arrays()
    arrays[name] = change(arrays[name])
    with pytest.raises(ValueError, match=f"{name} of the forest"):
        Forest.from_arrays({key: array for key, array in arrays.items() if array is not None}, 6, 3)


@pytest.mark.parametrize("keep", [slice(0, 0), slice(None, -1), slice(None, 1)])
def test_incomplete_trees(fitted, keep):
    forest = fitted[0]
    feature = forest.feature[keep]
    values = np.zeros(((feature < 0).sum(), 3), np.float32)
    with pytest.raises(ValueError, match="complete trees"):
        Forest.from_arrays({"feature": feature, "threshold": forest.threshold[keep], "values": values}, 6, 3)


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


@pytest.mark.parametrize("seed", range(3))
def test_mutated_arrays_are_rejected_or_predict(fitted, seed):
    forest, X = fitted
    rng = np.random.default_rng(seed)
    rejected = 0
    for _ in range(150):
        arrays = {name: array.copy() for name, array in forest.arrays().items()}
        array = arrays[rng.choice(list(arrays))]
        data = array.view(np.uint8).reshape(-1)
        where = rng.integers(len(data), size=rng.integers(1, 4))
        data[where] = rng.integers(256, size=len(where))
        try:
            predicted = Forest.from_arrays(arrays, 6, 3).predict(X)
        except ValueError as error:
            assert "of the forest" in str(error)  # noqa: PT017
            rejected += 1
        else:
            assert ((predicted >= 0) & (predicted <= 1 + 1e-6)).all()
    assert 0 < rejected < 150


# -- Torch module


def test_module_equals_predict(fitted):
    forest, X = fitted
    module = ForestModule(forest)
    assert not list(module.parameters())
    np.testing.assert_allclose(module(torch.tensor(X, dtype=torch.float64)), forest.predict(X), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("convert", ["export", "compile"])
def test_module_is_exported_and_compiled(fitted, convert):
    forest, X = fitted
    if convert == "export":
        shapes = ({0: torch.export.Dim("n")},)
        module = torch.export.export(forest.module, (torch.tensor(X),), dynamic_shapes=shapes).module()
    else:
        module = torch.compile(forest.module, fullgraph=True, backend="aot_eager")
    for n in (2, 150):
        np.testing.assert_allclose(module(torch.tensor(X[:n])), forest.predict(X[:n]), atol=1e-6)


@pytest.mark.slow
def test_module_is_exported_to_onnx(fitted, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    forest, X = fitted
    path = tmp_path / "forest.onnx"
    shapes = ({0: torch.export.Dim("n")},)
    torch.onnx.export(
        forest.module, (torch.tensor(X),), path, input_names=["X"], opset_version=18, dynamic_shapes=shapes
    )
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for n in (2, 150):
        np.testing.assert_allclose(session.run(None, {"X": X[:n]})[0], forest.predict(X[:n]), atol=1e-6)


def test_walks_of_infinite_features_end_in_leaves(fitted):
    forest = fitted[0]
    X = np.array([[np.inf] * 6, [-np.inf] * 6], dtype=np.float32)
    np.testing.assert_allclose(forest.predict(X), reference_predict(forest, X), atol=1e-6)
