"""Long tables of votes on the command line: noise estimate, fit, audit with a report, and review data."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from ccmn.app.review import open_session, read_review_data


@pytest.fixture(scope="module")
def vote_file(tmp_path_factory, task):
    """Return a CSV file with the labels that three annotators assigned to 300 rows; the third makes many errors."""
    rng = np.random.default_rng(0)
    lines = []
    for annotator, error in (("ann", 0.05), ("bob", 0.1), ("eve", 0.4)):
        votes = task.Y ^ (rng.random(task.Y.shape) < error)
        for i, row in enumerate(votes):
            tags = [task.label_names[j] for j in np.flatnonzero(row)] or [""]
            lines += [(f"r{i:03}", annotator, tag, i) for tag in tags]
    frame = pd.DataFrame(lines, columns=["item", "worker", "tag", "row"])
    features = pd.DataFrame(task.X[frame.row], columns=list(task.feature_names))
    path = tmp_path_factory.mktemp("votes") / "votes.csv"
    pd.concat([frame.drop(columns="row"), features], axis=1).to_csv(path, index=False)
    return path


def test_noise_of_the_majority_and_of_the_annotators(printed, run, vote_file, tmp_path):
    result = printed("noise", "estimate", vote_file, "--votes", "item,worker,tag", "--out", tmp_path / "rates.json")
    assert max(result["rho_pos"]) < 0.15
    listed = pd.DataFrame(result["annotators"])
    means = listed.groupby("annotator").rho_pos.mean()
    assert means["ann"] < means["eve"] - 0.2
    assert listed.votes.tolist() == [300] * 9
    assert "eve" in run("noise", "estimate", vote_file, "--votes", "item,worker,tag").stdout


def test_rates_of_a_fit_are_estimated_from_the_votes(run, printed, vote_file, tmp_path):
    command = ("fit", vote_file, "--votes", "item,worker,tag", "--loss", "hamming", "--surrogate", "square", "--out")
    assert printed(*command, tmp_path / "model.ccmn")["noise_is_estimated"]
    assert "class-conditional, estimated" in run(*command, tmp_path / "again.ccmn").stdout


def test_audit_describes_the_annotators(run, vote_file, tmp_path):
    page = tmp_path / "report.html"
    run("audit", vote_file, "--votes", "item,worker,tag", "--report", page, "--min-p-wrong", "0")
    text = page.read_text()
    assert '<h2 id="annotators">' in text
    assert len(re.findall(r"<th[^>]*>eve</th>", text)) == 3  # one line per label


def test_review_orders_rows_by_the_gain_of_another_vote(vote_file, tmp_path):
    dataset, _ = read_review_data(vote_file, votes=["item", "worker", "tag"])
    session = open_session(dataset, tmp_path / "review")
    try:
        scores = session.queue.scores
        votes = dataset.data.votes.to_array()[scores.order[0]]
        assert any(set(column) == {0.0, 1.0} for column in votes.T)  # annotators disagree on the first row
        assert scores.row_scores(0).shape == (3,)
        assert scores.label_scores(1)[7] == scores.row_scores(7)[1]
        given = dataset.given
        assert 0 < scores.max_p_wrong[scores.order[0]] < 1
        assert not np.isnan(given).any()
    finally:
        session.close()


def test_invalid_votes(rejected, vote_file, tmp_path):
    assert "ROW,ANNOTATOR,LABEL" in rejected("noise", "estimate", vote_file, "--votes", "item,worker", code=2)
    assert "no column 'who'" in rejected("audit", vote_file, "--votes", "item,who,tag")
    assert "--labels and --votes" in rejected("audit", vote_file, "--labels", "a,b", "--votes", "item,worker,tag")
