"""estimate_noise: recovery of rates, flags, warnings and errors."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

from ccmn.data import load_dataset, make_noisy_multilabel
from ccmn.estimation import METHODS, NoiseRates, estimate_noise
from ccmn.noise import ClassConditionalNoise, MissingNoise, PartialNoise

ignore_rate_warnings = pytest.mark.filterwarnings("ignore:Noise rates of label")
NEED_OTHER_EVIDENCE = {"trusted", "dawid_skene", "known_prevalence"}
FROM_SCORES = [method for method in METHODS if method not in NEED_OTHER_EVIDENCE]
RATES = np.array([0.1, 0.3, 0.5])


def task(noise, n=4000, strength=10.0, **kwargs):
    return make_noisy_multilabel(n, 5, noise.n_labels, strength=strength, noise=noise, random_state=0, **kwargs)


def noisy_posterior(data):
    return data.noise.rho_neg + (1 - data.noise.rho_pos - data.noise.rho_neg) * data.posterior


def codes(rates, label=None):
    return {flag.code for flag in rates.flags if label is None or flag.label == label}


def test_every_method_is_documented():
    page = (Path(__file__).parents[2] / "docs" / "estimation.md").read_text()
    assert all(f"`{method}`" in page for method in METHODS)


@pytest.mark.parametrize("origin", ["X", "posterior"])
def test_partial_noise_is_recovered(origin):
    data = task(PartialNoise(RATES))
    given = {"X": data.X} if origin == "X" else {"pred_proba": noisy_posterior(data)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rates = estimate_noise(**given, Y_noisy=data.Y_noisy, noise_type="partial")
    assert not rates.rho_pos.any()
    assert not rates.se_pos.any()
    assert np.abs(rates.rho_neg - RATES).max() < 0.06
    assert np.abs(rates.prior - data.Y.mean(0)).max() < 0.06
    assert isinstance(rates.noise, PartialNoise)
    assert rates.kind == ("point",) * 3


def test_missing_noise_is_recovered():
    data = task(MissingNoise(RATES), strength=20.0)
    rates = estimate_noise(data.X, data.Y_noisy, noise_type="missing")
    assert not rates.rho_neg.any()
    assert np.abs(rates.rho_pos - RATES).max() < 0.06
    assert isinstance(rates.noise, MissingNoise)
    assert "assumes_shape" in codes(rates)


@pytest.mark.parametrize("method", ["auto", "best_bin"])
def test_methods_from_scores_warn_of_upper_bounds(method):
    data = task(ClassConditionalNoise([0.1, 0.3, 0.2], [0.3, 0.1, 0.2]), strength=20.0)
    with pytest.warns(UserWarning, match="are upper bounds.*trusted"):
        rates = estimate_noise(pred_proba=noisy_posterior(data), Y_noisy=data.Y_noisy, method=method)
    assert rates.kind == ("upper bound",) * 3
    assert "upper_bound" in codes(rates)
    assert np.abs(rates.rho_pos - data.noise.rho_pos).mean() < 0.1
    assert np.abs(rates.rho_neg - data.noise.rho_neg).mean() < 0.1


def test_both_rates_without_certain_rows():
    data = task(ClassConditionalNoise([0.1, 0.3, 0.2], [0.3, 0.1, 0.2]), strength=4.0)
    rates = estimate_noise(data.X, data.Y_noisy)
    assert rates.kind == ("point",) * 3
    assert np.abs(rates.rho_pos - data.noise.rho_pos).mean() < 0.06
    assert np.abs(rates.rho_neg - data.noise.rho_neg).mean() < 0.03


@ignore_rate_warnings
def test_known_prevalence_improves_the_estimate():
    data = task(ClassConditionalNoise([0.1, 0.3, 0.2], [0.3, 0.1, 0.2]), n=500, strength=2.0)
    errors = [
        np.abs(estimate_noise(data.X, data.Y_noisy, prevalence=p).prior - data.Y.mean(0)).max()
        for p in (None, data.Y.mean(0))
    ]
    assert errors[1] < 0.02 < errors[0]


def test_wide_intervals_warn():
    rng = np.random.default_rng(0)
    Y = (rng.random((300, 2)) < 0.5).astype(int)
    with pytest.warns(UserWarning, match="poorly identified.*trusted"):
        rates = estimate_noise(rng.normal(size=(300, 2)), Y)
    assert rates.labels_with("wide_interval")
    note = next(flag.note for flag in rates.flags if flag.code == "wide_interval")
    assert "trusted rows, drawn at random" in note


@ignore_rate_warnings
def test_noise_type_per_label():
    data = task(ClassConditionalNoise([0.0, 0.3, 0.2], [0.3, 0.0, 0.2]))
    rates = estimate_noise(data.X, data.Y_noisy, noise_type=["partial", "missing", "both"])
    assert rates.rho_pos[0] == 0 == rates.rho_neg[1]
    assert rates.rho_neg[0] == pytest.approx(0.3, abs=0.1)
    assert rates.rho_pos[1] == pytest.approx(0.3, abs=0.1)
    assert type(rates.noise) is ClassConditionalNoise


def test_trusted_rows_reveal_missing_anchor_points():
    rng = np.random.default_rng(0)
    eta = np.where(rng.random((6000, 2)) < 0.5, 0.1, 0.8)
    Y = (rng.random(eta.shape) < eta).astype(int)
    Z = ClassConditionalNoise(0.2, 0.2, n_labels=2).corrupt(Y, random_state=1)
    rows = rng.permutation(6000)[:1000]
    rates = estimate_noise(pred_proba=0.2 + 0.6 * eta, Y_noisy=Z, trusted=(rows, Y[rows]))
    assert np.abs([rates.rho_pos - 0.2, rates.rho_neg - 0.2]).max() < 0.05
    assert rates.kind == ("point", "point")
    assert "no_anchor_suspected" in codes(rates)


@ignore_rate_warnings
def test_few_trusted_rows_are_combined_with_the_likelihood():
    data = task(ClassConditionalNoise([0.2, 0.3], [0.1, 0.2]))
    rows = np.arange(40)
    rates = estimate_noise(data.X, data.Y_noisy, trusted=(rows, data.Y[rows]))
    alone = estimate_noise(Y_noisy=data.Y_noisy, method="trusted", trusted=(rows, data.Y[rows]))
    assert rates.method == ("trusted + profile",) * 2
    assert (rates.se_pos <= alone.se_pos).all()
    assert alone.method == ("trusted",) * 2
    without = estimate_noise(Y_noisy=data.Y_noisy, trusted=(rows, data.Y[rows]))
    np.testing.assert_array_equal(without.rho_pos, alone.rho_pos)


def test_trusted_rows_as_mask_contradict_noise_type():
    data = task(ClassConditionalNoise([0.3, 0.3], [0.2, 0.2]), n=1000)
    mask = np.arange(1000) < 400
    with pytest.warns(UserWarning, match="contradicts the declared noise type of labels 0 and 1"):
        rates = estimate_noise(data.X, data.Y_noisy, noise_type="partial", trusted=(mask, data.Y[mask]))
    assert not rates.rho_pos.any()
    assert np.abs(rates.rho_neg - 0.2).max() < 0.08


@ignore_rate_warnings
def test_trusted_rows_as_array_with_nan():
    data = task(ClassConditionalNoise([0.2, 0.3], [0.1, 0.2]), n=400)
    rows = np.arange(0, 400, 8)
    Y_true = np.full((400, 2), np.nan)
    Y_true[rows] = data.Y[rows]
    expected = estimate_noise(data.X, data.Y_noisy, trusted=(rows, data.Y[rows])).to_dict()
    assert estimate_noise(data.X, data.Y_noisy, trusted=Y_true).to_dict() == expected
    assert estimate_noise(data.X, data.Y_noisy, trusted=pd.DataFrame(Y_true)).to_dict() == expected
    without = estimate_noise(data.X, data.Y_noisy)
    assert estimate_noise(data.X, data.Y_noisy, trusted=np.full((400, 2), np.nan)).to_dict() == without.to_dict()
    with pytest.raises(ValueError, match="one row per sample \\(400\\); got 399"):
        estimate_noise(data.X, data.Y_noisy, trusted=Y_true[1:])


@ignore_rate_warnings
@pytest.mark.parametrize("noise_type", ["both", "partial", "missing"])
def test_random_state(noise_type):
    data = task(ClassConditionalNoise([0.2, 0.3], [0.1, 0.2]), n=150)
    first = estimate_noise(data.X, data.Y_noisy, noise_type=noise_type, random_state=3)
    again = estimate_noise(data.X, data.Y_noisy, noise_type=noise_type, random_state=3)
    assert json.dumps(first.to_dict()) == json.dumps(again.to_dict())
    other = estimate_noise(data.X, data.Y_noisy, noise_type=noise_type, random_state=4)
    assert json.dumps(first.to_dict()) != json.dumps(other.to_dict())


@ignore_rate_warnings
def test_containers_give_the_same_rates():
    data = task(PartialNoise([0.2, 0.4]), n=200)
    expected = estimate_noise(data.X, data.Y_noisy, noise_type="partial").rho_neg
    table = pd.DataFrame(data.Y_noisy, columns=["sea", "sky"])
    for X, Y in (
        (pd.DataFrame(data.X), scipy.sparse.csr_array(data.Y_noisy)),
        (torch.tensor(data.X), torch.tensor(data.Y_noisy)),
        (data.X.tolist(), data.Y_noisy.tolist()),
    ):
        np.testing.assert_allclose(estimate_noise(X, Y, noise_type="partial").rho_neg, expected, atol=1e-6)
    named = estimate_noise(data.X, table, noise_type="partial")
    assert named.label_names == named.noise.label_names == ("sea", "sky")
    sparse = estimate_noise(scipy.sparse.csr_matrix(data.X), data.Y_noisy, noise_type="partial")
    np.testing.assert_allclose(sparse.rho_neg, expected, atol=0.15)


@ignore_rate_warnings
@pytest.mark.parametrize("noise_type", ["both", "partial", "missing"])
@pytest.mark.parametrize("method", FROM_SCORES)
def test_uninformative_labels_have_finite_rates_and_flags(noise_type, method):
    data = task(PartialNoise([0.2] * 6), n=300)
    Y = data.Y_noisy.astype(float)
    Y[:, 0], Y[:, 1], Y[:, 2] = 0, 1, np.nan
    Y[:, 3] = np.arange(300) < 2
    Y[::2, 4] = np.nan
    rates = estimate_noise(data.X, Y, noise_type=noise_type, method=method)
    for name in ("rho_pos", "rho_neg", "se_pos", "se_neg", "prior", "ci_pos", "ci_neg"):
        assert np.isfinite(getattr(rates, name)).all()
    assert (rates.rho_pos + rates.rho_neg <= 0.9 + 1e-12).all()
    for j in range(3):
        # Anchor bounds are defined for constant labels; the likelihood shrinks them to the other labels.
        assert {"unidentified", "shrunk"} & codes(rates, j)
    if method == "auto":
        assert "shrunk" in codes(rates, 3)
    assert NoiseRates.from_dict(json.loads(json.dumps(rates.to_dict()))).noise == rates.noise


@ignore_rate_warnings
@pytest.mark.parametrize("n", [1, 2, 3, 10, 19])
@pytest.mark.parametrize("noise_type", ["both", "partial", "missing"])
def test_tiny_data(n, noise_type):
    data = make_noisy_multilabel(n, 3, 2, random_state=0)
    rates = estimate_noise(data.X, data.Y_noisy, noise_type=noise_type)
    assert np.isfinite([rates.rho_pos, rates.rho_neg, rates.se_pos, rates.se_neg]).all()
    assert (rates.rho_pos + rates.rho_neg < 1).all()
    assert "few_rows" in codes(rates)


@ignore_rate_warnings
def test_labels_without_signal_are_clipped():
    rng = np.random.default_rng(0)
    Y = (rng.random((500, 2)) < 0.5).astype(int)
    rates = estimate_noise(pred_proba=np.full((500, 2), 0.5), Y_noisy=Y)
    assert (rates.rho_pos + rates.rho_neg <= 0.9 + 1e-12).all()
    assert "clipped" in codes(rates, 0)


def test_invalid_arguments_are_rejected():
    X, Y = np.random.default_rng(0).normal(size=(30, 2)), np.tile([[0, 1, 0], [1, 0, 1]], (15, 1))
    for message, arguments in {
        "noisy labels.*Y_noisy=None": {"X": X},
        "features X, or out-of-fold probabilities": {"Y_noisy": Y},
        "requires trusted=\\(rows, Y_true\\)": {"X": X, "Y_noisy": Y, "method": "trusted"},
        "not both": {"X": X, "Y_noisy": Y, "pred_proba": Y},
        "requires annotators": {"X": X, "Y_noisy": Y, "method": "dawid_skene"},
        "annotators must be .*\\(n, annotators, labels\\).*got shape \\(30, 3\\)": {
            "Y_noisy": Y,
            "annotators": Y,
        },
        "annotators must have shape \\(30, annotators, 3\\).*got shape \\(30, 2, 2\\)": {
            "Y_noisy": Y,
            "annotators": np.ones((30, 2, 2)),
        },
        "method='profile' requires the features X": {"Y_noisy": Y, "pred_proba": Y, "method": "profile"},
        "known prevalence is not enough": {"Y_noisy": Y, "prevalence": 0.5},
        "requires prevalence": {"X": X, "Y_noisy": Y, "method": "known_prevalence"},
        "prevalence must be a number.*each of the 3 labels": {"X": X, "Y_noisy": Y, "prevalence": [0.1, 0.2]},
        "unknown method 'best-bin'; did you mean 'best_bin'": {"X": X, "Y_noisy": Y, "method": "best-bin"},
        "noise_type must be 'both' or 'partial' or 'missing'; got 'added'": {
            "X": X,
            "Y_noisy": Y,
            "noise_type": "added",
        },
        "for each of the 3 labels; got 2": {"X": X, "Y_noisy": Y, "noise_type": ["both", "partial"]},
        "same number of rows; got 29 and 30": {"X": X[1:], "Y_noisy": Y},
        "contains NaN": {"X": np.where(X > 0, np.nan, X), "Y_noisy": Y},
        "matrix of shape \\(n, q\\).*got shape \\(30,\\)": {"X": X, "Y_noisy": Y[:, 0]},
        "Y_noisy must be 0 or 1.*\\(Y \\+ 1\\) / 2": {"X": X, "Y_noisy": 2 * Y - 1},
        "Y_noisy must .*numbers": {"X": X, "Y_noisy": np.array([["a", None]], dtype=object)},
        "the same shape \\(n, q\\); got \\(30, 3\\) and \\(30, 2\\)": {"Y_noisy": Y, "pred_proba": np.zeros((30, 2))},
        "pred_proba must be probabilities.*got 2: convert scores": {"Y_noisy": Y, "pred_proba": Y * 2},
        "pred_proba must be probabilities.*got nan: every": {"Y_noisy": Y, "pred_proba": Y * np.nan},
        "trusted must be a pair.*or an array": {"X": X, "Y_noisy": Y, "trusted": 5},
        "a list of row numbers": {"X": X, "Y_noisy": Y, "trusted": ([0.5], Y[:1])},
        "numbers from 0 to 29; got 7 to 30": {"X": X, "Y_noisy": Y, "trusted": ([7, 30], Y[:2])},
        "must be unique": {"X": X, "Y_noisy": Y, "trusted": ([7, 7], Y[:2])},
        "shape \\(2, 3\\); got shape \\(1, 3\\)": {
            "X": X,
            "Y_noisy": Y,
            "trusted": ([7, 8], Y[:1]),
        },
    }.items():
        with pytest.raises(ValueError, match=message):
            estimate_noise(**arguments)


needs_data = pytest.mark.usefixtures("real_data")


@needs_data
@ignore_rate_warnings
@pytest.mark.parametrize(("name", "bound"), [("scene", 0.04), ("yeast", 0.12)])
@pytest.mark.parametrize("rho", [0.1, 0.6])
def test_partial_noise_of_real_data(name, bound, rho):
    data = load_dataset(name)
    noise = PartialNoise(rho, n_labels=data.q)
    rates = estimate_noise(data.X, noise.corrupt(data.Y, random_state=0), noise_type="partial")
    assert np.abs(rates.rho_neg - rho).mean() < bound


@pytest.mark.slow
@needs_data
@ignore_rate_warnings
def test_noise_of_both_types_of_real_data():
    data = load_dataset("yeast")
    rng = np.random.default_rng(0)
    noise = ClassConditionalNoise(rng.choice([0.1, 0.2, 0.3], data.q), rng.choice([0.1, 0.2, 0.3], data.q))
    noisy, rows = noise.corrupt(data.Y, random_state=rng), rng.permutation(data.n)[:200]
    for trusted, bound in ((None, 0.15), ((rows, data.Y[rows]), 0.08)):
        rates = estimate_noise(data.X, noisy, trusted=trusted)
        kept = data.Y.sum(0) >= 30
        errors = np.abs(rates.rho_pos - noise.rho_pos) + np.abs(rates.rho_neg - noise.rho_neg)
        assert errors[kept].mean() < bound


TASK = make_noisy_multilabel(
    300, 4, 3, strength=6, noise=ClassConditionalNoise([0.2, 0.1, 0.3], [0.1, 0.3, 0.1]), random_state=0
)


@ignore_rate_warnings
def test_no_noise_is_estimated_where_there_is_none():
    clean = make_noisy_multilabel(1200, 6, 4, strength=8, random_state=0)
    rates = estimate_noise(clean.X, clean.Y)
    assert max(rates.rho_pos.mean(), rates.rho_neg.mean()) < 0.02
    assert (rates.ci_pos[:, 0] == 0).all()
    assert (rates.ci_neg[:, 0] == 0).all()


@ignore_rate_warnings
def test_progress_is_reported_while_models_are_fitted():
    task = make_noisy_multilabel(200, 4, 2, random_state=0)
    steps = []
    rates = estimate_noise(task.X, task.Y_noisy, on_progress=lambda done, total: steps.append((done, total)))
    assert steps == [(k, 7) for k in range(1, 8)]
    np.testing.assert_array_equal(rates.rho_pos, estimate_noise(task.X, task.Y_noisy).rho_pos)
