"""estimate_noise: recovery of rates, flags, warnings and errors."""

import json

import numpy as np
import pandas as pd
import pytest

from ccmn.data import make_noisy_multilabel
from ccmn.estimation import NoiseRates, estimate_noise
from ccmn.noise import ClassConditionalNoise, MissingNoise, PartialNoise

ignore_rate_warnings = pytest.mark.filterwarnings("ignore:Noise rates of label")
RATES = np.array([0.1, 0.3, 0.5])


def task(noise, n=4000, strength=10.0, **kwargs):
    return make_noisy_multilabel(n, 5, noise.n_labels, strength=strength, noise=noise, random_state=0, **kwargs)


def noisy_posterior(data):
    return data.noise.rho_neg + (1 - data.noise.rho_pos - data.noise.rho_neg) * data.posterior


def codes(rates, label=None):
    return {flag.code for flag in rates.flags if label is None or flag.label == label}


@ignore_rate_warnings
@pytest.mark.parametrize(("make", "strength"), [(PartialNoise, 10.0), (MissingNoise, 20.0)])
def test_declared_noise_is_recovered(make, strength):
    data = task(make(RATES), n=2000, strength=strength)
    is_partial = make is PartialNoise
    rates = estimate_noise(data.X, data.Y_noisy, noise_type=("partial",) * 3 if is_partial else "missing")
    sides = [(rates.rho_pos, rates.se_pos, rates.ci_pos), (rates.rho_neg, rates.se_neg, rates.ci_neg)]
    excluded, declared = sides if is_partial else sides[::-1]
    assert not any(part.any() for part in excluded)
    assert np.abs(declared[0] - RATES).max() < 0.12
    assert np.abs(rates.prior - data.Y.mean(0)).max() < 0.12
    assert type(rates.noise) is make


@ignore_rate_warnings
def test_trusted_rows_and_prevalence_reduce_the_standard_error():
    data = task(ClassConditionalNoise([0.3, 0.2], [0.2, 0.1]), n=600, strength=3.0)
    rows = np.arange(200)
    alone = estimate_noise(data.X, data.Y_noisy)
    verified = estimate_noise(data.X, data.Y_noisy, trusted=(rows, data.Y[rows]))
    known = estimate_noise(data.X, data.Y_noisy, prevalence=data.Y.mean(0))
    assert (verified.se_neg < alone.se_neg).all()
    assert np.abs(verified.rho_neg - data.noise.rho_neg).max() < 0.1
    assert np.abs(known.prior - data.Y.mean(0)).max() < 0.05


def test_trusted_rows_alone_count_flips():
    data = task(ClassConditionalNoise([0.3, 0.2], [0.2, 0.1]), n=2000)
    rates = estimate_noise(Y_noisy=data.Y_noisy, trusted=(range(1500), data.Y[:1500]))
    counted = ClassConditionalNoise.from_pairs(data.Y[:1500], data.Y_noisy[:1500])
    assert np.abs(rates.rho_pos - counted.rho_pos).max() < 0.02
    assert np.abs(rates.rho_neg - counted.rho_neg).max() < 0.02


def test_probabilities_alone_do_not_identify_rates():
    data = task(PartialNoise(RATES), n=2000)
    rates = estimate_noise(pred_proba=noisy_posterior(data), Y_noisy=data.Y_noisy, noise_type="partial")
    assert codes(rates) >= {"probabilities_only"}


@ignore_rate_warnings
def test_trusted_rows_contradict_noise_type():
    data = task(ClassConditionalNoise([0.3, 0.3], [0.2, 0.2]), n=600)
    mask = np.arange(600) < 300
    with pytest.warns(UserWarning, match="contradict the declared noise type of labels 0 and 1"):
        rates = estimate_noise(data.X, data.Y_noisy, noise_type="partial", trusted=(mask, data.Y[mask]))
    assert not rates.rho_pos.any()


def test_labels_that_features_do_not_predict_are_flagged():
    rng = np.random.default_rng(0)
    rates = estimate_noise(rng.normal(size=(400, 4)), rng.integers(0, 2, (400, 3)))
    assert rates.labels_with("unpredicted") == [0, 1, 2]
    assert (rates.ci_pos == [0, 1]).all()
    assert (rates.ci_neg == [0, 1]).all()


