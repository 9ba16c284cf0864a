"""CSR labels: the same results as with dense labels, in tiles, without a dense matrix of all rows and labels."""

import numpy as np
import pytest
import scipy.sparse

from ccmn import CCMNClassifier, ClassConditionalNoise, metrics
from ccmn.noise import GroupedNoise
from helpers import run_measured

N, D, Q = 300, 6, 9


@pytest.fixture
def task():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)).astype(np.float32)
    Y = (X @ rng.normal(size=(D, Q)) > 1.5).astype(np.float32)
    noise = ClassConditionalNoise(rng.uniform(0, 0.3, Q), rng.uniform(0, 0.2, Q))
    return X, noise.corrupt(Y, random_state=0), Y, noise


@pytest.fixture
def always_sparse(monkeypatch):
    """Keep small CSR label matrices sparse and use tiny tiles."""
    monkeypatch.setattr("ccmn.models.targets.MIN_SPARSE_ENTRIES", 0)
    monkeypatch.setattr("ccmn.models.predictor.MAX_TILE_WEIGHTS", 4 * D)
    monkeypatch.setattr("ccmn.models.label_classifier.MAX_TILE_SCORES", 70)


@pytest.mark.parametrize(
    "settings",
    [
        {"loss": "ranking"},
        {"loss": "hamming", "surrogate": "logistic", "model": "mlp"},
        {"loss": "hamming", "surrogate": "square", "correction": "abs"},
    ],
    ids=lambda s: "-".join(str(v) for v in s.values()),
)
def test_sparse_and_dense_labels_give_the_same_model(task, always_sparse, settings):
    X, Z, _, noise = task
    dense = CCMNClassifier(noise, epochs=3, random_state=0, **settings).fit(X, Z)
    sparse = CCMNClassifier(noise, epochs=3, random_state=0, **settings).fit(X, scipy.sparse.csr_matrix(Z))
    np.testing.assert_allclose(sparse.decision_function(X), dense.decision_function(X), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(sparse.predict_proba(X), dense.predict_proba(X), rtol=1e-4, atol=1e-4)
    predicted = sparse.predict(X)
    assert scipy.sparse.issparse(predicted)
    assert predicted.format == "csr"
    assert np.array_equal(predicted.toarray(), sparse.decision_function(X) >= 0)
    assert np.array_equal(sparse.set_output(transform="pandas").predict(X), predicted.toarray())


def test_trusted_rows_and_validation(task, always_sparse):
    X, Z, Y, noise = task
    rows = np.array([3, 40, 41, 299])
    fits = [
        CCMNClassifier(noise, loss="ranking", epochs=2, random_state=0).fit(
            X[:, :4], wrap(Z), trusted=(rows, wrap(Y[rows])), validation=(X[:50, :4], wrap(Z[:50]))
        )
        for wrap in (np.asarray, scipy.sparse.csr_array)
    ]
    scores = [clf.decision_function(X[:, :4]) for clf in fits]
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-4, atol=1e-5)


def test_groups_and_unverified_labels_require_dense_labels(task, always_sparse):
    X, Z, Y, noise = task
    sparse, groups = scipy.sparse.csr_matrix(Z), ["a"] * N
    with pytest.raises(ValueError, match="groups require dense labels"):
        CCMNClassifier(GroupedNoise({"a": noise})).fit(X, sparse, groups=groups)
    unknown = Y[:2].copy()
    unknown[0, 0] = np.nan
    with pytest.raises(ValueError, match=r"NaN.*dense labels"):
        CCMNClassifier(noise).fit(X, sparse, trusted=([0, 1], scipy.sparse.csr_matrix(unknown)))


@pytest.mark.parametrize("k", [1, 3, Q])
def test_top_labels_equal_a_full_sort(task, always_sparse, k):
    X, Z, _, noise = task
    clf = CCMNClassifier(noise, epochs=1, random_state=0).fit(X, Z)
    labels, scores = clf.top_labels(X, k)
    whole = clf.decision_function(X)
    order = np.argsort(-whole, axis=1, kind="stable")[:, :k]
    assert np.array_equal(labels, order)
    np.testing.assert_allclose(scores, np.take_along_axis(whole, order, 1))
    with pytest.raises(ValueError, match="k must be at most the number of labels"):
        clf.top_labels(X, Q + 1)


@pytest.mark.parametrize("loss", ["ranking", "hamming"])
@pytest.mark.parametrize("weighted", [False, True])
def test_criterion_in_blocks_is_that_of_all_rows(monkeypatch, task, loss, weighted):
    """The validation criterion in blocks of seven rows equals the metrics of all validation rows."""
    X, Z, _, noise = task
    weights = np.random.default_rng(0).uniform(0.5, 2, N) if weighted else None
    monkeypatch.setattr("ccmn.training.selection.MAX_BLOCK_SCORES", 7 * Q)
    few = CCMNClassifier(noise, loss=loss, lr=0.05, epochs=3, random_state=0).fit(X, Z, weights)
    monkeypatch.undo()
    whole = CCMNClassifier(noise, loss=loss, lr=0.05, epochs=3, random_state=0).fit(X, Z, weights)
    name = "hamming_loss" if loss == "hamming" else "ranking_and_hamming_loss"
    np.testing.assert_allclose(few.history_[name], whole.history_[name], rtol=1e-6)
    given = CCMNClassifier(noise, loss=loss, lr=0.05, epochs=3, random_state=0).fit(X, Z, validation=(X, Z))
    scores = given.decision_function(X)
    expected = metrics.hamming_loss(Z, (scores >= 0).astype(int), noise=noise).value
    if loss == "ranking":
        p = noise.debias(Z)
        pairs = p[:, :, None] * (1 - p[:, None, :]) * (1 - np.eye(Q))
        wrong = (scores[:, :, None] < scores[:, None, :]) + 0.5 * (scores[:, :, None] == scores[:, None, :])
        expected += (pairs * wrong).sum() / pairs.sum()
    assert given.selected_["value"] == pytest.approx(expected, rel=1e-4)


MEMORY = """
import numpy as np, scipy.sparse
from ccmn import CCMNClassifier, ClassConditionalNoise
n, d, q, batch = 3000, 8, 20_000, 16
rng = np.random.default_rng(0)
X = rng.normal(size=(n, d)).astype(np.float32)
Y = scipy.sparse.csr_matrix((np.ones(n, np.float32), rng.integers(0, q, n), np.arange(n + 1)), shape=(n, q))
noise = ClassConditionalNoise(0.2, 1e-5, n_labels=q)
settings = {"lr": 5e-3, "epochs": 1, "batch_size": batch, "random_state": 0}
fit = lambda k: CCMNClassifier(noise, loss="hamming", surrogate="logistic", **settings).fit(X[:k], Y[:k])
fit(100).predict(X[:10])  # loads modules
def work():
    clf = fit(n)
    assert scipy.sparse.issparse(clf.predict(X[:100]))
    assert clf.top_labels(X, 5)[0].shape == (n, 5)
print(peak(work))
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_rows_times_labels():
    """3,000 rows x 20,000 labels would be 240 MB as one dense float32 matrix."""
    assert float(run_measured(MEMORY)) < 100
