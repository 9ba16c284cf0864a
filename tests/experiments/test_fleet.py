"""The paper's protocol in stacks: what is chosen, what is measured, and that stacking changes nothing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ccmn.data import MultiLabelData
from ccmn.data.synthetic import make_noisy_multilabel
from ccmn.experiments.fleet import TABLE_METRICS, make_repeats, run_fleet
from ccmn.experiments.methods import METHODS


@pytest.fixture(scope="module")
def data():
    task = make_noisy_multilabel(300, 8, 5, random_state=0)
    return MultiLabelData(X=task.X, Y=task.Y)


def test_ten_methods_named_as_in_the_tables():
    assert len(METHODS) == 10
    assert METHODS["unbiased-ranking-sigmoid"].unbiased
    assert METHODS["plain-hamming-hinge"].make_loss().n_outputs(5) == 5


def test_repeats_are_seeded_and_differ(data):
    a, b = (make_repeats(data, "moderate", 3, seed=4) for _ in range(2))
    assert all(np.array_equal(x.train, y.train) and np.array_equal(x.noisy, y.noisy) for x, y in zip(a, b))
    assert not np.array_equal(a[0].train, a[1].train)
    assert max((r.noise.rho_pos + r.noise.rho_neg).max() for r in a) <= 0.6 + 1e-9
    assert len(a[0].train) + len(a[0].validation) + len(a[0].test) == 300


def test_every_cell_has_its_value(data):
    rows = run_fleet(data, make_repeats(data, "literal", 2), epochs=2)
    assert len(rows) == 10 * 3 * 2
    assert {(r.method, r.metric, r.repeat) for r in rows} == {
        (m, metric, g) for m in METHODS for metric in TABLE_METRICS for g in range(2)
    }
    assert all(0 <= r.value <= 1 for r in rows)


def test_stacks_of_any_size_give_the_same(data):
    repeats = make_repeats(data, "literal", 2)
    values = [
        {(r.method, r.metric, r.repeat): r.value for r in run_fleet(data, repeats, epochs=3, runs_at_once=most)}
        for most in (None, 1)
    ]
    for key, value in values[0].items():
        assert values[1][key] == pytest.approx(value, abs=0.02), key


def test_the_test_value_belongs_to_the_best_validation_epoch(data):
    """More epochs can only improve what is chosen on validation."""
    repeats = make_repeats(data, "literal", 1)
    from ccmn.experiments import fleet

    seen = []
    original = fleet.TrackBest.look

    def spy(self, epoch, network):
        result = original(self, epoch, network)
        seen.append(self.best.clone())
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fleet.TrackBest, "look", spy)
        run_fleet(data, repeats, methods=["unbiased-hamming-hinge"], epochs=5)
    assert all((later >= earlier).all() for earlier, later in itertools.pairwise(seen))


def test_unbiased_beats_plain_on_asymmetric_noise(data):
    rows = run_fleet(
        data, make_repeats(data, "literal", 3), methods=["unbiased-hamming-square", "plain-hamming-square"], epochs=40
    )
    mean = {
        how: np.mean([r.value for r in rows if r.method.startswith(how) and r.metric == "hamming_loss"])
        for how in ("unbiased", "plain")
    }
    assert mean["unbiased"] < mean["plain"]
