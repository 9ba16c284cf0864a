"""Parts of the training risk: values of reference loops, and when negative parts cause a warning."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from ccmn.models.monitor import (
    MAX_RISK_ROWS,
    RiskParts,
    can_be_negative,
    overfitting_warning,
    risk_parts,
)
from hypothesis import given
from hypothesis import strategies as st

from ccmn import CCMNClassifier, ClassConditionalNoise, MissingNoise, PartialNoise, load_model
from ccmn.data import load_digit_scenes, make_noisy_multilabel
from ccmn.losses import SURROGATES, ForwardLoss, HammingLoss, RankingLoss
from ccmn.noise import TransitionNoise

ABOUT_PARTS = "estimated training risk is negative"


def phi(name, t):
    return float(SURROGATES[name].phi(torch.tensor(t, dtype=torch.float64)))


def hamming_terms(f, p, name):
    """Return the terms of R+ and R- of every row and label."""
    n, q = p.shape
    terms = np.zeros((2, n, q))
    for i in range(n):
        for j in range(q):
            terms[0, i, j] = p[i, j] * phi(name, f[i, j])
            terms[1, i, j] = (1 - p[i, j]) * phi(name, -f[i, j])
    return terms


def ranking_terms(outputs, p, name):
    """Return p_j times the mean over the q other outputs, including the dummy (output 0)."""
    n, q = p.shape
    terms = np.zeros((1, n, q))
    for i in range(n):
        for j in range(q):
            others = phi(name, outputs[i, j + 1] - outputs[i, 0])
            for k in range(q):
                if k != j and not np.isnan(p[i, k]):
                    others += (1 - p[i, k]) * phi(name, outputs[i, j + 1] - outputs[i, k + 1])
            terms[0, i, j] = p[i, j] * others / q
    return terms


@pytest.mark.parametrize("surrogate", list(SURROGATES))
@pytest.mark.parametrize(("loss", "twin"), [(HammingLoss, hamming_terms), (RankingLoss, ranking_terms)])
@given(n=st.integers(1, 5), q=st.integers(1, 4), seed=st.integers(0, 999), masked=st.booleans(), weighted=st.booleans())
def test_parts_equal_reference_loops(surrogate, loss, twin, n, q, seed, masked, weighted):
    rng = np.random.default_rng(seed)
    p = rng.choice([-1.5, -0.4, 1.0, 1.7], (n, q))
    if masked:
        p[rng.random((n, q)) < 0.3] = np.nan
    weights = rng.uniform(0.1, 2, n) if weighted else None
    made = loss(surrogate)
    outputs = rng.normal(size=(n, made.n_outputs(q)))
    parts = risk_parts(made, outputs, p, weights)
    terms = twin(outputs, p, surrogate)
    for part, mean, error, size in zip(terms, parts.means, parts.errors, parts.sizes):
        for j in range(q):
            seen = ~np.isnan(p[:, j])
            if not seen.any():
                assert (mean[j], error[j], size[j]) == (0, 0, 0)
                continue
            w = (np.ones(n) if weights is None else weights)[seen]
            w, values = w / w.sum(), part[seen, j]
            assert mean[j] == pytest.approx(w @ values, rel=1e-9, abs=1e-9)
            assert size[j] == pytest.approx(w @ abs(values), rel=1e-9, abs=1e-9)
            assert error[j] == pytest.approx(np.sqrt(((w * (values - w @ values)) ** 2).sum()), rel=1e-9, abs=1e-9)


def test_parts_of_the_hamming_loss_sum_to_the_loss():
    rng = np.random.default_rng(0)
    loss, f = HammingLoss("logistic"), rng.normal(size=(7, 3))
    p = rng.choice([-0.5, 1.5], (7, 3))
    whole = loss.risk(torch.from_numpy(f), torch.from_numpy(p)).mean()
    assert risk_parts(loss, f, p).means.sum() == pytest.approx(float(whole))


@given(n=st.integers(1, 50_000))
def test_rows_are_evenly_spread(n):
    rows = np.arange(0, n, -(-n // MAX_RISK_ROWS))
    assert min(n, MAX_RISK_ROWS) / 2 <= len(rows) <= MAX_RISK_ROWS
    assert rows[0] == 0
    assert n - rows[-1] <= -(-n // MAX_RISK_ROWS)


def test_losses_and_labels_with_negative_parts():
    inside, outside = np.array([[0, 1, np.nan]]), np.array([[0, 1.5, np.nan]])
    for loss in (HammingLoss(), RankingLoss()):
        assert can_be_negative(loss, outside)
        assert not can_be_negative(loss, inside)
    assert not can_be_negative(ForwardLoss(None), outside)
    assert not can_be_negative(RankingLoss(noise=TransitionNoise(np.eye(3))), outside)


def parts_of(means, errors, sizes):
    return RiskParts(*(np.array(v, dtype=float) for v in (means, errors, sizes)))


def test_labels_that_are_reported():
    means = [[-0.04, -0.9, -0.9, -0.9, 0.9], [0.1, 0.1, 0.1, -2.0, 0.1]]
    errors = [[0.001, 0.1, 0.6, 0.1, 0.1], [0.1] * 5]
    sizes = [[0.04, 1.0, 1.0, 9.0, 1.0], [1.0, 1.0, 1.0, 3.0, 1.0]]
    # 0: close to zero; 2: within two standard errors; 3: only R- has few positive terms; 4: positive.
    assert parts_of(means, errors, sizes).negative().tolist() == [3, 1]


@pytest.fixture
def negative():
    return parts_of([[-0.5, 0.2, -3.0]], [[0.01] * 3], [[0.5, 0.2, 3.0]])


def test_warning_names_labels_and_remedies(negative):
    message = overfitting_warning(negative, ("beach", "sea", "sky"), corrected=False, has_epochs=True)
    assert message.startswith("The estimated training risk is negative for 2 of 3 labels (minimum -3): ")
    assert "the noise of 'sky', 'beach'." in message
    for words in ('correction="relu"', 'loss="forward"', "weight_decay", "early stopping", "validation="):
        assert words in message
    assert "correction" not in overfitting_warning(negative, None, corrected=True, has_epochs=True)
    assert "the noise of 2, 0." in overfitting_warning(negative, None, corrected=True, has_epochs=True)
    fine = parts_of([[0.1]], [[0.0]], [[0.1]])
    assert overfitting_warning(fine, None, corrected=False, has_epochs=True) is None


def test_warning_after_a_fit_without_epochs(negative):
    message = overfitting_warning(negative, None, corrected=False, has_epochs=False)
    for words in ("larger weight_decay", "validation=", 'solver="adam" with correction="relu"'):
        assert words in message
    assert "epochs" not in message
    assert "early stopping" not in message


@pytest.mark.parametrize("surrogate", ["square", "logistic"])
def test_warning_of_a_closed_form_fit(surrogate):
    rng = np.random.default_rng(0)
    X, names = rng.normal(size=(150, 140)), ("sea", "sky", "sun")
    noise = ClassConditionalNoise([0.3] * 3, [0.4] * 3, label_names=names)
    Y = noise.corrupt((rng.random((150, 3)) < 0.4).astype(int), random_state=0)
    clf = CCMNClassifier(noise, loss="hamming", surrogate=surrogate, weight_decay=1e-6, random_state=0)
    with pytest.warns(UserWarning, match=ABOUT_PARTS) as caught:
        clf.fit(X, Y, validation=(X, Y))
    message = next(str(w.message) for w in caught if ABOUT_PARTS in str(w.message))
    assert "epoch" not in message
    assert "weight_decay" in message
    assert any(repr(name) in message for name in names)


def test_long_list_of_labels_is_shortened():
    parts = parts_of([[-1.0] * 9], [[0.01] * 9], [[1.0] * 9])
    assert "of 0, 1, 2, 3, 4 and 4 more." in overfitting_warning(parts, None, corrected=False, has_epochs=True)


# With a single rate of .6, some linear fits cause a warning: see docs/training.md.
NOISES = [PartialNoise(0.4, n_labels=10), MissingNoise(0.4, n_labels=10), ClassConditionalNoise(0.1, 0.4, n_labels=10)]
LOSSES = [("hamming", "square"), ("hamming", "logistic"), ("ranking", "sigmoid"), ("ranking", "logistic")]


@pytest.fixture(scope="module")
def digits():
    data = load_digit_scenes(2400)
    return data.X[:1200], data.Y[:1200]


@pytest.fixture(scope="module")
def yeast_like():
    """Return data with the number of features and the label frequencies of yeast, and fewer rows."""
    task = make_noisy_multilabel(1500, 103, 10, prevalence=np.linspace(0.07, 0.75, 10), random_state=0)
    return task.X, task.Y


@pytest.mark.parametrize(("loss", "surrogate"), LOSSES)
@pytest.mark.parametrize("data", ["digits", "yeast_like"])
def test_no_warning_for_early_stopped_linear_fit(request, data, loss, surrogate):
    X, Y = request.getfixturevalue(data)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=f".*{ABOUT_PARTS}")
        for noise in NOISES:
            clf = CCMNClassifier(noise, loss=loss, surrogate=surrogate, epochs=20, random_state=0)
            clf.fit(X, noise.corrupt(Y, random_state=0))
            assert clf.risk_parts_.shape == (2 if loss == "hamming" else 1, 10)


def wide(n_features, n_outputs):
    return torch.nn.Sequential(torch.nn.Linear(n_features, 256), torch.nn.ReLU(), torch.nn.Linear(256, n_outputs))


@pytest.mark.parametrize(("loss", "surrogate"), LOSSES)
def test_warning_for_a_network_that_memorized_the_noise(digits, loss, surrogate):
    X, Y = digits[0][:200], digits[1][:200]
    noise = NOISES[2]
    Z = noise.corrupt(Y, random_state=0)
    clf = CCMNClassifier(noise, loss=loss, surrogate=surrogate, model=wide, epochs=80, lr=5e-3, random_state=0)
    with pytest.warns(UserWarning, match=ABOUT_PARTS):
        clf.fit(X, Z, validation=(X, Z))  # memorized rows select the epoch
    assert clf.risk_parts_.min() < -0.05


def test_no_warning_with_the_remedies(digits):
    X, Y = digits[0][:200], digits[1][:200]
    noise = NOISES[2]
    Z = noise.corrupt(Y, random_state=0)
    same = {"model": wide, "epochs": 80, "lr": 5e-3, "random_state": 0}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=f".*{ABOUT_PARTS}")
        corrected = CCMNClassifier(noise, loss="hamming", surrogate="logistic", correction="abs", **same).fit(
            X, Z, validation=(X, Z)
        )
        forward = CCMNClassifier(noise, loss="forward", **same).fit(X, Z, validation=(X, Z))
    assert corrected.risk_parts_.min() > -0.3
    assert forward.risk_parts_ is None


def test_no_risk_parts_without_correction(digits, tmp_path):
    X, Y = digits[0][:100], digits[1][:100]
    clf = CCMNClassifier(None, loss="hamming", surrogate="square", random_state=0).fit(X, Y)
    assert clf.risk_parts_ is None
    clf.save(tmp_path / "model.ccmn")
    assert load_model(tmp_path / "model.ccmn").risk_parts_ is None
