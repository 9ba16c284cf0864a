"""Competing methods, selected on validation rows and evaluated on test rows, and the rates of candidate sets."""

from dataclasses import replace

import numpy as np
import pytest

from ccmn.data import MultiLabelData, make_noisy_multilabel
from ccmn.metrics import METRICS
from ccmn.noise import PartialNoise
from ccmn.paper.baselines import Baseline, CandidateRidge
from ccmn.paper.protocols import INJECTED, make_repeat
from ccmn.paper.result_store import ResultStore
from ccmn.paper.runner import (
    best_bin_noise,
    best_bin_rate,
    mixture_proportion,
    prepare,
    run_columns,
    run_competing_method,
)
from ccmn.paper.tables import TABLE_METRICS

METHOD = Baseline("ridge", CandidateRidge, search_grid={"lam": (1e-3, 10.0, 1e4)})


@pytest.fixture(scope="module")
def data():
    task = make_noisy_multilabel(240, 6, 4, random_state=0)
    return MultiLabelData(X=task.X, Y=task.Y)


def expected_values(method, data, repeat, metric, setting):
    fitted = method.make(**setting).fit(data.X[repeat.train], np.asarray(repeat.noisy)[repeat.train])
    scores = {part: fitted.decision_function(data.X[getattr(repeat, part)]) for part in ("validation", "test")}
    truth = {part: np.asarray(data.Y)[getattr(repeat, part)] for part in scores}
    answer = {
        part: METRICS[metric].function(truth[part], s >= 0 if METRICS[metric].needs == "labels" else s)
        for part, s in scores.items()
    }
    return answer["validation"], answer["test"]


def test_selection_on_validation_rows(data):
    repeat = make_repeat(data, INJECTED, 1)
    outcome = run_competing_method(METHOD, data, repeat, TABLE_METRICS)
    for metric in TABLE_METRICS:
        found = [expected_values(METHOD, data, repeat, metric, setting) for setting in METHOD.grid]
        sign = 1 if METRICS[metric].greater_is_better else -1
        best = max(range(3), key=lambda i: sign * found[i][0])
        assert outcome.values["clean"][metric] == pytest.approx(found[best][1])
        assert outcome.chosen["clean"][metric]["validation"] == pytest.approx(found[best][0])
        assert outcome.chosen["clean"][metric]["lam"] == METHOD.grid[best]["lam"]


def test_refit_uses_all_known_rows(data):
    repeat = make_repeat(data, INJECTED, 1)
    before, after = (run_competing_method(METHOD, data, repeat, TABLE_METRICS, refit=refit) for refit in (False, True))
    assert after.chosen == before.chosen
    for metric in TABLE_METRICS:
        setting = {"lam": before.chosen["clean"][metric]["lam"]}
        _, expected = expected_values(METHOD, data, replace(repeat, train=repeat.known), metric, setting)
        assert after.values["clean"][metric] == pytest.approx(expected)
        assert after.values["clean"][metric] != before.values["clean"][metric]


def test_selection_does_not_depend_on_test_rows(data):
    repeat = make_repeat(data, INJECTED, 1)
    Y, X = np.array(data.Y), np.array(data.X)
    Y[repeat.test], X[repeat.test] = 1 - Y[repeat.test], 3 - X[repeat.test]
    before = run_competing_method(METHOD, data, repeat, TABLE_METRICS).chosen
    assert run_competing_method(METHOD, replace(data, Y=Y), repeat, TABLE_METRICS).chosen == before
    assert run_competing_method(METHOD, replace(data, X=X), repeat, TABLE_METRICS).chosen == before


def test_competing_methods_and_fleets_in_one_table(tmp_path):
    methods = ["unbiased-hamming-square", "unbiased-hamming-square-estimated", "PMLNI", "logistic"]
    with ResultStore(tmp_path / "r.db") as store:
        run_columns(prepare(["table3"], small=True).columns, store, methods=methods)
        results = list(store.results())
    assert [r.error for r in results] == [""] * 8
    assert {r.cell.protocol for r in results} == {"injected"}
    assert all(set(r.outcome["values"]) == {"clean", "noisy"} for r in results)


# -- Best-bin estimator: compared with a plain loop and simulated data


def loop_proportion(component, mixture):
    """Return the mixture proportion by a loop over thresholds; high scores look like the component."""
    width = sum(np.sqrt(np.log(4 / 0.1) / (2 * len(sample))) for sample in (component, mixture))
    best = (np.inf, 0.0)
    for c in np.unique(component):
        q_C, q_M = (component >= c).mean(), (mixture >= c).mean()
        if q_C > 1.5 / len(component):
            best = min(best, (q_M / q_C + (1 + 0.01) * width / q_C, q_M / q_C))
    return min(1.0, best[1])


@pytest.mark.parametrize("seed", range(4))
def test_mixture_proportion_equals_loop(seed):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=300).round(seed % 3)  # many ties
    positive = rng.random(300) < 1 / (1 + np.exp(-2 * scores))
    expected = loop_proportion(scores[positive], scores[~positive])
    assert mixture_proportion(scores[positive], scores[~positive]) == pytest.approx(expected, abs=1e-12)


def test_rate_of_separable_classes():
    errors = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        y = (rng.random((2000, 1)) < 0.3).astype(int)
        noisy = PartialNoise([0.4]).corrupt(y, random_state=rng)[:, 0] == 1
        errors.append(best_bin_rate(y[:, 0] * 4.0 + rng.standard_normal(2000), noisy) - 0.4)
    assert np.abs(errors).max() < 0.08


def test_constant_scores_and_single_classes():
    assert best_bin_rate(np.zeros(50), np.arange(50) < 10) <= 0.9
    assert best_bin_rate(np.arange(9.0), np.full(9, True)) == best_bin_rate(np.arange(9.0), np.full(9, False)) == 0


def test_noise_of_candidate_sets():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 4))
    Y = (X[:, :2] > 0.3).astype(int)
    noise = best_bin_noise(X, PartialNoise([0.5, 0.0]).corrupt(Y, random_state=0))
    assert np.abs(noise.rho_neg - [0.5, 0.0]).max() < 0.15
