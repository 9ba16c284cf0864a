"""Demo on bundled data: the command, its losses, and the review of its rows."""

import numpy as np
import pytest

from app.report.checks import check_page
from app.review.test_retraining import train
from ccmn.app import review
from ccmn.app.demo_task import STRATEGIES, make_demo, run_demo


def test_demo_prints_a_table_and_writes_a_report(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("demo", "--quick")
    assert "noisy labels, true rates" in result.stdout
    assert result.stdout.count("0.") >= 18
    assert "report written to ccmn-demo/report.html" in result.stdout
    assert "ccmn review --demo" in result.stdout
    page = (tmp_path / "ccmn-demo" / "report.html").read_text()
    reader = check_page(page)
    assert reader.counts["h2"] == 5
    assert reader.counts["img"] == 24
    assert "http:" not in page
    assert len(page) < 500_000


def test_demo_json(printed, tmp_path):
    folder = tmp_path / "some" / "folder"
    folder.mkdir(parents=True)
    (folder / "report.html").write_text("old report")
    found = printed("demo", "--quick", "--random-state", 2, "--out", folder)
    assert list(found) == ["n_train", "n_test", "wrong_labels", "noise", "results", "report"]
    assert found["n_train"] == 1000
    assert len(found["results"]) == 8
    assert 0.2 < found["wrong_labels"] < 0.4
    assert found["report"] == str(folder / "report.html")
    assert (folder / "report.html").read_text().startswith("<!DOCTYPE html>")


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
