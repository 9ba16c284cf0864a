"""The whole circle on the bundled pictures: somebody looks at a hundred rows, and rates and model get better."""

from __future__ import annotations

import numpy as np

from ccmn.experiments.demo import make_demo
from ccmn.review import Retraining, demo_session


def test_a_hundred_rows_bring_the_rates_nearer_and_improve_the_model(tmp_path):
    session, task = demo_session(tmp_path / "review", n=3000), make_demo(3000)
    item = session.latest()
    for _ in range(100):
        session.store.answer(item, {j: "yes" if task.Y[item.row, j] else "no" for j in item.asked})
        item = session.queue.after(item.position)
    training = Retraining(session)
    training.start()
    training.wait()
    assert training.error == ""

    def error(rates):
        return np.abs(rates.rho_pos - task.noise.rho_pos).mean() + np.abs(rates.rho_neg - task.noise.rho_neg).mean()

    assert error(session.rates()) < error(session.before)
    assert session.trained["test_after"] < session.trained["test_before"]
    session.close()
