"""PARTICLE as a whole: pairs, votes, the two variants, the released program's ways, and what they need."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from baselines import reference
from ccmn.baselines import PARTICLE
from ccmn.baselines.particle import pairs
from ccmn.baselines.particle.map import VotePosterior, candidate_prior, count_votes, neighbour_prior
from ccmn.baselines.particle.pairs import fit_pairs, label_pairs, pair_rows
from ccmn.baselines.particle.vls import vls_margins, weighted_votes


@pytest.fixture(scope="module")
def task():
    X, Y, S = reference.make_task(n=80, d=6, q=4)
    return X[:60], Y[:60], S[:60], X[60:], Y[60:]


@pytest.fixture(scope="module")
def fitted(task):
    X, _, S, *_ = task
    return PARTICLE(svm="libsvm").fit(X, S)


def by_key(clf, X):
    """The library's votes and accuracies under the names of the plain loops."""
    votes = clf.pairs_.votes(X).astype(int)
    keys = [(j, "v" if other < 0 else other) for j, other in label_pairs(clf.pairs_.q)]
    return {key: (votes[:, p], clf.pairs_.accuracy[p]) for p, key in enumerate(keys)}


def test_pairs_as_plain_loops(task, fitted):
    X, _, S, X_new, _ = task
    wanted = reference.pair_votes(X, fitted.credible_, S, X_new)
    found = by_key(fitted, X_new)
    assert found.keys() == wanted.keys()
    for key, (votes, accuracy) in wanted.items():
        assert (found[key][0] == votes).all()
        assert found[key][1] == pytest.approx(accuracy)


def test_vls_as_plain_loops(task, fitted):
    X_new = task[3]
    margins = fitted.decision_function(X_new)
    for i in range(len(X_new)):
        zeta, virtual = reference.vls_votes(by_key(fitted, X_new), 4, i)
        assert margins[i] == pytest.approx(np.array(zeta) - virtual, abs=1e-8)
    assert (fitted.predict(X_new) == (margins >= 0)).all()


def test_map_as_plain_loops(task):
    X, _, S, X_new, _ = task
    clf = PARTICLE("map", svm="libsvm").fit(X, S)
    votes, training = by_key(clf, X_new), by_key(clf, X)
    counted = [reference.map_counts(training, 4, i) for i in range(len(X))]
    for i, row in enumerate(clf.decision_function(X_new)):
        posterior = reference.map_posterior(S, clf.credible_, counted, reference.map_counts(votes, 4, i))
        assert row == pytest.approx(np.array(posterior) - 0.5, abs=1e-8)


def test_votes_sum_to_the_number_of_pairs(task, fitted):
    votes = fitted.pairs_.votes(task[3])
    assert (count_votes(votes, 4).sum(1) == 6).all()
    zeta, virtual = weighted_votes(votes, fitted.pairs_.accuracy, 4)
    assert zeta.sum(1) + virtual[:, 0] == pytest.approx(fitted.pairs_.accuracy.sum())


def test_rows_of_a_pair_are_disjoint():
    C = np.array([[1, 1], [1, 0], [0, 1], [0, 0]])
    Y = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    rows, y = pair_rows(C, Y, 0, 1)
    assert rows.tolist() == [0, 1, 2]
    assert y.tolist() == [1, 1, 0]  # row 0 speaks for both: for the first, then
    rows, y = pair_rows(C, Y, 0, pairs.VIRTUAL)
    assert rows.tolist() == [0, 1, 2]
    assert y.tolist() == [1, 1, 0]


def test_two_solvers_hardly_differ(task, fitted):
    X, _, S, X_new, _ = task
    fast = PARTICLE(svm="liblinear").fit(X, S)
    agreement = fast.pairs_.votes(X_new) == fitted.pairs_.votes(X_new)
    assert agreement.mean() > 0.98


