from __future__ import annotations

from ccmn.experiments.demo import prepare_demo, run_demo


def test_unbiased_beats_plain_on_every_metric_and_clean_beats_both():
    _, rows = run_demo(n=4000, epochs=15)
    rows = list(rows)
    assert len(rows) == 6
    for clean, plain, unbiased in (rows[:3], rows[3:]):
        assert (clean.labels, plain.labels, unbiased.labels) == ("clean", "plain", "unbiased")
        assert clean.hamming_loss < unbiased.hamming_loss < plain.hamming_loss - 0.03
        assert clean.ranking_loss < unbiased.ranking_loss < plain.ranking_loss - 0.01
        assert clean.average_precision > unbiased.average_precision > plain.average_precision + 0.01


def test_the_flipped_share_is_what_the_rates_say():
    setting, (_, clean, noisy), _ = prepare_demo(2000, seed=1)
    true = clean.numpy()
    expected = (true * setting.noise.rho_pos + (1 - true) * setting.noise.rho_neg).mean()
    assert abs(setting.wrong_labels - expected) < 0.02
    assert noisy.shape == (1000, 10)
