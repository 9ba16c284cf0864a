from __future__ import annotations

import numpy as np

from ccmn.experiments.demo import WAYS, make_demo, run_demo


def test_unbiased_beats_plain_on_every_metric_and_clean_beats_both():
    rows = [model.row for model in run_demo(make_demo(4000), epochs=15)]
    assert len(rows) == 8
    for four in (rows[:4], rows[4:]):
        clean, plain, unbiased, estimated = four
        assert tuple(row.way for row in four) == WAYS
        assert clean.hamming_loss < unbiased.hamming_loss < plain.hamming_loss - 0.03
        assert clean.ranking_loss < unbiased.ranking_loss < plain.ranking_loss - 0.01
        assert clean.average_precision > unbiased.average_precision > plain.average_precision + 0.01
        assert estimated.hamming_loss < plain.hamming_loss


def test_the_flipped_share_is_what_the_rates_say():
    task = make_demo(2000, seed=1)
    expected = np.where(task.Y == 1, task.noise.rho_pos, task.noise.rho_neg).mean()
    assert abs(task.wrong_labels - expected) < 0.02
    assert task.Y_noisy.shape == (1000, 10)
