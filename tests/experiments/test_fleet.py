"""The paper's protocol in stacks: what is chosen, what is measured, and that stacking changes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from ccmn.data import MultiLabelData
from ccmn.data.synthetic import make_noisy_multilabel
from ccmn.experiments.criteria import TABLE_METRICS, HeldOutLabels
from ccmn.experiments.fleet import Settings, run_fleet
from ccmn.experiments.methods import METHODS, TEN
from ccmn.experiments.protocols import LITERAL, MODERATE, make_repeats


@pytest.fixture(scope="module")
def data():
    task = make_noisy_multilabel(300, 8, 5, random_state=0)
    return MultiLabelData(X=task.X, Y=task.Y)


def flat(outcomes):
    return {
        (o.method, o.repeat, selection, metric): value
        for o in outcomes
        for selection, by_metric in o.values.items()
        for metric, value in by_metric.items()
    }


def test_methods_are_named_as_in_the_tables():
    assert len(TEN) == 10
    assert METHODS["unbiased-ranking-sigmoid"].rates == "known"
    assert METHODS["unbiased-ranking-sigmoid-estimated"].rates == "estimated"
    assert not METHODS["plain-hamming-hinge"].unbiased
    assert METHODS["plain-hamming-hinge"].make_loss().n_outputs(5) == 5


def test_every_cell_has_its_value(data):
    settings = Settings(epochs=2, metrics=(*TABLE_METRICS, "coverage"))
    outcomes = list(run_fleet(data, make_repeats(data, LITERAL, 2), settings=settings))
    found = flat(outcomes)
    assert set(found) == {
        (m, g, s, metric)
        for m in TEN
        for g in range(2)
        for s in ("clean", "noisy")
        for metric in (*TABLE_METRICS, "coverage")
    }
    assert all(0 <= value <= 1 for value in found.values())
    assert all(len(o.curves["hamming_loss"]) == 2 for o in outcomes)


def test_stacks_of_any_size_give_the_same(data):
    repeats, settings = make_repeats(data, LITERAL, 2), Settings(epochs=3)
    together, alone = (flat(run_fleet(data, repeats, settings=settings, runs_at_once=most)) for most in (None, 1))
    for key, value in together.items():
        assert alone[key] == pytest.approx(value, abs=0.02), key


def test_a_repeat_alone_is_the_repeat_among_others(data):
    repeats, settings = make_repeats(data, LITERAL, 3), Settings(epochs=3)
    methods = ["unbiased-hamming-square"]
    together = flat(run_fleet(data, repeats, methods, settings))
    alone = flat(run_fleet(data, repeats[1:2], methods, settings))
    for key, value in alone.items():
        assert together[key] == pytest.approx(value, abs=0.02), key


@pytest.mark.parametrize("method", ["plain-hamming-square", "unbiased-ranking-hinge"])
def test_a_run_that_diverged_is_never_the_best(data, method):
    """Scores that are not numbers put no label above another, which must not pass for a ranking without mistakes."""
    settings = Settings(learning_rates=(1e38, 5e-3), epochs=3)
    found = flat(run_fleet(data, make_repeats(data, MODERATE, 2), [method], settings))
    assert all(0.01 < value < 1 for value in found.values())


def test_what_is_chosen_is_the_best_validation_value_of_all_epochs_and_rates(data, monkeypatch):
    seen = []
    original = HeldOutLabels.measure

    def spy(*arguments):
        seen.append(original(*arguments))
        return seen[-1]

    monkeypatch.setattr(HeldOutLabels, "measure", spy)
    settings = Settings(epochs=6, learning_rates=(0.05, 0.005))
    (outcome,) = run_fleet(data, make_repeats(data, LITERAL, 1), ["unbiased-hamming-hinge"], settings)
    values = torch.stack(seen)[:, :, 0]  # epochs, criteria, learning rates
    signs = {"hamming_loss": -1, "ranking_loss": -1, "average_precision": 1}
    for number, (metric, sign) in enumerate(signs.items()):
        chosen = outcome.chosen["clean"][metric]
        assert sign * chosen["validation"] == pytest.approx(float(values[:, number].max()))
        epoch, rate = int(chosen["epoch"]) - 1, settings.learning_rates.index(chosen["learning_rate"])
        assert values[epoch, number, rate] == values[:, number].max()


def test_a_refit_trains_all_known_rows_to_the_epoch_that_was_chosen(data, monkeypatch):
    [repeat] = make_repeats(data, MODERATE, 1)
    settings = Settings(epochs=6, learning_rates=(0.05, 0.005), selections=("clean",))
    [before], [after] = (
        list(run_fleet(data, [repeat], ["unbiased-hamming-hinge"], replace(settings, refit=r))) for r in (False, True)
    )
    assert (after.chosen, after.curves) == (before.chosen, before.curves)
    # All known rows trained on, the test rows looked at every epoch: what there was to be read off.
    seen, original = [], HeldOutLabels.measure
    monkeypatch.setattr(HeldOutLabels, "measure", lambda *given: seen.append(original(*given)) or seen[-1])
    alone = replace(repeat, train=repeat.known, validation=repeat.test)
    list(run_fleet(data, [alone], ["unbiased-hamming-hinge"], settings))
    for number, (metric, sign) in enumerate({"hamming_loss": -1, "ranking_loss": -1, "average_precision": 1}.items()):
        chosen = after.chosen["clean"][metric]
        epoch, rate = int(chosen["epoch"]) - 1, settings.learning_rates.index(chosen["learning_rate"])
        assert after.values["clean"][metric] == pytest.approx(sign * float(seen[epoch][number, 0, rate]))
        assert after.values["clean"][metric] != before.values["clean"][metric]


def test_estimated_rates_are_those_given(data):
    """With the true rates given as estimated ones, the two methods are the same."""
    repeats = make_repeats(data, LITERAL, 2)
    given = {r.number: r.noise for r in repeats}
    methods = ["unbiased-hamming-square", "unbiased-hamming-square-estimated"]
    found = flat(run_fleet(data, repeats, methods, Settings(epochs=3), estimated=given))
    for (method, *rest), value in found.items():
        if method == methods[0]:
            assert found[(methods[1], *rest)] == pytest.approx(value, abs=0.02)


def test_unbiased_beats_plain_on_asymmetric_noise(data):
    methods = ["unbiased-hamming-square", "plain-hamming-square"]
    found = flat(run_fleet(data, make_repeats(data, LITERAL, 3), methods, Settings(epochs=40)))
    for selection in ("clean", "noisy"):
        unbiased, plain = (np.mean([found[m, g, selection, "hamming_loss"] for g in range(3)]) for m in methods)
        assert unbiased < plain


# --- nothing about the test rows influences a choice


def choices(data, repeats):
    return [o.chosen for o in run_fleet(data, repeats, list(TEN[:6]), Settings(epochs=3, refit=True))]


def assert_no_leak(data, repeats):
    """Other labels on the test rows, other features there, other noisy labels there: the same is chosen."""
    before = choices(data, repeats)
    test = repeats[0].test
    Y, X, noisy = np.array(data.Y), np.array(data.X), np.array(repeats[0].noisy)
    Y[test], X[test], noisy[test] = 1 - Y[test], 5 - 3 * X[test], 1 - noisy[test]
    assert choices(replace(data, Y=Y), repeats) == before
    assert choices(replace(data, X=X), repeats) == before
    assert choices(data, [replace(repeats[0], noisy=noisy)]) == before


def test_test_rows_influence_no_choice(data):
    assert_no_leak(data, make_repeats(data, LITERAL, 1))


@pytest.mark.parametrize("leak", ["selection looks at test rows", "training uses test rows"])
def test_a_planted_leak_is_found(data, leak, monkeypatch):
    repeats = make_repeats(data, LITERAL, 1)
    r = repeats[0]
    if leak == "selection looks at test rows":
        leaky = replace(r, validation=np.concatenate([r.validation, r.test[:10]]))
    else:
        leaky = replace(r, train=np.concatenate([r.train, r.test[:10]]))
    with pytest.raises(AssertionError):
        assert_no_leak(data, [leaky])