def test_auto_goes_by_the_rows_of_a_pair(task, monkeypatch):
    X, Y, S, *_ = task
    both = {svm: fit_pairs(X, Y, S.astype(float), 1.0, svm=svm) for svm in ("libsvm", "liblinear")}
    rows = np.array([len(pair_rows(Y, S, *pair)[0]) for pair in label_pairs(4)])
    limit = int(np.median(rows))
    monkeypatch.setattr(pairs, "MOST_FOR_LIBSVM", limit)
    found = fit_pairs(X, Y, S.astype(float), 1.0)
    assert (found.weights == np.where(rows <= limit, both["libsvm"].weights, both["liblinear"].weights)).all()


def test_ceil_votes_is_the_released_rule(task, fitted):
    X, _, S, X_new, _ = task
    released = clone(fitted).set_params(ceil_votes=True).fit(X, S)
    zeta, virtual = weighted_votes(released.pairs_.votes(X_new), released.pairs_.accuracy, 4)
    zeta, virtual = np.ceil(zeta - 1e-9), np.ceil(virtual - 1e-9)
    assert (released.predict(X_new) == (zeta > virtual)).all()
    scores = released.decision_function(X_new)
    low, high = zeta.min(1, keepdims=True), zeta.max(1, keepdims=True)
    scaled = (zeta - low) / (high - low)
    assert scores - scores.min(1, keepdims=True) == pytest.approx(scaled)


def test_perfect_classifiers_make_ceil_inactive():
    """Separable classes: accuracies 1, and both rules are calibrated label ranking."""
    rng = np.random.default_rng(0)
    Y = np.eye(3)[rng.integers(0, 3, 60)]
    X = 10 * Y + 0.1 * rng.standard_normal((60, 3))
    clf, released = PARTICLE().fit(X, Y), PARTICLE(ceil_votes=True).fit(X, Y)
    assert (clf.credible_ == Y).all()
    assert (clf.pairs_.accuracy == 1).all()
    assert (clf.predict(X) == Y).all()
    assert (released.predict(X) == Y).all()
    assert np.argsort(clf.decision_function(X), 1, kind="stable").tolist() == (
        np.argsort(released.decision_function(X), 1, kind="stable").tolist()
    )


def test_a_tie_is_not_a_prediction():
    votes = np.array([[True, False], [False, True]])
    # Two labels... one pair and no more: label 0 against 1, and nobody against the virtual label.
    padded = np.hstack([votes[:, :1], np.ones((2, 2), bool)])
    margins = vls_margins(padded, np.array([1.0, 0.0, 0.0]), 2)
    assert (margins >= 0).tolist() == [[True, False], [False, True]]


def test_a_missing_classifier_votes_for_the_first_label_with_no_weight(task):
    X, _, S, *_ = task
    S = S.copy()
    S[:, 2] = 0
    with pytest.warns(UserWarning, match=r"no rows speak for, or none against, label 2 \(of 4\)"):
        clf = PARTICLE(thr=0.5).fit(X, S, credible=S)
    for p, (j, other) in enumerate(label_pairs(4)):
        if 2 in (j, other):
            assert clf.pairs_.accuracy[p] == 0
            assert clf.pairs_.votes(X)[:, p].all()
    assert not clf.predict(X)[:, 2].any()


def test_given_credible_labels_skip_the_first_stage(task, fitted):
    X, _, S, X_new, _ = task
    again = PARTICLE(svm="libsvm").fit(X, S, credible=fitted.credible_)
    assert again.folds_ is None
    assert (again.decision_function(X_new) == fitted.decision_function(X_new)).all()
    with pytest.raises(ValueError, match=r"credible must have the shape of candidates, \(60, 4\)"):
        PARTICLE().fit(X, S, credible=S[:5])


def test_folds_are_contiguous_unless_a_seed_is_given(task):
    X, _, S, *_ = task
    assert (np.diff(PARTICLE().fit(X, S).folds_) >= 0).all()
    one, other = (PARTICLE(random_state=4).fit(X, S) for _ in range(2))
    assert (np.diff(one.folds_) < 0).any()
    assert (one.credible_ == other.credible_).all()


