"""Numbers on the pages are those of results/."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest

from pages import DOCS, ROOT

LOSSES = {
    "BCE on the noisy labels": "BCE",
    '`HammingLoss("logistic", correction="relu")`': "Hamming logistic relu, estimated rates",
    '`RankingLoss("sigmoid")`': "ranking sigmoid, estimated rates",
    "`ForwardLoss`": "forward loss, estimated rates",
    '`RankingLoss("sigmoid")` of posterior labels': "ranking sigmoid, posterior labels",
    "BCE on the true labels": "BCE, clean labels",
}
"""Rows of the table of networks, and the methods of results/deep.csv."""


def read(name):
    return pd.read_csv(ROOT / "results" / f"{name}.csv")


def test_every_result_file_names_its_commit():
    folder = ROOT / "results"
    commits = json.loads((folder / "commits.json").read_text())
    assert sorted(commits) == sorted(path.name for path in folder.glob("*.csv"))
    assert all(re.fullmatch("[0-9a-f]{7,}", commit) for commit in commits.values())


def short(value):
    return f"{value:.3f}".removeprefix("0")


def results_of_the_readme():
    """Yield the start and the two numbers of the rows of the table of results, after the first."""
    found = read("label_issues").query("metric == 'average_precision'")
    found = found.groupby(["dataset", "method"]).value.mean().groupby("method").mean()
    yield "finding injected errors", found["self-confidence"], found["estimated rates"]
    default = read("default").query("labels == 'all'")
    means = default.groupby(["kind", "dataset", "method"]).lrap.mean().groupby(["kind", "method"]).mean()
    rows = {"predictions after missing": "two-sided", "the same, correct": "clean", "the same, labels of": "human"}
    for title, kind in rows.items():
        yield title, means[kind, "logistic regression"], means[kind, "default"]
    deep = read("deep").query("noise == 'two-sided'").groupby("method").average_precision.mean()
    yield "a network", deep["BCE"], deep["ranking sigmoid, estimated rates"]


def test_results_of_the_readme():
    table = (ROOT / "README.md").read_text().split("\n## Results\n")[1].split("\n## ")[0]
    for title, *numbers in results_of_the_readme():
        (row,) = [line for line in table.splitlines() if line.startswith(f"| {title}")]
        assert re.findall(r"\.\d{3}", row) == [short(number) for number in numbers], row


def table_rows(section):
    """Return the cells of the table of a section of the page of measurements."""
    text = (DOCS / "measured.md").read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = re.findall(r"^\| (.+) \|$", text, re.MULTILINE)
    return {cells[0]: cells[1:] for cells in (line.split(" | ") for line in lines[2:])}


@pytest.mark.parametrize("loss", LOSSES)
def test_networks(loss):
    values = read("deep").query("noise == 'two-sided'").set_index("method")
    means = values.loc[[LOSSES[loss]], ["hamming_loss", "average_precision"]].mean()
    assert table_rows("Networks")[loss] == [short(mean) for mean in means]


def test_audit_of_injected_errors_and_of_correct_labels():
    table, text = read("label_issues"), (DOCS / "guides" / "labels.md").read_text()
    found = table[table.metric == "average_precision"].groupby(["dataset", "method"]).value.mean()
    found = found.groupby("method").mean()
    for method, words in (("self-confidence", "for self-confidence"), ("known rates", "with known rates")):
        assert f"{short(found[method])} {words}" in text
    assert f'{short(found["estimated rates"])} with `noise="both"`' in text
    correct = table[table.part == "correct"].groupby(["metric", "dataset"]).value.mean()
    assert (correct["labels with p_wrong"] == 0).all()
    shares = correct["share with p_wrong >= .5"]
    assert f"{100 * shares.pop('rows without labels'):.1f} % are" in text
    assert f"at most {100 * shares.max():.1f} % of them".replace(" 0.", " .") in text


def test_audit_of_human_labels():
    table = read("real_noise")
    means = table.groupby(["dataset", "variant", "trusted", "method", "metric"]).value.mean()
    sets = [("cmc", f"Y_{name}") for name in ("any", "company1", "company3")]
    sets += [(name, "Y_one_annotator") for name in ("deu", "ptbr", "relex")] + [("ecg", "Y_medical_students")]
    rows = {
        "average precision, no verified rows": (0, "ccmn", "average_precision"),
        "and annotators known": (0, "ccmn, annotators", "average_precision"),
        **{f"average precision, {k} verified rows": (k, "ccmn", "average_precision") for k in (50, 200)},
        **{f"sum of `p_wrong` over number wrong, {k} rows": (k, "ccmn", "sum_ratio") for k in (50, 200)},
        **{f"share wrong where `p_wrong` is at least .5, {k} rows": (k, "ccmn", "share_wrong") for k in (50, 200)},
    }
    text = re.sub(r"[ \n]+", " ", (DOCS / "guides" / "labels.md").read_text())
    for title, key in rows.items():
        numbers = [short(means[(*name, *key)]) if (*name, *key) in means.index else "" for name in sets]
        assert re.sub(" +", " ", f"| {title} | {' | '.join(numbers)} |") in text
    ratios = table[table.metric.eq("sum_ratio") & table.method.eq("ccmn") & table.dataset.ne("ecg")]
    few, many = (ratios[ratios.trusted == k] for k in (50, 200))
    for part in (few[few.dataset == "cmc"], few[few.dataset != "cmc"], many):
        interval = f"between {part.value.min():.2f} and {part.value.max():.2f} times"
        assert interval.replace("0.", ".") in text
