"""Accuracy gain of a review: error of noise rates and model after a number of reviewed rows, on the demo pictures.

    python benchmarks/review_gain.py            six random draws of the noise; 0 to 400 reviewed rows
    python benchmarks/review_gain.py --quick    two draws; 0 and 100 rows

The rows of the queue, random and suspicious ones, are answered with the true labels. Error of the rates: sum of the
mean absolute errors of rho_pos and rho_neg. Error of the model: Hamming loss on the true labels of 4,000 test pictures
in different handwriting. The notes contain the means over the draws. The timing compares the training of the web app,
in closed form, with the default of the estimator, in the last draw.
"""

from __future__ import annotations

import tempfile
import time

import numpy as np
import pandas as pd
import torch
from harness import Result, parser, report

from ccmn import CCMNClassifier, estimate_noise
from ccmn.app.demo_task import DemoTask, make_demo
from ccmn.app.review import ReviewSession, demo_session
from ccmn.app.review.queue import trusted_rows
from ccmn.app.review.retraining import DEFAULT_CLASSIFIER_PARAMS, row_weights, weights_of_fit
from ccmn.estimation import NoiseRates
from ccmn.metrics import hamming_loss


def review_rows(session: ReviewSession, task: DemoTask, rows: int) -> None:
    """Answer items of the queue until this number of rows has answers."""
    item = session.latest()
    while item is not None and session.store.progress()["rows"] < rows:
        session.store.record(item, {j: "yes" if task.Y[item.row, j] else "no" for j in item.asked})
        item = session.queue.after(item.position)


def counted_rates(session: ReviewSession) -> NoiseRates:
    """Estimate the rates from the random sample alone, without the features."""
    trusted = trusted_rows(session.store.sampled_answers(), session.dataset.data.q)
    if not len(trusted.rows):
        return session.initial_rates
    return estimate_noise(Y_noisy=session.dataset.named_labels, trusted=trusted, method="trusted")


def rate_error(rates: NoiseRates, task: DemoTask) -> float:
    error = np.abs(rates.rho_pos - task.noise.rho_pos) + np.abs(rates.rho_neg - task.noise.rho_neg)
    return float(error.mean())


def retrain(session: ReviewSession, task: DemoTask, **settings: object) -> tuple[float, float]:
    """Return the Hamming loss on true test labels and the training time in seconds."""
    trusted, rates = trusted_rows(session.store.answers(), task.Y.shape[1]), session.rates()
    weights = row_weights(len(task.X), rates, trusted, session.store.sampled_rows())
    if len(trusted.rows):
        weights[trusted.rows] /= weights_of_fit(task.Y_noisy, rates, trusted)
    start = time.perf_counter()
    model = CCMNClassifier(noise=rates.noise, random_state=0, **settings)
    model.fit(task.X, task.Y_noisy, weights, trusted=trusted if len(trusted.rows) else None)
    seconds = time.perf_counter() - start
    return float(np.asarray(hamming_loss(task.Y_test, model.predict(task.X_test)))), seconds


def main() -> None:
    options = parser(__doc__.splitlines()[0]).parse_args()
    torch.set_num_threads(1)
    row_numbers = (0, 100) if options.quick else (0, 10, 25, 50, 100, 200, 400)
    lines = []
    for draw in range(2 if options.quick else 6):
        task = make_demo(8000, draw)
        with tempfile.TemporaryDirectory() as folder:
            session = demo_session(folder, 8000, draw)
            for rows in row_numbers:
                review_rows(session, task, rows)
                loss, seconds = retrain(session, task, **DEFAULT_CLASSIFIER_PARAMS)
                errors = {
                    "rates": rate_error(session.rates(), task),
                    "counted alone": rate_error(counted_rates(session), task),
                    "model": loss,
                }
                lines.append({"draw": draw, "rows": rows, **errors})
            baseline_loss, baseline_seconds = retrain(session, task)
            session.close()
    table = pd.DataFrame(lines)
    means = table.groupby("rows")[["rates", "counted alone", "model"]].mean().round(3)
    start = table[table.rows == 0].set_index("draw")
    better = table[table.rows == 100].set_index("draw")[["rates", "model"]] < start[["rates", "model"]]
    notes: dict[str, object] = {f"{rows} reviewed rows, errors": row.to_dict() for rows, row in means.iterrows()}
    notes["draws in which 100 rows helped"] = {**better.sum().to_dict(), "of": len(better)}
    notes["error of the model, last draw"] = {"closed form": round(loss, 3), "default": round(baseline_loss, 3)}
    result = Result("retraining", seconds, "CCMNClassifier()", baseline_seconds, baseline_seconds / seconds)
    report([result], notes, options.json)


if __name__ == "__main__":
    main()