@pytest.mark.parametrize("copies", [2, 4])
@ignore_rate_warnings
def test_repeated_rows_count_once(copies):
    data = task(PartialNoise([0.2, 0.4]), n=300)
    once = estimate_noise(data.X, data.Y_noisy)
    again = estimate_noise(np.tile(data.X, (copies, 1)), np.tile(data.Y_noisy, (copies, 1)))
    np.testing.assert_allclose(again.ci_neg, once.ci_neg, atol=1e-9)
    assert "repeated_rows" in codes(again)
    assert "repeated_rows" not in codes(once)


@ignore_rate_warnings
def test_trusted_rows_as_array_with_nan():
    data = task(ClassConditionalNoise([0.2, 0.3], [0.1, 0.2]), n=400)
    rows = np.arange(0, 400, 8)
    Y_true = np.full((400, 2), np.nan)
    Y_true[rows] = data.Y[rows]
    expected = estimate_noise(data.X, data.Y_noisy, trusted=(rows, data.Y[rows])).to_dict()
    assert estimate_noise(data.X, data.Y_noisy, trusted=pd.DataFrame(Y_true)).to_dict() == expected
    without = estimate_noise(data.X, data.Y_noisy)
    assert estimate_noise(data.X, data.Y_noisy, trusted=np.full((400, 2), np.nan)).to_dict() == without.to_dict()
    with pytest.raises(ValueError, match="one row per sample \\(400\\); got 399"):
        estimate_noise(data.X, data.Y_noisy, trusted=Y_true[1:])


@ignore_rate_warnings
@pytest.mark.parametrize("noise_type", ["both", "partial", "missing"])
def test_uninformative_labels_have_finite_rates_and_flags(noise_type):
    data = task(PartialNoise([0.2] * 6), n=300)
    Y = data.Y_noisy.astype(float)
    Y[:, 0], Y[:, 1], Y[:, 2] = 0, 1, np.nan
    Y[:, 3] = np.arange(300) < 2
    Y[::2, 4] = np.nan
    rates = estimate_noise(data.X, Y, noise_type=noise_type)
    for name in ("rho_pos", "rho_neg", "se_pos", "se_neg", "prior", "ci_pos", "ci_neg"):
        assert np.isfinite(getattr(rates, name)).all()
    assert (rates.rho_pos + rates.rho_neg <= 0.9 + 1e-12).all()
    assert codes(rates, 0) == codes(rates, 1) == {"unpredicted"}
    assert codes(rates, 2) == {"few_rows"}
    assert NoiseRates.from_dict(json.loads(json.dumps(rates.to_dict()))).noise == rates.noise


@ignore_rate_warnings
@pytest.mark.parametrize("n", [1, 3, 19])
@pytest.mark.parametrize("noise_type", ["both", "partial", "missing"])
def test_tiny_data(n, noise_type):
    data = make_noisy_multilabel(n, 3, 2, random_state=0)
    with pytest.warns(UserWarning, match=f"n_samples={n} is below the minimum of 100"):
        rates = estimate_noise(data.X, data.Y_noisy, noise_type=noise_type)
    assert not np.any([rates.rho_pos, rates.rho_neg, rates.se_pos, rates.se_neg])
    assert (rates.ci_pos[:, 1] == (noise_type != "partial")).all()
    assert codes(rates) == {"few_rows"}


X, Y = np.random.default_rng(0).normal(size=(30, 2)), np.tile([[0, 1, 0], [1, 0, 1]], (15, 1))


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("noisy labels.*Y_noisy=None", {"Y_noisy": None}),
        ("features X, or out-of-fold probabilities", {"X": None}),
        ("not both", {"pred_proba": Y}),
        (r"shape \(30, annotators, 3\).*got shape \(30, 2, 2\)", {"votes": np.ones((30, 2, 2))}),
        ("prevalence must be a number.*each of the 3 labels", {"prevalence": [0.1, 0.2]}),
        ("Y_noisy must .*numbers", {"Y_noisy": np.array([["a", None]], dtype=object)}),
        (r"the same shape \(n, q\); got \(30, 3\)", {"X": None, "pred_proba": np.zeros((30, 2))}),
        ("pred_proba must be probabilities.*got 2: convert scores", {"X": None, "pred_proba": Y * 2}),
        ("trusted must be a pair.*or an array", {"trusted": 5}),
        ("numbers from 0 to 29; got 7 to 30", {"trusted": ([7, 30], Y[:2])}),
    ],
)
def test_invalid_arguments(message, arguments):
    with pytest.raises(ValueError, match=message):
        estimate_noise(**{"X": X, "Y_noisy": Y, **arguments})
