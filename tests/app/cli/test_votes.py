"""Long tables of votes on the command line: noise estimate, fit, audit with a report, and review data."""

import io
import itertools
import re

import numpy as np
import pandas as pd
import pytest


def simulated(task):
    """Yield the name and the votes of three annotators; the third makes many errors."""
    rng = np.random.default_rng(0)
    for annotator, error in (("ann", 0.05), ("bob", 0.1), ("eve", 0.4)):
        yield annotator, task.Y ^ (rng.random(task.Y.shape) < error)


@pytest.fixture(scope="module")
def vote_file(tmp_path_factory, task):
    """Return a CSV file with the labels that the annotators assigned to 300 rows."""
    lines = []
    for annotator, votes in simulated(task):
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


def test_audit_describes_the_annotators(run, vote_file, tmp_path):
    page = tmp_path / "report.html"
    run("audit", vote_file, "--votes", "item,worker,tag", "--report", page)
    text = page.read_text()
    assert '<h2 id="annotators">' in text
    assert len(re.findall(r"<th[^>]*>eve</th>", text)) == 1  # means over labels


def test_review_orders_rows_by_the_gain_of_another_vote(reviewing, vote_file, tmp_path):
    def use(client, session):
        scores = session.queue.scores
        votes = session.dataset.data.votes.to_array()[scores.order[0]]
        assert any(set(column) == {0.0, 1.0} for column in votes.T)  # annotators disagree on the first row
        assert scores.score.shape == (300, 3)
        assert 0 < scores.worst[scores.order[0]] < 1
        assert "annotators gave it" in client.get("/row/0").text

    reviewing(use, vote_file, "--votes", "item,worker,tag", "--out", tmp_path / "review")


@pytest.fixture
def two_files(files, task):
    """Votes of three annotators without features, and the features of their items in another order."""
    lines = []
    for annotator, votes in simulated(task):
        lines += [f"r{i},{annotator},{task.label_names[j]},{votes[i, j]}" for i in range(task.n) for j in range(task.q)]
    (files / "votes.csv").write_text("\n".join(["item,worker,label,value", *lines]))
    frame = pd.DataFrame(task.X, columns=list(task.feature_names)).assign(name=[f"r{i}" for i in range(task.n)])
    frame.iloc[::-1].to_csv(files / "items.csv", index=False)
    return ("--votes", "item,worker,label,value")


def test_items_in_their_own_file(run, printed, rejected, two_files, files, task):
    described = (*two_files, "--items", "items.csv", "--id", "name")
    found = printed("fit", "votes.csv", *described, "--out", "m.ccmn")
    assert (found["n"], found["d"], found["q"]) == (300, 4, 3)
    predicted = pd.read_csv(io.StringIO(run("predict", "m.ccmn", "items.csv").stdout))
    assert predicted.name.tolist() == [f"r{i}" for i in range(299, -1, -1)]
    assert (predicted[list(task.label_names)].to_numpy() == task.Y[::-1]).mean() > 0.9
    audited = printed("audit", "votes.csv", *described, "--top", 5)
    assert audited["issues"][0]["id"].startswith("r")
    result = run("audit", "votes.csv", *described)
    assert "ccmn review votes.csv --id name --votes item,worker,label,value --items items.csv" in result.stderr
    assert "--items FILE" in rejected("fit", "votes.csv", *two_files, "--out", "n.ccmn")
    assert rejected("audit", "votes.csv", *described[:-1], "naem", code=1).count("no column 'naem'") == 1
    assert "--items requires --votes" in rejected("audit", "items.csv", "--items", "items.csv", code=2)


def test_consensus(run, printed, rejected, two_files, files, task):
    result = run("votes", "votes.csv", *two_files, "--out", "consensus.csv")
    assert "300 items, 3 annotators, 3 labels, 2,700 votes" in result.stdout
    for word in ("alpha", "ties", "eve", "missing"):
        assert word in result.stdout
    table = pd.read_csv("consensus.csv").set_index("item").loc[[f"r{i}" for i in range(300)]]
    assert list(table) == ["sea", "sky", "sun", "p(sea)", "p(sky)", "p(sun)"]
    majority = (table[["sea", "sky", "sun"]].to_numpy() == task.Y).mean()
    assert majority > 0.93
    found = printed("votes", "votes.csv", *two_files)
    assert [line["label"] for line in found["agreement"]] == ["sea", "sky", "sun"]
    assert len(found["annotator_rates"]) == 9
    described = ("--items", "items.csv", "--id", "name", "--out", "better.csv")
    run("votes", "votes.csv", *two_files, *described)
    better = pd.read_csv("better.csv").set_index("item").loc[table.index]
    assert (better[["sea", "sky", "sun"]].to_numpy() == task.Y).mean() >= majority
    assert "already exists" in rejected("votes", "votes.csv", *two_files, "--out", "consensus.csv")
    assert "--out must end in .csv" in rejected("votes", "votes.csv", *two_files, "--out", "consensus.txt", code=2)


def slow_alpha(rows):
    """Return Krippendorff's alpha of the values of each unit, from all pairs of values."""
    units = [unit for unit in rows if len(unit) >= 2]
    values = [value for unit in units for value in unit]
    observed = sum(
        (unit[a] != unit[b]) / (len(unit) - 1) for unit in units for a, b in itertools.permutations(range(len(unit)), 2)
    )
    expected = sum(values[a] != values[b] for a, b in itertools.permutations(range(len(values)), 2))
    return 1 - (observed / len(values)) / (expected / (len(values) * (len(values) - 1)))


def test_agreement_equals_the_definition(printed, tmp_path):
    rng = np.random.default_rng(0)
    votes = rng.integers(0, 2, (25, 5, 2)).astype(float)
    votes[rng.random(votes.shape) < 0.5] = np.nan
    votes[:, :, 1] = np.where(np.isnan(votes[:, :, 1]), np.nan, 1)
    lines = [(i, f"a{a}", "xy"[j], int(votes[i, a, j])) for i, a, j in np.argwhere(~np.isnan(votes))]
    pd.DataFrame(lines, columns=["item", "who", "label", "value"]).to_csv(tmp_path / "votes.csv", index=False)
    found = printed("votes", tmp_path / "votes.csv", "--votes", "item,who,label,value")["agreement"]
    rows = [row[~np.isnan(row)].tolist() for row in votes[:, :, 0]]
    assert found[0]["alpha"] == pytest.approx(slow_alpha(rows))
    assert found[1]["alpha"] is None  # all votes are equal
    shared = [row for row in rows if len(row) >= 2]
    assert found[0]["ties"] == pytest.approx(np.mean([sum(row) * 2 == len(row) for row in shared]))


def test_invalid_votes(rejected, vote_file, tmp_path):
    assert "ITEM,ANNOTATOR,LABEL" in rejected("noise", "estimate", vote_file, "--votes", "item,worker", code=2)
    assert "no column 'who' (--votes)" in rejected("audit", vote_file, "--votes", "item,who,tag")
    command = ("noise", "estimate", vote_file, "--votes", "item,worker,tag", "--trusted", vote_file)
    assert "--trusted has no effect with --votes" in rejected(*command, code=2)
    command = ("audit", vote_file, "--labels", "a,b", "--votes", "item,worker,tag")
    assert "--labels and --votes" in rejected(*command, code=2)
