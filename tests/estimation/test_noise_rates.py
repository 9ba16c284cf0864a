"""NoiseRates: fields, checks, serialization and display."""

import json
from dataclasses import replace

import numpy as np
import pytest

from ccmn.data import make_noisy_multilabel
from ccmn.estimation import NoiseRates, estimate_noise
from ccmn.noise import ClassConditionalNoise, GroupedNoise, MissingNoise, PartialNoise

Y = np.array([[1, 0], [0, 1], [1, np.nan], [0, 0]])
TWO_SIDED = NoiseRates.known(ClassConditionalNoise([0.2, 0.3], [0.1, 0.2]), Y)


def rates(names=None, flags=()):
    return replace(TWO_SIDED, label_names=names, flags=flags)


def test_known_rates():
    assert TWO_SIDED.prior == pytest.approx([(0.5 - 0.1) / 0.7, (1 / 3 - 0.2) / 0.5])
    assert (TWO_SIDED.n_pos.tolist(), TWO_SIDED.n_neg.tolist()) == ([2, 1], [2, 2])
    assert not TWO_SIDED.rho_pos.flags.writeable
    for noise in (PartialNoise([0.6, 0.0]), MissingNoise([0.95, 0.1])):
        found = NoiseRates.known(noise, Y)
        assert found.noise == noise
        assert 0 <= found.prior.min() <= found.prior.max() <= 1
        assert type(replace(found, noise_type=("partial", "missing")).noise) is ClassConditionalNoise


def test_table_and_text():
    found = rates(("sea", "sky"), [("clipped", "too noisy", 1), ("few_rows", "4 rows")])
    assert found.to_frame().loc["sky", ["rho_pos", "low_pos", "high_pos", "rho_neg"]].tolist() == [0.3, 0.3, 0.3, 0.2]
    assert found.to_frame()["flags"].tolist() == ["", "clipped"]
    lines = ["! label 'sky': too noisy [clipped]", "! all labels: 4 rows [few_rows]"]
    assert repr(found).splitlines()[-2:] == lines
    assert str(rates(None, found.flags).flags[0]) == "label 1: too noisy [clipped]"
    many = replace(
        NoiseRates.known(ClassConditionalNoise(0.2, 0.1, n_labels=40), np.zeros((4, 40))), flags=found.flags * 4
    )
    assert "... and 3 more flags" in repr(many)
    assert len(repr(many).splitlines()) < 25


def test_json_round_trip():
    result = rates(names=("sea", "sky"), flags=[("few_rows", "4 rows")])
    again = NoiseRates.from_dict(json.loads(json.dumps(result.to_dict())))
    assert json.dumps(again.to_dict()) == json.dumps(result.to_dict())
    assert again.noise == result.noise
    assert again.flags == result.flags


def test_from_dict_rejects_invalid_descriptions():
    for wrong in ({}, {"rho_pos": [0.1]}, {**rates().to_dict(), "color": 1}, None):
        with pytest.raises(ValueError, match="not a description of noise rates"):
            NoiseRates.from_dict(wrong)
    with pytest.raises(ValueError, match="rho_pos \\+ rho_neg must be below 1"):
        NoiseRates.from_dict({**rates().to_dict(), "rho_pos": [0.9, 0.9]})
    for name, wrong, shape in (("prior", [0.5], 2), ("ci_pos", [[0, 1, 0.5]] * 2, "2, 2")):
        with pytest.raises(ValueError, match=rf"{name} must have one entry per label, shape \({shape}"):
            NoiseRates.from_dict({**rates().to_dict(), name: wrong})


def test_plot_and_notebook_table():
    found = rates(names=("sea", "<b>"))
    ax = found.plot()
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["sea", "<b>"]
    assert [container.lines[0].get_xdata().tolist() for container in ax.containers] == [
        found.rho_pos.tolist(),
        found.rho_neg.tolist(),
    ]
    assert found.plot(ax) is ax
    assert "&lt;b&gt;" in found._repr_html_()
    assert "if errors depend only on the label" in found._repr_html_()


# -- Groups

N, Q = 2400, 3
DATA = make_noisy_multilabel(N, 4, Q, strength=8.0, random_state=0)
GROUPS = np.array(["site a", "site b", "gold"]).repeat(800)
TRUE = GroupedNoise(
    {
        "site a": ClassConditionalNoise(0.1, 0.3, n_labels=Q),
        "site b": ClassConditionalNoise(0.3, 0.05, n_labels=Q),
        "gold": ClassConditionalNoise(0.0, 0.0, n_labels=Q),
    }
)
NOISY = TRUE.corrupt(DATA.Y, GROUPS, random_state=1)


def test_each_group_has_its_own_rates():
    rates = estimate_noise(DATA.X, NOISY, groups=GROUPS)
    assert list(rates.rates) == ["site a", "site b", "gold"]
    assert rates.rates["site a"].rho_neg.mean() == pytest.approx(0.3, abs=0.08)
    assert rates.rates["site b"].rho_neg.mean() == pytest.approx(0.05, abs=0.05)
    assert rates.rates["site b"].rho_pos.mean() == pytest.approx(0.3, abs=0.1)
    assert np.abs(rates.noise.debias(NOISY, GROUPS).mean(0) - DATA.Y.mean(0)).max() < 0.08


def test_small_groups_share_an_estimate():
    groups = np.where(np.arange(N) % 60 == 0, "small", np.where(np.arange(N) % 60 == 1, "tiny", "large"))
    rates = estimate_noise(DATA.X, NOISY, noise_type="both", groups=groups)
    np.testing.assert_array_equal(rates.rates["small"].rho_neg, rates.rates["tiny"].rho_neg)
    assert [flag.code for flag in rates.rates["small"].flags].count("few_rows") == 1
    assert not rates.rates["large"].labels_with("few_rows")


def test_trusted_rows_are_used_in_their_group():
    rows = np.arange(0, 1600, 10)
    rates = estimate_noise(Y_noisy=NOISY, trusted=(rows, DATA.Y[rows]), groups=GROUPS, prevalence=0.5)
    alone = estimate_noise(Y_noisy=NOISY[:800], trusted=(rows[:80], DATA.Y[rows[:80]]), prevalence=0.5)
    np.testing.assert_array_equal(rates.rates["site a"].rho_neg, alone.rho_neg)
