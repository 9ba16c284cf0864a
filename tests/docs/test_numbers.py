"""Numbers on the pages are those of results/."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score

from ccmn import find_label_issues
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


def default_means():
    """Return the mean metrics of results/default.csv by kind and method; every dataset counts once."""
    default = read("default").query("labels == 'all'")
    metrics = ["lrap", "hamming_loss"]
    return default.groupby(["kind", "dataset", "method"])[metrics].mean().groupby(["kind", "method"]).mean()


def results_of_the_readme():
    """Yield the start and the numbers of the rows of the table of results."""
    human = read("real_noise").query("metric == 'average_precision' and trusted == 50")
    human = human.groupby(["dataset", "variant", "method"]).value.mean().unstack()[["self-confidence", "ccmn"]]
    gains = (human["ccmn"] - human["self-confidence"] > 0.01).sum()
    yield f"finding errors of people ({len(human)} sets, gain on {gains})", *human.mean()
    found = read("label_issues").query("metric == 'average_precision'")
    found = found.groupby(["dataset", "method"]).value.mean().groupby("method").mean()
    yield "finding injected errors", found["self-confidence"], found["estimated rates"]
    lrap = default_means().lrap
    rows = {"predictions after missing": "two-sided", "the same, correct": "clean", "the same, labels of": "human"}
    for title, kind in rows.items():
        yield title, *(lrap[kind, method] for method in ("logistic regression", "without correction", "default"))
    deep = read("deep").groupby("method").average_precision.mean()
    yield "a small CNN", deep["BCE"], deep["ranking sigmoid, estimated rates"]


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


@pytest.mark.parametrize("kind", ["clean", "two-sided", "missing", "added", "human"])
def test_default(kind):
    means = default_means().loc[kind]
    methods = ["logistic regression", "without correction", "default", "known rates"]
    expected = [f"{short(means.lrap[m])} / {short(means.hamming_loss[m])}" for m in methods]
    assert table_rows("The default")[kind] == expected


def test_losses_of_the_default():
    lrap = read("default").query("labels == 'all'").groupby(["kind", "dataset", "method"]).lrap.mean().unstack()
    tmc, added = lrap.loc["clean", "tmc"], (lrap.declared - lrap.default)["added"].sort_values()
    others = ["without correction", "logistic regression"]
    differences = [found["default"] - found[m] for found in (tmc, lrap.loc["added", "yeast"]) for m in others]
    text = (DOCS / "measured.md").read_text().split("## Where ccmn loses")[1].split("\n## ")[0]
    assert added.index[0] == "yeast"
    changes = (lrap["default"] - lrap["without correction"]).drop([("clean", "tmc"), ("added", "yeast")])
    assert f"lowers no mean by more than {short(-changes.min())}" in text
    loss = read("default").query("labels == 'all' and kind == 'added' and dataset == 'yeast'")
    loss = loss.groupby("method").hamming_loss.mean()
    assert f"({short(loss['default'])}; {short(loss['without correction'])} without correction)" in text
    expected = [*differences, *added.iloc[[0, 1, -1]]]
    assert re.findall(r"[-+]\.\d{3}", text) == [f"{value:+.3f}".replace("0.", ".") for value in expected]


def test_coverage_of_the_intervals():
    rates = read("noise_rates").query("rows == 'once'")
    weak = rates.query("setting in ('.2 / .2', '.3 / .3', '.4 / 0', '0 / .3')").groupby("setting")
    assert min(weak.pos_covered.mean().min(), weak.neg_covered.mean().min()) >= 0.97
    strong = rates[rates.setting == ".4 / .4"]
    predicted = strong[strong.unpredicted == 0]
    text = (DOCS / "estimation.md").read_text()
    assert f"{100 * predicted.pos_covered.mean():.0f} % of the missing-label rates" in text
    assert f"{100 * len(predicted) / len(strong):.0f} % of the labels" in text


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
    rare = table[table.metric.eq("sum_ratio") & table.method.eq("ccmn") & table.dataset.eq("ecg")]
    for part in (few[few.dataset == "cmc"], few[few.dataset != "cmc"], many, rare[rare.trusted == 50]):
        interval = f"between {part.value.min():.2f} and {part.value.max():.2f} times"
        assert interval.replace("0.", ".") in text
    rare = rare[rare.trusted == 200].value
    assert f"(200 rows: {rare.min():.2f} to {rare.max():.2f})".replace(" 0.", " .") in text


def test_predictions_where_features_say_little():
    means = read("no_harm").groupby("task").ratio.mean()
    interval = f"sum to {means.min():.2f} to {means.max():.2f} times the observed labels".replace(" 0.", " .")
    assert interval in (DOCS / "estimation.md").read_text()


def test_accuracy_of_votes():
    table, text = read("votes"), (DOCS / "guides" / "votes.md").read_text()
    means = table[table.part == "labels"].groupby(["metric", "method", "dataset"]).value.mean()
    sets = [f"{name}, {shown}" for name in ("deu", "ptbr", "relex") for shown in (2, 3, 5)]
    for metric in ("hamming_loss", "micro_f1", "mean_ap"):
        for method in ("mean vote", "ccmn, votes", "ccmn, votes and features"):
            assert " | ".join(short(means[metric, method, name]) for name in sets) in text
    covered = table[table.metric.isin(["rho_pos coverage", "rho_neg coverage"])]
    covered = covered.groupby(["dataset", "metric", "method"]).value.mean()
    low, high = (covered.pop(("few annotators", "rho_neg coverage", m)) for m in ("votes", "votes and features"))
    interval = f"contain {covered.min():.2f} to {covered.max():.2f} of the annotators' rates"
    assert interval.replace(" 0.", " .") in text
    assert f"only {low:.2f} (with features {high:.2f}) of the false-positive rates".replace(" 0.", " .") in text


def test_reading_errors_of_students_are_at_the_top_of_the_list(real_data):
    path = real_data / "real" / "ecg.npz"
    if not path.exists():
        pytest.skip("requires real/ecg.npz in the folder CCMN_DATA")
    ecg = np.load(path)
    students, truth, network = ecg["Y_medical_students"], ecg["Y_true"], ecg["scores"][:, 0]
    issues = find_label_issues(students, network)
    assert len(issues) == students.size
    wrong = (students != truth)[issues.row, issues.label]
    counts = [int(wrong[:k].sum()) for k in (10, 25, 50)]
    expected = [f"{k * wrong.mean():.1f}" for k in (10, 25, 50)]
    text = (DOCS / "guides" / "labels.md").read_text()
    rows = [re.findall(r"[\d.]+", line) for line in text.splitlines() if line.startswith("| wrong labels in ")]
    assert rows == [[str(count) for count in counts], expected]
    precision = average_precision_score(wrong, -np.arange(len(wrong)))
    assert f"The average precision of the ranking is {precision:.2f}".replace("0.", ".") in text
    assert f"{wrong.sum()} of {wrong.size:,} labels, a share of {wrong.mean():.3f}".replace(" 0.", " .") in text