def test_permutations_of_labels_and_rows(task):
    """Of given credible labels: folds are contiguous, so rows that move change folds."""
    X, Y, S, X_new, _ = task
    rng = np.random.default_rng(1)
    rows, labels = rng.permutation(60), rng.permutation(4)
    for variant in ("vls", "map"):
        clf = PARTICLE(variant, svm="libsvm").fit(X, S, credible=Y)
        moved = PARTICLE(variant, svm="libsvm").fit(X[rows], S[np.ix_(rows, labels)], credible=Y[np.ix_(rows, labels)])
        assert moved.decision_function(X_new) == pytest.approx(clf.decision_function(X_new)[:, labels], abs=1e-6)
    eliciting = PARTICLE(random_state=0).fit(X, S)
    relabelled = PARTICLE(random_state=0).fit(X, S[:, labels])
    assert (relabelled.credible_ == eliciting.credible_[:, labels]).all()


def test_sparse_features_give_the_same(task, fitted):
    X, _, S, X_new, _ = task
    for svm in ("libsvm", "liblinear"):
        dense = PARTICLE(svm=svm).fit(X, S)
        sparse = PARTICLE(svm=svm).fit(scipy.sparse.csr_array(X), S)
        assert (sparse.credible_ == dense.credible_).all()
        assert sparse.decision_function(scipy.sparse.csr_array(X_new)) == pytest.approx(
            dense.decision_function(X_new), abs=1e-6
        )


def test_test_truth_is_counted_only_when_asked_for(task):
    X, _, S, X_new, Y_new = task
    leaking = PARTICLE("map", likelihood="test_truth").fit(X, S, test_truth=(X_new, Y_new))
    counts = count_votes(leaking.pairs_.votes(X_new), 4)
    wanted = VotePosterior.fit(candidate_prior(S), counts, Y_new, 1 - Y_new)
    assert leaking.decision_function(X_new) == pytest.approx(wanted.margins(counts))
    with pytest.raises(ValueError, match=r"counts votes on the test rows.*test_truth=\(X_test, Y_test\)"):
        PARTICLE("map", likelihood="test_truth").fit(X, S)
    with pytest.raises(ValueError, match="test_truth is not used with likelihood='training'"):
        PARTICLE("map").fit(X, S, test_truth=(X_new, Y_new))
    with pytest.raises(ValueError, match="the labels of test_truth must have 4 labels"):
        PARTICLE("map", likelihood="test_truth").fit(X, S, test_truth=(X_new, Y_new[:, :2]))


def test_the_released_ratio_rule_lets_one_label_suppress_the_rest():
    posterior = VotePosterior(np.full(3, 0.5), np.full((3, 3), 0.3), np.array([[0.01] * 3, [0.1] * 3, [0.2] * 3]))
    counts = np.array([[0, 1, 2]])
    assert (posterior.margins(counts) >= 0).tolist() == [[True, True, True]]
    assert (posterior.released_margins(counts) >= 0).tolist() == [[True, False, False]]


def test_priors():
    X = np.arange(6.0)[:, None]
    Y = np.array([[1, 0], [1, 0], [1, 1], [0, 0], [0, 0], [0, 0]], dtype=float)
    assert candidate_prior(Y) == pytest.approx([4 / 8, 2 / 8])
    # With its nearest row, the smaller one where both are as near, at least one of two has the label.
    assert neighbour_prior(X, Y, 2) == pytest.approx([5 / 8, 3 / 8])
    assert neighbour_prior(X[:1], Y[:1], 10) == pytest.approx([2 / 3, 1 / 3])
    X, _, S = reference.make_task()
    assert PARTICLE("map", prior="neighbour").fit(X, S).posterior_.prior == pytest.approx(neighbour_prior(X, S, 10))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "both"}, "variant must be 'vls' or 'map'"),
        ({"n_folds": 1}, "n_folds must be at least 2"),
        ({"thr": 1.2}, "thr must be from 0 to 1"),
        ({"alpha": -0.1}, "alpha must be from 0 to 1"),
        ({"C": 0}, "C must be finite and above 0"),
        ({"svm": "rbf"}, "unknown svm 'rbf'"),
        ({"variant": "map", "ceil_votes": True}, "ceil_votes=True does nothing with variant='map'"),
        ({"ratio_rule": True}, "do nothing with variant='vls'"),
        ({"prior": "neighbour"}, "do nothing with variant='vls'"),
    ],
)
def test_parameters_that_mean_nothing(task, options, message):
    with pytest.raises(ValueError, match=message):
        PARTICLE(**options).fit(task[0], task[2])


