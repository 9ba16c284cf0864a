"""Competing methods: hyperparameters are selected on the validation rows and evaluated on the test rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ccmn.data import MultiLabelData, make_noisy_multilabel
from ccmn.metrics import METRICS
from ccmn.paper.baselines import Baseline, CandidateRidge
from ccmn.paper.protocols import INJECTED, make_repeat
from ccmn.paper.result_store import ResultStore
from ccmn.paper.runner import prepare, run_columns, run_competing_method
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
