from __future__ import annotations

import math
import re
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.report.checks import check_page
from ccmn.app.issues import find_suspicions, predict_out_of_fold
from ccmn.app.report.builders import REVIEW_PORT, audit_report
from ccmn.app.report.facts import MetricFacts, MetricRow, MetricValue, Report, measure
from ccmn.app.report.html import _metric_dot, report_page
from ccmn.app.report.instances import informative_features, pictures, snippets
from ccmn.app.report.svg import dot_chart
from ccmn.data import MultiLabelData
from ccmn.noise import ClassConditionalNoise

HOSTILE = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "</style></svg></details>",
    "&lt;b&gt; & co",
    "javascript:alert(1)",
    "' onmouseover='alert(1)",
]


def make_report(q: int, names: list[str], show=None, n: int = 200, d: int = 12) -> Report:
    """Return the report of an audit of random data."""
    rng = np.random.default_rng(0)
    X = rng.random((n, d)).astype(np.float32)
    Y = (X @ rng.normal(size=(d, q)) + rng.normal(size=q) > 0).astype(np.uint8)
    Y[0] = 1  # every label has a positive
    noise = ClassConditionalNoise(0.1, 0.2, n_labels=q, label_names=names)
    noisy = pd.DataFrame(noise.corrupt(Y, random_state=0), columns=names)
    data = MultiLabelData(X, noisy.to_numpy(), label_names=names, name=names[0], ids=[f"T<{i}>" for i in range(n)])
    found = find_suspicions(noisy, predict_out_of_fold(X, noisy, 0), noise, known=True)
    shown = show(X) if show else informative_features(X, noisy.to_numpy().astype(float), [f"<i>{j}" for j in range(d)])
    report = audit_report(data, found, found.issues(names, 24, 0.0), noise, shown, 24)
    return replace(report, warnings=(f"{names[0]}: poorly identified",))


@pytest.fixture(scope="module")
def hostile() -> Report:
    return make_report(len(HOSTILE), HOSTILE)


def test_names_are_escaped(hostile):
    reader = check_page(report_page(hostile))
    texts = {text.strip() for text in reader.text}
    for name in HOSTILE:
        assert name in texts


def test_page_makes_no_requests():
    page = report_page(make_report(3, ["sea", "sky", "sun"]))
    check_page(page)
    address = f"http://127.0.0.1:{REVIEW_PORT}"
    assert set(re.findall(r"https?:[^\"<]*", page)) == {f"{address}/go/{i}" for i in issue_rows(page)}
    assert "url(" not in page


def issue_rows(page):
    return re.findall(r">Review row (\d+)<", page)


def test_label_issues_come_first_and_have_links(hostile):
    facts = replace(hostile.issues, review_command="ccmn review 'a<b>.csv' --port 1")
    page = report_page(replace(hostile, issues=facts))
    assert re.findall(r'<h2 id="(\w+)"', page)[0] == "issues"
    assert page.index('<div class="tiles">') < page.index("<h2")
    assert "<code>ccmn review &#39;a&lt;b&gt;.csv&#39; --port 1</code>" in page
    assert len(issue_rows(page)) == len(hostile.issues.rows) > 0
    assert issue_rows(report_page(replace(hostile, issues=replace(hostile.issues, review_url=None)))) == []


def test_the_most_important_warning_is_on_the_first_screen(hostile):
    warnings = ("sea: poorly identified", "sky: few rows")
    page = report_page(replace(hostile, warnings=warnings, rates=replace(hostile.rates, warnings=warnings)))
    assert page.index("<b>Note.</b> sea: poorly identified") < page.index("<h2")
    assert '<a href="#rates">1 more</a>' in page
    assert "<summary>2 warnings about these rates" in page
    assert "Note." not in report_page(replace(hostile, warnings=()))


def test_every_chart_has_a_table_in_its_section(hostile):
    page = report_page(hostile)
    for part in re.findall(r"<section>.*?</section>", page, flags=re.DOTALL):
        if "<svg" in part:
            assert "<summary>numbers" in part


def test_all_sections_are_present_and_linked(hostile):
    page = report_page(hostile)
    anchors = re.findall(r'<a href="#(\w+)"', page)
    assert anchors == re.findall(r'<h2 id="(\w+)"', page)
    assert len(anchors) == 6


def test_sections_without_facts_are_left_out(hostile):
    optional = {f.name: None for f in fields(Report) if f.name not in ("title", "lead", "data", "warnings")}
    page = report_page(replace(hostile, **optional))
    check_page(page)
    assert re.findall(r'<h2 id="(\w+)"', page) == ["data"]


def test_page_with_fifty_labels_is_small():
    names = [f"label number {j} of many" for j in range(50)]
    page = report_page(make_report(50, names, lambda X: pictures(X, (16, 24)), d=384))
    reader = check_page(page)
    assert reader.counts["img"] == 24
    assert len(page.encode()) < 1_000_000
    assert set(names) <= set(reader.text)


def test_texts_are_escaped():
    page = report_page(make_report(2, ["a", "b"], lambda X: snippets(["<script>x</script> & more"] * len(X))))
    assert "<script>x</script> & more" in check_page(page).text


