"""Demo on bundled data."""

from __future__ import annotations

import numpy as np
import pytest

from ccmn.app.demo_task import STRATEGIES, make_demo, run_demo


@pytest.mark.slow
def test_unbiased_outperforms_plain_and_clean_outperforms_both():
    rows = [model.row for model in run_demo(make_demo(4000), epochs=15)]
    assert len(rows) == 8
    for four in (rows[:4], rows[4:]):
        clean, plain, unbiased, estimated = four
        assert tuple(row.strategy for row in four) == STRATEGIES
        assert clean.hamming_loss < unbiased.hamming_loss < plain.hamming_loss - 0.03
        assert clean.ranking_loss < unbiased.ranking_loss < plain.ranking_loss - 0.01
        assert clean.average_precision > unbiased.average_precision > plain.average_precision + 0.01
        assert estimated.hamming_loss < plain.hamming_loss


def test_share_of_wrong_labels_matches_the_rates():
    task = make_demo(2000, random_state=1)
    expected = np.where(task.Y == 1, task.noise.rho_pos, task.noise.rho_neg).mean()
    assert abs(task.wrong_labels - expected) < 0.02
    assert task.Y_noisy.shape == (1000, 10)
