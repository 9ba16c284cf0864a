from __future__ import annotations

from dataclasses import replace

import numpy as np

from ccmn.estimation import NoiseRates
from ccmn.noise import ClassConditionalNoise, TransitionNoise
from ccmn.report.facts.believed import believed_noise
from ccmn.report.facts.rates import RateFact, rate_facts

NOISE = ClassConditionalNoise([0.1, 0.3], [0.2, 0.0])


def test_a_noise_model_is_known():
    facts = rate_facts(NOISE, ["sea", "sky"])
    assert [(label.name, label.kind) for label in facts.labels] == [("sea", "known"), ("sky", "known")]
    assert facts.labels[1].lost == RateFact(0.3, 0.3, 0.3)
    assert facts.doubts == ()


def test_estimates_keep_intervals_kinds_doubts_and_the_truth():
    rates = replace(
        NoiseRates.known(NOISE, np.eye(2)),
        ci_pos=[[0.0, 0.2], [0.1, 0.5]],
        kind=("point", "upper bound"),
        flags=[("wide_interval", "hardly known", 1), ("few_rows", "very few", None)],
    )
    facts = rate_facts(rates, ["sea", "sky"], ClassConditionalNoise([0.15, 0.25], [0.2, 0.1]))
    assert facts.labels[1].lost == RateFact(0.3, 0.1, 0.5, 0.25)
    assert facts.labels[1].added.true == 0.1
    assert [label.kind for label in facts.labels] == ["point", "upper bound"]
    assert facts.doubts == ("sky: hardly known", "all labels: very few")
    # Of a bound half is believed, as in an audit.
    assert believed_noise(rates).rho_pos.tolist() == [0.1, 0.15]


def test_classes_have_no_rates_per_label():
    assert rate_facts(TransitionNoise([[0.8, 0.2], [0.1, 0.9]]), ["a", "b"]) is None
