"""Fleets: selection criteria, selected epochs and learning rates, and independence of the grouping."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from ccmn.data import MultiLabelData, make_noisy_multilabel
from ccmn.metrics import METRICS, average_precision, coverage, hamming_loss, ranking_loss
from ccmn.paper import fleet
from ccmn.paper.fleet import BatchedMetrics, FleetSettings, HeldOutSet, criteria, run_fleet
from ccmn.paper.protocols import LITERAL, MODERATE, make_repeat
from ccmn.paper.tables import PAPER_METHODS
from metrics import reference
from metrics.strategies import random_case

ALL_METRICS = ("hamming_loss", "ranking_loss", "average_precision", "coverage")


@pytest.fixture(scope="module")
def data():
    task = make_noisy_multilabel(300, 8, 5, random_state=0)
    return MultiLabelData(X=task.X, Y=task.Y)


def repeats_of(data, protocol, n):
    return [make_repeat(data, protocol, k) for k in range(n)]


SIGNS = {"hamming_loss": -1, "ranking_loss": -1, "average_precision": 1}


@pytest.fixture
def measured(monkeypatch):
    """Criteria of held-out rows after every epoch."""
    found, original = [], HeldOutSet.measure
    monkeypatch.setattr(HeldOutSet, "measure", lambda *given: found.append(original(*given)) or found[-1])
    return found


def selected(outcome, metric, settings):
    """Return the numbers of the selected epoch and learning rate."""
    chosen = outcome.chosen["clean"][metric]
    return int(chosen["epoch"]) - 1, settings.learning_rates.index(chosen["learning_rate"])


def flat(outcomes):
    return {
        (o.method, o.repeat, selection, metric): value
        for o in outcomes
        for selection, by_metric in o.values.items()
        for metric, value in by_metric.items()
    }


def test_every_cell_has_a_value_that_does_not_depend_on_the_group_size(data):
    repeats, settings = repeats_of(data, LITERAL, 2), FleetSettings(epochs=3, metrics=ALL_METRICS)
    together, alone = (flat(run_fleet(data, repeats, settings=settings, max_runs=most)) for most in (None, 1))
    assert set(together) == set(itertools.product(PAPER_METHODS, range(2), ("clean", "noisy"), ALL_METRICS))
    for key, value in together.items():
        assert 0 <= value <= 1
        assert alone[key] == pytest.approx(value, abs=0.02), key


def test_best_validation_value_is_selected(data, measured):
    settings = FleetSettings(epochs=6, learning_rates=(0.05, 0.005))
    (outcome,) = run_fleet(data, repeats_of(data, LITERAL, 1), ["unbiased-hamming-hinge"], settings)
    values = torch.stack(measured)[:, :, 0]  # epochs, criteria, learning rates
    for number, (metric, sign) in enumerate(SIGNS.items()):
        best = values[:, number].max()
        assert sign * outcome.chosen["clean"][metric]["validation"] == pytest.approx(float(best))
        epoch, rate = selected(outcome, metric, settings)
        assert values[epoch, number, rate] == best


def test_refit_uses_all_known_rows_and_the_selected_epoch(data, measured):
    repeat = make_repeat(data, MODERATE, 0)
    settings = FleetSettings(epochs=6, learning_rates=(0.05, 0.005), selections=("clean",))
    [before], [after] = (
        list(run_fleet(data, [repeat], ["unbiased-hamming-hinge"], replace(settings, refit=r))) for r in (False, True)
    )
    assert after.chosen == before.chosen
    # Train on all known rows and evaluate the test rows after every epoch.
    measured.clear()
    alone = replace(repeat, train=repeat.known, validation=repeat.test)
    list(run_fleet(data, [alone], ["unbiased-hamming-hinge"], settings))
    for number, (metric, sign) in enumerate(SIGNS.items()):
        epoch, rate = selected(after, metric, settings)
        assert after.values["clean"][metric] == pytest.approx(sign * float(measured[epoch][number, 0, rate]))
        assert after.values["clean"][metric] != before.values["clean"][metric]


def test_selection_does_not_depend_on_test_rows(data):
    """Other labels, features or noisy labels of the test rows lead to the same selection."""

    def choices(data, repeat):
        settings = FleetSettings(epochs=3, refit=True)
        return [outcome.chosen for outcome in run_fleet(data, [repeat], list(PAPER_METHODS[:6]), settings)]

    repeat = make_repeat(data, LITERAL, 0)
    Y, X, noisy = np.array(data.Y), np.array(data.X), np.array(repeat.noisy)
    for values in (Y, X, noisy):
        values[repeat.test] = 1 - values[repeat.test]
    before = choices(data, repeat)
    assert choices(replace(data, Y=Y), repeat) == before
    assert choices(replace(data, X=X), repeat) == before
    assert choices(data, replace(repeat, noisy=noisy)) == before


# -- Criteria


def single_metric(metric, Y, scores):
    if metric == "coverage":
        return coverage(Y, scores, True)
    return METRICS[metric].function(Y, (scores >= 0).astype(int) if metric == "hamming_loss" else scores)


@hypothesis_settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), q=st.sampled_from([2, 5, 40]))
def test_criteria_equal_metrics_of_single_models(seed, q):
    rng = np.random.default_rng(seed)
    G, K, n = 2, 3, 7
    Y = rng.integers(0, 2, (G, n, q))
    # Few distinct scores give ties.
    scores = rng.integers(-3, 4, (G, K, n, q)) / 2.0
    p = rng.normal(0.5, 1, (G, K, n, q))
    wanted = criteria(ALL_METRICS)
    labels = HeldOutSet(torch.from_numpy(Y).unsqueeze(1), torch.from_numpy(p))
    found = labels.measure(wanted, torch.from_numpy(scores))
    for g in range(G):
        for k in range(K):
            for number, criterion in enumerate(wanted):
                if criterion.selection == "clean":
                    expected = single_metric(criterion.name, Y[g], scores[g, k])
                elif criterion.name == "hamming_loss":
                    expected = np.where(scores[g, k] >= 0, 1 - p[g, k], p[g, k]).mean()
                else:
                    ordered, pairs = np.sum([reference.pair_sums(*row) for row in zip(p[g, k], scores[g, k])], axis=0)
                    expected = 1 - ordered / pairs
                value = criterion.sign * float(found[number, g, k])
                assert value == pytest.approx(float(expected), rel=1e-6, abs=1e-9), criterion


# -- Metrics of stacked models


@pytest.mark.parametrize("q", [1, 14, 32, 33])
@pytest.mark.parametrize("block_size", [1, 1000, 1 << 18])
def test_stack_of_models_agrees_with_single_models(q, block_size, monkeypatch):
    monkeypatch.setattr(fleet, "MAX_SCORES_PER_BLOCK", block_size)
    cases = [random_case(30, q, levels, seed=seed) for seed in range(3) for levels in (None, 3)]
    Y = torch.stack([torch.tensor(Y) for Y, _ in cases[::2]]).unsqueeze(1).to(torch.uint8)  # three groups of two runs
    scores = torch.stack([torch.tensor(s) for _, s in cases]).float().sub(0.5).view(3, 2, 30, q)
    metrics_of = BatchedMetrics(Y)
    for given_scores in (scores, scores + 0.1, scores.transpose(1, 2).contiguous().transpose(1, 2)):
        found = metrics_of(given_scores)
        for group in range(3):
            for run in range(2):
                y, f = Y[group, 0], given_scores[group, run]
                expected = [float(v) for v in (hamming_loss(y, f >= 0), ranking_loss(y, f), average_precision(y, f))]
                assert found[:, group, run].tolist() == pytest.approx(expected, abs=1e-12)
