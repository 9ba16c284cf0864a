"""Tables with tags, identifiers, texts, categories, dates and gaps: lists of label issues and verified rows."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

TAGS = ["access", "billing", "bugs"]
WORDS = {"access": "login password", "billing": "invoice refund", "bugs": "crash error"}
OPTIONS = ("--tags", "tags", "--text", "body", "--id", "ticket", "--noise", "partial")
FAST = ("--epochs", 20, "--lr", 0.05, "--method", "hamming")


def make_tickets(n: int = 200) -> pd.DataFrame:
    """Return tickets whose texts contain the words of their tags; some tags are added at random."""
    rng = np.random.default_rng(0)
    true = rng.random((n, 3)) < 0.4
    noisy = true | (rng.random((n, 3)) < 0.1)
    return pd.DataFrame(
        {
            "ticket": [f"T{i:03}" for i in range(n)],
            "body": ["hello team " + " ".join(WORDS[t] for t, y in zip(TAGS, row) if y) for row in true],
            "tags": [";".join(t for t, y in zip(TAGS, row) if y) for row in noisy],
            "plan": rng.choice(["free", "pro", ""], n),
            "opened": pd.date_range("2026-01-01", periods=n).astype(str),
            "age": np.where(rng.random(n) < 0.1, np.nan, rng.integers(18, 80, n)),
        }
    )


@pytest.fixture
def tickets(tmp_path, monkeypatch):
    """Working directory with tickets.csv."""
    frame = make_tickets()
    frame.to_csv(tmp_path / "tickets.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return frame


def test_audit_lists_identifiers_and_texts(run, printed, tickets):
    arguments = ("audit", "tickets.csv", *OPTIONS, "--min-p-wrong", 0, "--out", "issues.csv", "--report", "page.html")
    result = run(*arguments)
    assert "ccmn review tickets.csv --tags tags --text body --id ticket" in result.stderr
    issues = pd.read_csv("issues.csv")
    assert issues.columns.tolist() == ["row", "id", "label", "given", "suspicion", "p_wrong", "suggested", "text"]
    assert issues.id.tolist() == tickets.ticket[issues.row].tolist()
    assert issues.text.tolist() == tickets.body[issues.row].tolist()
    first = issues.iloc[0]
    assert (first.given, WORDS[first.label] in first.text) == (1, False)
    assert "hello team" in Path("page.html").read_text()


def test_verified_rows_by_identifier(run, printed, tickets):
    true = pd.DataFrame([[int(WORDS[t] in body) for t in TAGS] for body in tickets.body], columns=TAGS)
    true.insert(0, "ticket", tickets.ticket)
    true.sample(120, random_state=0).to_csv("verified.csv", index=False)
    command = ("noise", "estimate", "tickets.csv", *OPTIONS[:6], "--noise", "partial")
    before = printed(*command)["estimate"]
    after = printed(*command, "--trusted", "verified.csv")["estimate"]
    assert sum(after["se_neg"]) < sum(before["se_neg"])
    result = run("fit", "tickets.csv", *OPTIONS, *FAST, "--trusted", "verified.csv", "--out", "model.ccmn")
    assert "saved to model.ccmn" in result.stdout
    lines = [(3, "bugs", 1, "no", 0), (5, "bugs", 0, "unsure", 1), (7, "bugs", 0, "yes", 1)]  # trusted.csv of a review
    pd.DataFrame(lines, columns=["row", "label", "given", "answer", "counts_for_rates"]).to_csv("t.csv", index=False)
    issues = printed("audit", "tickets.csv", *OPTIONS, "--trusted", "t.csv", "--min-p-wrong", 0, "--top", 200)["issues"]
    known = {(issue["row"], issue["label"]): issue["p_wrong"] for issue in issues}
    assert (known[3, "bugs"], known[7, "bugs"]) == (1, 1)
    assert known[5, "bugs"] < 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tags", "tgas", "--text", "body"], "no column 'tgas' (--tags); did you mean 'tags'?"),
        (["--tags", "tags", "--sep", "|", "--id", "ticket", "--ignore", "body"], "use --sep ';'"),
        (["--tags", "tags"], "'ticket' has 200 different values"),
        (["--tags", "tags", "--labels", "age", "--text", "body"], "--labels and --tags"),
        (["--labels", "tags", "--text", "body"], "use --tags tags instead of --labels"),
    ],
)
def test_errors(rejected, tickets, options, message):
    assert message in rejected("audit", "tickets.csv", *options)
