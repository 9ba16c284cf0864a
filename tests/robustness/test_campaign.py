"""The runner of the campaigns notices every kind of failure, and reports a case that passes."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

from robustness import campaign
from robustness.campaign import Campaign, Failure, run


def passes(rng, folder):
    (folder / "file").write_bytes(b"")
    return "accepted"


def fails(rng, folder):
    raise Failure("misread", "1 instead of 2")


def raises(rng, folder):
    raise KeyError("x")


def hangs(rng, folder):
    time.sleep(60)


def crashes(rng, folder):
    os._exit(3)


def grows(rng, folder):
    return str(len(np.ones(40_000_000)))


@pytest.mark.parametrize(
    ("case", "outcome"),
    [(fails, "misread"), (raises, "traceback"), (hangs, "hang"), (crashes, "crash"), (grows, "memory")],
)
def test_failures_are_counted(case, outcome):
    seconds = 1 if case is hangs else 60
    result = run(Campaign("example", case, 1, seconds=seconds, max_bytes=100_000_000), 1, seed=0)
    assert dict(result.outcomes) == {outcome: 1}
    assert [failure[:2] for failure in result.failures] == [(0, outcome)]


def test_stacks_of_a_case_that_hangs_are_reported():
    (failure,) = run(Campaign("example", hangs, 1, seconds=1), 1, seed=0).failures
    assert "in hangs" in failure[2]
    assert "processor time" in failure[2]


@pytest.mark.slow
def test_time_without_a_processor_does_not_count(monkeypatch):
    def case(rng, folder):
        time.sleep(3)
        return "slow"

    monkeypatch.setattr(campaign, "_queued_seconds", lambda pid: time.monotonic() * 0.9)
    assert dict(run(Campaign("example", case, 1, seconds=1), 1, seed=0).outcomes) == {"slow": 1}
    monkeypatch.setattr(campaign, "MAX_DELAY", 2)
    assert dict(run(Campaign("example", case, 1, seconds=1), 1, seed=0).outcomes) == {"hang": 1}


def test_cases_that_pass_are_counted():
    result = run(Campaign("example", passes, 5, batch=2), 5, seed=0)
    assert dict(result.outcomes) == {"accepted": 5}
    assert result.failures == []


def test_the_remaining_cases_of_a_batch_are_run_after_a_crash():
    def case(rng, folder):
        return crashes(rng, folder) if rng.random() < 0.5 else "accepted"

    result = run(Campaign("example", case, 10, batch=5), 10, seed=0)
    assert result.outcomes.total() == 10
    assert 0 < result.outcomes["crash"] < 10


def test_cases_do_not_depend_on_batches_and_can_be_repeated():
    def case(rng, folder):
        return str(rng.integers(1000))

    together, alone = (run(Campaign("example", case, 6, batch=n), 6, seed=3).outcomes for n in (6, 1))
    assert together == alone
    (repeated,) = run(Campaign("example", case, 6), 1, seed=3, first=4).outcomes
    assert repeated in together


def test_time_limit():
    def case(rng, folder):
        time.sleep(0.05)
        return "slow"

    assert 1 <= run(Campaign("example", case, 1000), 1000, seed=0, seconds=0.3).outcomes.total() < 1000
