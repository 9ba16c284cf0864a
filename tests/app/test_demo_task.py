"""Demo on bundled data."""

import numpy as np
import pytest

from app.review.test_retraining import train
from ccmn.app import review
from ccmn.app.demo_task import STRATEGIES, make_demo, run_demo


@pytest.mark.slow
def test_unbiased_outperforms_plain_and_clean_outperforms_both():
    rows = list(run_demo(make_demo(4000), epochs=15))
    assert len(rows) == 8
    for four in (rows[:4], rows[4:]):
        clean, plain, unbiased, estimated = four
        assert tuple(row.strategy for row in four) == STRATEGIES
        assert clean.hamming_loss < unbiased.hamming_loss < plain.hamming_loss - 0.03
        assert clean.ranking_loss < unbiased.ranking_loss < plain.ranking_loss - 0.01
        assert clean.average_precision > unbiased.average_precision > plain.average_precision + 0.01
        assert estimated.hamming_loss < plain.hamming_loss


@pytest.mark.slow
def test_a_hundred_reviewed_rows_improve_rates_and_model(tmp_path):
    session, task = review.demo_session(tmp_path / "review", n=3000), make_demo(3000)
    initial = session.rates(sampled=False)
    for _ in range(100):
        item = session.queue.open("random")
        session.store.record(item, {j: "yes" if task.Y[item.row, j] else "no" for j in item.asked})
    train(session)

    def error(rates):
        return np.abs(rates.rho_pos - task.noise.rho_pos).mean() + np.abs(rates.rho_neg - task.noise.rho_neg).mean()

    assert error(session.rates()) < error(initial)
    comparison = session.trained["comparison"]
    assert comparison["on"] == "test set"
    assert comparison["difference"][2] < 0  # the upper end of the interval
    session.close()