def test_estimates_out_of_range_are_marked_and_clipped(hostile):
    values = {"average_precision": MetricValue(1.25, 0.1, "consistent", (0.0, 1.0))}
    page = report_page(replace(hostile, metrics=MetricFacts((MetricRow("model", values, 0),), "")))
    assert {"1.250*", "1.2500* ± 0.1000, consistent"} <= set(check_page(page).text)
    assert "outside [0, 1]" in page


def test_missing_metrics(hostile):
    values = {"hamming_loss": MetricValue(0.5, float("nan"), "unbiased"), "macro_auc": MetricValue(float("nan"))}
    page = report_page(replace(hostile, metrics=MetricFacts((MetricRow("one row", values, 0),), "")))
    check_page(page)
    assert not re.search(r'="[^"]*nan[^"]*"', page)


def test_metric_charts_show_all_models_in_one_order_with_intervals():
    """Values without standard error have no interval, and undefined values keep their line."""
    groups = [("first", "a"), ("first", "b"), ("second", "a"), ("second", "b")]
    values = [MetricValue(0.2, 0.05), MetricValue(0.4), MetricValue(math.nan), MetricValue(0.1, math.nan)]
    dots = [
        _metric_dot(MetricRow(name, {}, i, group), value)
        for i, ((group, name), value) in enumerate(zip(groups, values))
    ]
    chart = str(dot_chart(dots, "loss ↓", "loss"))
    assert re.findall(r">([^<]+)</text>", chart) == [
        *("loss ↓", "first", "a", "0.200", "b", "0.400"),
        *("second", "a", "none", "b", "0.100", "0", "0.5"),
    ]
    assert chart.count("<circle") == 3
    assert chart.count('stroke-width="6"') == 1
    x1, x2 = (float(x) for x in re.search(r'x1="([\d.]+)" y1="\d+" x2="([\d.]+)"[^>]*stroke-width="6"', chart).groups())
    centers = [float(x) for x in re.findall(r'cx="([\d.]+)"', chart)]
    scale = (centers[1] - centers[0]) / 0.2
    assert (x2 - x1) / scale == pytest.approx(2 * 1.645 * 0.05, abs=0.002)  # a 90 % interval


def test_the_axis_of_a_metric_to_be_maximized_ends_at_one(hostile):
    """A value of 0.3 is drawn at 30 % of the axis, and the table has one line per metric."""
    values = {"average_precision": MetricValue(0.3, 0.01), "hamming_loss": MetricValue(0.3, 0.01)}
    page = report_page(replace(hostile, metrics=MetricFacts((MetricRow("one model", values, 0),), "")))
    section = page.partition('<h2 id="metrics">')[2].partition("</section>")[0]
    assert re.findall(r'class="tick">([\d.]+)<', section) == ["0", "1", "0", "0.5"]
    assert re.findall(r'<th scope="row">([^<]+)</th>', section) == [
        "label ranking average precision ↑",
        "Hamming loss ↓",
    ]


def test_label_issues_show_the_identifiers_of_rows(hostile):
    page, row = report_page(hostile), hostile.issues.rows[0].row
    assert f"row {row} (T&lt;{row}&gt;)" in page


def test_exact_metrics_have_standard_errors_over_rows():
    """The standard error of the Hamming loss is that of a mean over rows."""
    rng = np.random.default_rng(0)
    Y, scores = rng.integers(2, size=(50, 3)), rng.normal(size=(50, 3))
    found = measure(Y, scores, standard_errors=True)["hamming_loss"]
    errors = ((scores >= 0) != Y).mean(1)
    assert found.value == pytest.approx(errors.mean())
    assert found.se == pytest.approx(errors.std(ddof=1) / np.sqrt(50), rel=0.02)
    assert measure(Y, scores)["hamming_loss"].se is None


ANY = st.text(alphabet="<>&\"'/=a ", min_size=1, max_size=12)


@settings(max_examples=50)
@given(names=st.lists(ANY, min_size=6, max_size=6, unique=True))
def test_arbitrary_names(hostile, names):
    """Render a page with other names in the same facts."""
    data = replace(hostile.data, labels=tuple(names))
    rates = replace(hostile.rates, labels=_renamed(hostile.rates.labels, names))
    curves = tuple((name, curve) for (_, curve), name in zip(hostile.precision_recall.labels, names))
    precision_recall = replace(hostile.precision_recall, labels=curves)
    rows = (replace(row, issues=((names[0], 1, 0.5, None),), labels=tuple(names)) for row in hostile.issues.rows)
    issues = replace(hostile.issues, rows=tuple(rows))
    together = replace(hostile.cooccurrence, names=tuple(names))
    found = Report(
        names[0],
        tuple(names),
        data,
        rates,
        metrics=hostile.metrics,
        cooccurrence=together,
        precision_recall=precision_recall,
        issues=issues,
        warnings=tuple(names),
    )
    check_page(report_page(found))


def _renamed(labels, names):
    return tuple(replace(label, name=name) for label, name in zip(labels, names))
