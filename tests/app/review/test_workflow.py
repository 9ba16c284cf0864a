"""Complete workflow on the demo pictures: 100 reviewed rows improve the noise rates and the model."""

from __future__ import annotations

import numpy as np
import pytest

from app.review.test_retraining import train
from ccmn.app import demo_task, review


@pytest.mark.slow
def test_a_hundred_reviewed_rows_improve_rates_and_model(tmp_path):
    session, task = review.demo_session(tmp_path / "review", n=3000), demo_task.make_demo(3000)
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