def test_many_labels_are_announced(monkeypatch):
    monkeypatch.setattr("ccmn.baselines.particle.classifier.MANY_LABELS", 3)
    X, _, S = reference.make_task(n=20)
    with pytest.warns(UserWarning, match="4 labels make 10 pair classifiers"):
        PARTICLE().fit(X, S)


def test_processes_give_the_same(task):
    X, _, S, *_ = task
    one, two = (fit_pairs(X, S, S.astype(float), 1.0, n_jobs=jobs) for jobs in (1, 2))
    assert (one.weights == two.weights).all()
    assert (one.accuracy == two.accuracy).all()


def test_progress_goes_to_a_terminal_only(task, capsys, monkeypatch):
    X, _, S, *_ = task
    PARTICLE().fit(X, S)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    PARTICLE().fit(X, S)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "credible labels, folds: 10/10" in shown.err
    assert "pair classifiers: 10/10" in shown.err
    PARTICLE(verbose=0).fit(X, S)
    assert capsys.readouterr() == ("", "")


def test_unfinished_classifiers_are_counted(task, monkeypatch):
    X, _, S, *_ = task
    monkeypatch.setattr(pairs, "MAX_LIBLINEAR_SWEEPS", 1)
    with pytest.warns(ConvergenceWarning, match=r"\d+ of 10 pair classifiers did not converge.* 1 sweeps"):
        PARTICLE(svm="liblinear").fit(X, S)


def run_script(code, **options):
    """A separate process: a fit that never ends must not block the test suite."""
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def test_fit_ends_on_unscaled_features():
    process = run_script("""
import warnings
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from ccmn.baselines import PARTICLE

rng = np.random.default_rng(0)
X = rng.normal(size=(120, 6))
Y = (X @ rng.normal(size=(6, 4)) > 0).astype(int)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    PARTICLE().fit(X * 1000, Y)
print(*[w.message for w in caught if issubclass(w.category, ConvergenceWarning)], sep="\\n")
""")
    try:
        out, err = process.communicate(timeout=90)
    finally:
        process.kill()
    assert process.returncode == 0, err
    (message,) = out.splitlines()
    assert message.startswith("1 of 10 pair classifiers")
    assert "Scale the features" in message


@pytest.mark.skipif(os.name == "nt", reason="requires POSIX signals")
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_fit_stops_at_sigint(n_jobs):
    process = run_script(f"""
import numpy as np
from ccmn.baselines import PARTICLE
from ccmn.baselines.particle.pairs import fit_pairs

rng = np.random.default_rng(0)
X = 1000 * rng.normal(size=(1800, 30))
Y = rng.integers(0, 2, (1800, 4))
fit_pairs(X[:20] / 1000, Y[:20], Y[:20].astype(float), 1.0, n_jobs={n_jobs})  # starts the worker processes
print("started", flush=True)
PARTICLE(svm="libsvm", n_jobs={n_jobs}).fit(X, Y, credible=Y)
""")
    try:
        assert select.select([process.stdout], [], [], 60)[0]
        assert process.stdout.readline() == "started\n"
        time.sleep(1.0)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        _, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert "KeyboardInterrupt" in err
    assert time.monotonic() - start < 10  # less than one second on an idle machine
