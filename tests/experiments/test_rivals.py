"""Rivals in the runner: searched on validation rows, judged on test rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ccmn.baselines import CandidateRidge
from ccmn.data import MultiLabelData
from ccmn.data.synthetic import make_noisy_multilabel
from ccmn.experiments.criteria import TABLE_METRICS
from ccmn.experiments.paper import RIVALS as NAMES
from ccmn.experiments.paper import SANITY
from ccmn.experiments.protocols import INJECTED, make_repeat
from ccmn.experiments.reproduce import prepare, reproduce
from ccmn.experiments.rivals import RIVALS, Rival, run_rival
from ccmn.experiments.store import ResultStore
from ccmn.metrics import METRICS


@pytest.fixture(scope="module")
def data():
    task = make_noisy_multilabel(240, 6, 4, random_state=0)
    return MultiLabelData(X=task.X, Y=task.Y)


def test_every_rival_of_the_table_is_known():
    assert set(RIVALS) == {*NAMES, *SANITY}
    assert all(len(RIVALS[name].grid) == 1 for name in ("PMLNI", "PARVLS", "PARMAP", *SANITY))


def by_hand(rival, data, repeat, metric, setting):
    fitted = rival.make(**setting).fit(data.X[repeat.train], np.asarray(repeat.noisy)[repeat.train])
    scores = {part: fitted.decision_function(data.X[getattr(repeat, part)]) for part in ("validation", "test")}
    truth = {part: np.asarray(data.Y)[getattr(repeat, part)] for part in scores}
    answer = {
        part: METRICS[metric].function(truth[part], s >= 0 if METRICS[metric].needs == "labels" else s)
        for part, s in scores.items()
    }
    return answer["validation"], answer["test"]


def test_the_setting_is_chosen_on_validation_rows(data):
    repeat = make_repeat(data, INJECTED, 1)
    rival = Rival("ridge", CandidateRidge, tuple({"lam": value} for value in (1e-3, 10.0, 1e4)))
    outcome = run_rival(rival, data, repeat, TABLE_METRICS)
    for metric in TABLE_METRICS:
        found = [by_hand(rival, data, repeat, metric, setting) for setting in rival.grid]
        sign = 1 if METRICS[metric].greater_is_better else -1
        best = max(range(3), key=lambda i: sign * found[i][0])
        assert outcome.values["clean"][metric] == pytest.approx(found[best][1])
        assert outcome.chosen["clean"][metric]["validation"] == pytest.approx(found[best][0])
        assert outcome.chosen["clean"][metric]["lam"] == rival.grid[best]["lam"]


def test_a_refit_fits_what_was_chosen_on_all_known_rows(data):
    repeat = make_repeat(data, INJECTED, 1)
    rival = Rival("ridge", CandidateRidge, tuple({"lam": value} for value in (1e-3, 10.0, 1e4)))
    before, after = (run_rival(rival, data, repeat, TABLE_METRICS, refit=refit) for refit in (False, True))
    assert after.chosen == before.chosen
    for metric in TABLE_METRICS:
        setting = {"lam": before.chosen["clean"][metric]["lam"]}
        _, expected = by_hand(rival, data, replace(repeat, train=repeat.known), metric, setting)
        assert after.values["clean"][metric] == pytest.approx(expected)
        assert after.values["clean"][metric] != before.values["clean"][metric]


def test_test_rows_influence_no_choice(data):
    repeat = make_repeat(data, INJECTED, 1)
    rival = Rival("ridge", CandidateRidge, tuple({"lam": value} for value in (1e-3, 10.0, 1e4)))
    Y, X = np.array(data.Y), np.array(data.X)
    Y[repeat.test], X[repeat.test] = 1 - Y[repeat.test], 3 - X[repeat.test]
    before = run_rival(rival, data, repeat, TABLE_METRICS).chosen
    assert run_rival(rival, replace(data, Y=Y), repeat, TABLE_METRICS).chosen == before
    assert run_rival(rival, replace(data, X=X), repeat, TABLE_METRICS).chosen == before


def test_rivals_and_fleets_in_one_table(tmp_path):
    methods = ["unbiased-hamming-square", "unbiased-hamming-square-estimated", "PMLNI", "logistic"]
    with ResultStore(tmp_path / "r.db") as store:
        reproduce(prepare(["table3"], small=True).columns, store, methods=methods)
        results = list(store.results())
    assert [r.error for r in results] == [""] * 8
    assert {r.cell.protocol for r in results} == {"injected"}
    assert all(set(r.outcome["values"]) == {"clean", "noisy"} for r in results)
