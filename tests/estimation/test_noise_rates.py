"""NoiseRates: fields, checks, serialization and display."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ccmn.estimation import NoiseRates
from ccmn.estimation.noise_rates import (
    UNKNOWN_RATE,
    ZERO_RATE,
    Flag,
    LabelRates,
    Rate,
    collect_rates,
    limit_rates,
    prior_from_rates,
)
from ccmn.noise import ClassConditionalNoise, MissingNoise, PartialNoise

Y = np.array([[1, 0], [0, 1], [1, np.nan], [0, 0]])


def label(rho_pos=0.2, rho_neg=0.1, **changes):
    pos, neg = (Rate(value, 0.05, max(value - 0.1, 0), value + 0.1) for value in (rho_pos, rho_neg))
    return LabelRates(pos, neg, "point", "test")._replace(**changes)


def rates(labels=None, noise_type=("both", "both"), names=None, flags=()):
    return collect_rates(labels or [label(), label(0.3, 0.2)], Y, noise_type, {}, names, flags)


def test_shapes_and_counts():
    result = rates()
    for name in ("rho_pos", "rho_neg", "se_pos", "se_neg", "prior"):
        assert getattr(result, name).shape == (2,)
        assert getattr(result, name).dtype == np.float64
        assert not getattr(result, name).flags.writeable
    assert result.ci_pos.shape == result.ci_neg.shape == (2, 2)
    assert result.n_pos.tolist() == [2, 1]
    assert result.n_neg.tolist() == [2, 2]
    assert result.kind == ("point", "point")
    assert result.n_labels == 2


def test_prior_follows_from_rates():
    np.testing.assert_allclose(rates().prior, [(0.5 - 0.1) / 0.7, (1 / 3 - 0.2) / 0.5])
    assert prior_from_rates(np.array([0.1, 0.9]), np.array([0.2, 0.2]), np.array([0.2, 0.2])).tolist() == [0, 1]


def test_class_of_noise_model_follows_noise_type():
    assert rates().noise == ClassConditionalNoise([0.2, 0.3], [0.1, 0.2])
    partial = [label(pos=ZERO_RATE), label(pos=ZERO_RATE)]
    assert rates(partial, ("partial", "partial")).noise == PartialNoise([0.1, 0.1])
    missing = [label(neg=ZERO_RATE), label(neg=ZERO_RATE)]
    assert rates(missing, ("missing", "missing"), ("sea", "sky")).noise == MissingNoise(
        [0.2, 0.2], label_names=["sea", "sky"]
    )
    assert type(rates([partial[0], missing[0]], ("partial", "missing")).noise) is ClassConditionalNoise


def test_rates_are_limited_with_a_flag():
    clipped = limit_rates(label(0.6, 0.5))
    assert clipped.pos.value + clipped.neg.value == pytest.approx(0.9)
    assert clipped.pos.value / clipped.neg.value == pytest.approx(0.6 / 0.5)
    assert clipped.notes[0][0] == "clipped"
    assert limit_rates(label()) == label()
    result = rates([label(0.7, 0.3), label()])
    assert result.flags == (Flag("clipped", clipped.notes[0][1].replace("1.10", "1.00"), 0),)
    assert (1 - result.noise.rho_pos - result.noise.rho_neg > 0.0999).all()


def test_json_round_trip():
    result = rates(names=("sea", "sky"), flags=[Flag("few_rows", "4 rows")])
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
    with pytest.raises(ValueError, match="kind must have one entry per label \\(2\\); got 1"):
        NoiseRates.from_dict({**rates().to_dict(), "kind": ["point"]})


def test_repr():
    text = repr(rates(names=("sea", "sky"), flags=[Flag("few_rows", "4 rows are few")]))
    assert text.splitlines()[0] == "NoiseRates(2 labels)"
    assert "sky      0.300" in text
    assert "! all labels: 4 rows are few [few_rows]" in text
    many = collect_rates([label()] * 20, np.tile(Y, 10), ("both",) * 20, {}, None, [Flag("a", "b", 3)] * 9)
    assert "... and 10 more" in repr(many)
    assert "! label 3: b [a]" in repr(many)
    assert "... and 4 more flags" in repr(many)


def test_known_rates():
    result = NoiseRates.known(PartialNoise([0.2, 0.1]), Y)
    assert result.kind == ("known", "known")
    assert result.noise_type == ("partial", "partial")
    assert result.noise == PartialNoise([0.2, 0.1])
    assert not result.se_neg.any()
    assert NoiseRates.known(MissingNoise([0.95, 0.1]), Y).noise == MissingNoise([0.95, 0.1])
    assert UNKNOWN_RATE.se == pytest.approx(0.2887, abs=1e-4)


def test_frame():
    frame = rates(names=("sea", "sky"), flags=[Flag("few_rows", "4 rows", 1)]).to_frame()
    assert frame.index.tolist() == ["sea", "sky"]
    assert frame.loc["sky", ["rho_pos", "low_pos", "high_pos", "rho_neg"]].tolist() == pytest.approx(
        [0.3, 0.2, 0.4, 0.2]
    )
    assert frame["flags"].tolist() == ["", "few_rows"]


def test_flags_contain_label_names():
    notes = [Flag("clipped", "too noisy", 1), Flag("few_rows", "4 rows")]
    named = rates(names=("sea", "sky"), flags=notes)
    assert [str(flag) for flag in named.flags[-2:]] == [
        "label 'sky': too noisy [clipped]",
        "all labels: 4 rows [few_rows]",
    ]
    assert "! label 'sky': too noisy" in repr(named)
    assert str(rates(flags=notes).flags[-2]) == "label 1: too noisy [clipped]"
    assert named.to_dict()["flags"][-2] == ["clipped", "too noisy", 1]
    assert NoiseRates.from_dict(named.to_dict()).flags == named.flags
