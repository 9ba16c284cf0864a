"""estimate_noise: rates recovered where they can be, doubts told where they cannot, mistakes named."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

from ccmn import estimation
from ccmn.data import load_dataset, make_noisy_multilabel
from ccmn.estimation import ESTIMATORS, METHODS, NoiseRates, estimate_noise
from ccmn.noise import ClassConditionalNoise, MissingNoise, PartialNoise

bounded = pytest.mark.filterwarnings("ignore:the rates of label")
needs_more = {"trusted", "dawid_skene", "known_prevalence"}
from_scores = [method for method in METHODS if method not in needs_more]
RATES = np.array([0.1, 0.3, 0.5])


def task(noise, n=4000, strength=10.0, **kwargs):
    return make_noisy_multilabel(n, 5, noise.n_labels, strength=strength, noise=noise, random_state=0, **kwargs)


def noisy_posterior(data):
    return data.noise.rho_neg + (1 - data.noise.rho_pos - data.noise.rho_neg) * data.posterior


def codes(rates, label=None):
    return {flag.code for flag in rates.flags if label is None or flag.label == label}


def test_the_index():
    shared = {
        "__init__",
        "auto",
        "diagnosis",
        "estimate",
        "evidence",
        "features",
        "groups",
        "growing",
        "held_out",
        "posterior",
        "rates",
        "scores",
        "sensitivity",
        "surface",
    }
    files = {path.stem for path in Path(estimation.__file__).parent.glob("*.py")}
    assert files - shared == set(ESTIMATORS)
    assert set(METHODS) == {"auto", *ESTIMATORS}


@pytest.mark.parametrize("origin", ["X", "posterior"])
def test_candidate_sets_are_solved(origin):
    data = task(PartialNoise(RATES))
    given = {"X": data.X} if origin == "X" else {"pred_proba": noisy_posterior(data)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rates = estimate_noise(**given, Y_noisy=data.Y_noisy, sides="partial")
    assert not rates.rho_pos.any()
    assert not rates.se_pos.any()
    assert np.abs(rates.rho_neg - RATES).max() < 0.06
    assert np.abs(rates.prior - data.Y.mean(0)).max() < 0.06
    assert isinstance(rates.noise, PartialNoise)
    assert rates.kind == ("point",) * 3


def test_lost_labels_are_found():
    data = task(MissingNoise(RATES), strength=20.0)
    rates = estimate_noise(data.X, data.Y_noisy, sides="missing")
    assert not rates.rho_neg.any()
    assert np.abs(rates.rho_pos - RATES).max() < 0.06
    assert isinstance(rates.noise, MissingNoise)
    assert "assumes_shape" in codes(rates)


@pytest.mark.parametrize("method", ["auto", "anchor", "anchor_max", "anchor_quantile", "best_bin", "tightest"])
def test_what_needs_sure_rows_gives_bounds_with_a_warning(method):
    data = task(ClassConditionalNoise([0.1, 0.3, 0.2], [0.3, 0.1, 0.2]), strength=20.0)
    with pytest.warns(UserWarning, match="upper bounds: there may be less noise than they say.*trusted"):
        rates = estimate_noise(pred_proba=noisy_posterior(data), Y_noisy=data.Y_noisy, method=method)
    assert rates.kind == ("upper bound",) * 3
    assert "upper_bound" in codes(rates)
    assert np.abs(rates.rho_pos - data.noise.rho_pos).mean() < 0.1
    assert np.abs(rates.rho_neg - data.noise.rho_neg).mean() < 0.1


@pytest.mark.parametrize(("method", "bound"), [("auto", 0.03), ("forward", 0.03), ("correlations", 0.15)])
def test_two_sided_noise_without_a_sure_row(method, bound):
    data = task(ClassConditionalNoise([0.1, 0.3, 0.2], [0.3, 0.1, 0.2]), strength=4.0)
    rates = estimate_noise(data.X, data.Y_noisy, method=method)
    assert rates.kind == ("point",) * 3
    assert np.abs(rates.rho_pos - data.noise.rho_pos).mean() < 2 * bound
    assert np.abs(rates.rho_neg - data.noise.rho_neg).mean() < bound


@bounded
def test_a_known_prevalence_is_evidence():
    data = task(ClassConditionalNoise([0.1, 0.3, 0.2], [0.3, 0.1, 0.2]), n=500, strength=2.0)
    wrong = [
        np.abs(estimate_noise(data.X, data.Y_noisy, prevalence=p).prior - data.Y.mean(0)).max()
        for p in (None, data.Y.mean(0))
    ]
    assert wrong[1] < 0.02 < wrong[0]


def test_wide_intervals_warn_with_the_remedy():
    rng = np.random.default_rng(0)
    Y = (rng.random((300, 2)) < 0.5).astype(int)
    with pytest.warns(UserWarning, match="hardly known: their intervals are wider.*trusted"):
        rates = estimate_noise(rng.normal(size=(300, 2)), Y)
    assert rates.labels_with("wide_interval")
    note = next(flag.note for flag in rates.flags if flag.code == "wide_interval")
    assert "trusted rows, taken at random" in note


@bounded
def test_sides_label_by_label():
    data = task(ClassConditionalNoise([0.0, 0.3, 0.2], [0.3, 0.0, 0.2]))
    rates = estimate_noise(data.X, data.Y_noisy, sides=["partial", "missing", "both"])
    assert rates.rho_pos[0] == 0 == rates.rho_neg[1]
    assert rates.rho_neg[0] == pytest.approx(0.3, abs=0.1)
    assert rates.rho_pos[1] == pytest.approx(0.3, abs=0.1)
    assert type(rates.noise) is ClassConditionalNoise


def test_trusted_rows_expose_a_lack_of_anchors():
    rng = np.random.default_rng(0)
    eta = np.where(rng.random((6000, 2)) < 0.5, 0.1, 0.8)
    Y = (rng.random(eta.shape) < eta).astype(int)
    Z = ClassConditionalNoise(0.2, 0.2, n_labels=2).corrupt(Y, random_state=1)
    rows = rng.permutation(6000)[:1000]
    rates = estimate_noise(pred_proba=0.2 + 0.6 * eta, Y_noisy=Z, trusted=(rows, Y[rows]))
    assert np.abs([rates.rho_pos - 0.2, rates.rho_neg - 0.2]).max() < 0.05
    assert rates.kind == ("point", "point")
    assert "no_anchor_suspected" in codes(rates)


@bounded
def test_few_trusted_rows_are_combined_with_the_rest():
    data = task(ClassConditionalNoise([0.2, 0.3], [0.1, 0.2]))
    rows = np.arange(40)
    rates = estimate_noise(data.X, data.Y_noisy, trusted=(rows, data.Y[rows]))
    alone = estimate_noise(Y_noisy=data.Y_noisy, method="trusted", trusted=(rows, data.Y[rows]))
    assert rates.method == ("trusted + profile",) * 2
    assert (rates.se_pos <= alone.se_pos).all()
    assert alone.method == ("trusted",) * 2
    without = estimate_noise(Y_noisy=data.Y_noisy, trusted=(rows, data.Y[rows]))
    np.testing.assert_array_equal(without.rho_pos, alone.rho_pos)


def test_trusted_rows_may_be_a_mask_and_contradict_the_side():
    data = task(ClassConditionalNoise([0.3, 0.3], [0.2, 0.2]), n=1000)
    mask = np.arange(1000) < 400
    with pytest.warns(UserWarning, match="contradict the declared side for labels 0 and 1"):
        rates = estimate_noise(data.X, data.Y_noisy, sides="partial", trusted=(mask, data.Y[mask]))
    assert not rates.rho_pos.any()
    assert np.abs(rates.rho_neg - 0.2).max() < 0.08


@bounded
@pytest.mark.parametrize("sides", ["both", "partial", "missing"])
def test_seeds(sides):
    data = task(ClassConditionalNoise([0.2, 0.3], [0.1, 0.2]), n=150)
    first = estimate_noise(data.X, data.Y_noisy, sides=sides, random_state=3)
    again = estimate_noise(data.X, data.Y_noisy, sides=sides, random_state=3)
    assert json.dumps(first.to_dict()) == json.dumps(again.to_dict())
    other = estimate_noise(data.X, data.Y_noisy, sides=sides, random_state=4)
    assert json.dumps(first.to_dict()) != json.dumps(other.to_dict())


@bounded
def test_any_container_gives_one_answer():
    data = task(PartialNoise([0.2, 0.4]), n=200)
    expected = estimate_noise(data.X, data.Y_noisy, sides="partial").rho_neg
    table = pd.DataFrame(data.Y_noisy, columns=["sea", "sky"])
    for X, Y in (
        (pd.DataFrame(data.X), scipy.sparse.csr_array(data.Y_noisy)),
        (torch.tensor(data.X), torch.tensor(data.Y_noisy)),
        (data.X.tolist(), data.Y_noisy.tolist()),
    ):
        np.testing.assert_allclose(estimate_noise(X, Y, sides="partial").rho_neg, expected, atol=1e-6)
    named = estimate_noise(data.X, table, sides="partial")
    assert named.label_names == named.noise.label_names == ("sea", "sky")
    sparse = estimate_noise(scipy.sparse.csr_matrix(data.X), data.Y_noisy, sides="partial")
    np.testing.assert_allclose(sparse.rho_neg, expected, atol=0.15)


@bounded
@pytest.mark.parametrize("sides", ["both", "partial", "missing"])
@pytest.mark.parametrize("method", from_scores)
def test_hopeless_labels_have_rates_and_flags_but_no_nan(sides, method):
    data = task(PartialNoise([0.2] * 6), n=300)
    Y = data.Y_noisy.astype(float)
    Y[:, 0], Y[:, 1], Y[:, 2] = 0, 1, np.nan
    Y[:, 3] = np.arange(300) < 2
    Y[::2, 4] = np.nan
    rates = estimate_noise(data.X, Y, sides=sides, method=method)
    for name in ("rho_pos", "rho_neg", "se_pos", "se_neg", "prior", "ci_pos", "ci_neg"):
        assert np.isfinite(getattr(rates, name)).all()
    assert (rates.rho_pos + rates.rho_neg <= 0.9 + 1e-12).all()
    for j in range(3):
        # All alike and none counted as wrong is an answer to anchors; leaning on others, it is not the label's own.
        assert {"unidentified", "shrunk"} & codes(rates, j) or method in (
            "tightest",
            *(m for m in METHODS if "anchor" in m),
        )
    if method == "auto":
        assert "shrunk" in codes(rates, 3)
    assert NoiseRates.from_dict(json.loads(json.dumps(rates.to_dict()))).noise == rates.noise


@bounded
@pytest.mark.parametrize("n", [1, 2, 3, 10, 19])
@pytest.mark.parametrize("sides", ["both", "partial", "missing"])
def test_tiny_data(n, sides):
    data = make_noisy_multilabel(n, 3, 2, random_state=0)
    rates = estimate_noise(data.X, data.Y_noisy, sides=sides)
    assert np.isfinite([rates.rho_pos, rates.rho_neg, rates.se_pos, rates.se_neg]).all()
    assert (rates.rho_pos + rates.rho_neg < 1).all()
    assert "few_rows" in codes(rates)


@bounded
def test_labels_that_say_nothing_are_clipped():
    rng = np.random.default_rng(0)
    Y = (rng.random((500, 2)) < 0.5).astype(int)
    rates = estimate_noise(pred_proba=np.full((500, 2), 0.5), Y_noisy=Y)
    assert (rates.rho_pos + rates.rho_neg <= 0.9 + 1e-12).all()
    assert "clipped" in codes(rates, 0)


def test_mistakes_are_named():
    X, Y = np.random.default_rng(0).normal(size=(30, 2)), np.tile([[0, 1, 0], [1, 0, 1]], (15, 1))
    for message, arguments in {
        "needs the noisy labels": {"X": X},
        "needs scores: give the features X, or pred_proba": {"Y_noisy": Y},
        "needs trusted=\\(rows, Y_true\\)": {"X": X, "Y_noisy": Y, "method": "trusted"},
        "not both": {"X": X, "Y_noisy": Y, "pred_proba": Y},
        "needs annotators=": {"X": X, "Y_noisy": Y, "method": "dawid_skene"},
        "annotators must be an array \\(n, annotators, labels\\).*got shape \\(30, 3\\)": {
            "Y_noisy": Y,
            "annotators": Y,
        },
        "annotators must be \\(30, annotators, 3\\).*got \\(30, 2, 2\\)": {
            "Y_noisy": Y,
            "annotators": np.ones((30, 2, 2)),
        },
        "method='profile' fits models of its own": {"Y_noisy": Y, "pred_proba": Y, "method": "profile"},
        "method='forward' fits a model of its own": {"Y_noisy": Y, "pred_proba": Y, "method": "forward"},
        "a prevalence is not enough": {"Y_noisy": Y, "prevalence": 0.5},
        "needs prevalence=": {"X": X, "Y_noisy": Y, "method": "known_prevalence"},
        "prevalence must be a share.*each of the 3 labels": {"X": X, "Y_noisy": Y, "prevalence": [0.1, 0.2]},
        "unknown method 'best-bin'; did you mean 'best_bin'": {"X": X, "Y_noisy": Y, "method": "best-bin"},
        "sides must be 'both' or 'partial' or 'missing'; got 'added'": {"X": X, "Y_noisy": Y, "sides": "added"},
        "one of them for each of the 3 labels": {"X": X, "Y_noisy": Y, "sides": ["both", "partial"]},
        "the same rows; got 29 and 30": {"X": X[1:], "Y_noisy": Y},
        "contains NaN": {"X": np.where(X > 0, np.nan, X), "Y_noisy": Y},
        "must be a matrix of shape \\(n, q\\).*got shape \\(30,\\)": {"X": X, "Y_noisy": Y[:, 0]},
        "Y_noisy must be 0 or 1.*\\(Y \\+ 1\\) / 2": {"X": X, "Y_noisy": 2 * Y - 1},
        "Y_noisy must hold numbers": {"X": X, "Y_noisy": np.array([["a", None]], dtype=object)},
        "one shape \\(n, q\\); got \\(30, 3\\) and \\(30, 2\\)": {"Y_noisy": Y, "pred_proba": np.zeros((30, 2))},
        "pred_proba must hold probabilities.*got 2: scores become": {"Y_noisy": Y, "pred_proba": Y * 2},
        "pred_proba must hold probabilities.*got nan: leave no": {"Y_noisy": Y, "pred_proba": Y * np.nan},
        "trusted must be a pair": {"X": X, "Y_noisy": Y, "trusted": 5},
        "a list of row numbers": {"X": X, "Y_noisy": Y, "trusted": ([0.5], Y[:1])},
        "numbers from 0 to 29; got 7 to 30": {"X": X, "Y_noisy": Y, "trusted": ([7, 30], Y[:2])},
        "must differ": {"X": X, "Y_noisy": Y, "trusted": ([7, 7], Y[:2])},
        "2 rows of 3 labels, as many as rows are named; got shape \\(1, 3\\)": {
            "X": X,
            "Y_noisy": Y,
            "trusted": ([7, 8], Y[:1]),
        },
    }.items():
        with pytest.raises(ValueError, match=message):
            estimate_noise(**arguments)


needs_data = pytest.mark.skipif(
    not os.environ.get("CCMN_DATA"), reason="the real data sets are needed: set CCMN_DATA to their folder"
)


@needs_data
@bounded
@pytest.mark.parametrize(("name", "bound"), [("scene", 0.04), ("yeast", 0.12)])
@pytest.mark.parametrize("rho", [0.1, 0.6])
def test_candidate_sets_of_real_data(name, bound, rho):
    data = load_dataset(name)
    noise = PartialNoise(rho, n_labels=data.q)
    rates = estimate_noise(data.X, noise.corrupt(data.Y, random_state=0), sides="partial")
    assert np.abs(rates.rho_neg - rho).mean() < bound


@needs_data
@bounded
def test_two_sided_noise_of_real_data():
    data = load_dataset("yeast")
    rng = np.random.default_rng(0)
    noise = ClassConditionalNoise(rng.choice([0.1, 0.2, 0.3], data.q), rng.choice([0.1, 0.2, 0.3], data.q))
    noisy, rows = noise.corrupt(data.Y, random_state=rng), rng.permutation(data.n)[:200]
    for trusted, bound in ((None, 0.15), ((rows, data.Y[rows]), 0.08)):
        rates = estimate_noise(data.X, noisy, trusted=trusted)
        kept = data.Y.sum(0) >= 30
        wrong = np.abs(rates.rho_pos - noise.rho_pos) + np.abs(rates.rho_neg - noise.rho_neg)
        assert wrong[kept].mean() < bound
