"""Pages of reports: escaped, self-contained, and one set of numbers in charts, tables and cards."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.report.checks import check_page
from ccmn.app.duplicates import Duplicates
from ccmn.app.issues import find_suspicions, predict_out_of_fold
from ccmn.app.report.builders import audit_report
from ccmn.app.report.facts import MetricRow, MetricValue
from ccmn.app.report.html import report_page
from ccmn.app.report.instances import informative_features, pictures, snippets
from ccmn.app.report.sections import metrics_section, rates_section
from ccmn.data import MultiLabelData
from ccmn.estimation import NoiseRates
from ccmn.noise import ClassConditionalNoise, TransitionNoise

HOSTILE = ["<script>alert(1)</script>", 'a"b', "c'd", "x & y", "</section>", "</style><img src=x>"]


def make_report(names, show=None, d=6, n=60, known=True):
    rng, q = np.random.default_rng(0), len(names)
    X = rng.normal(size=(n, d))
    Y = (X @ rng.normal(size=(d, q)) > 0).astype(int)
    noise = ClassConditionalNoise(0.1, 0.1, n_labels=q, label_names=names)
    noisy = pd.DataFrame(noise.corrupt(Y, random_state=0), columns=names)
    data = MultiLabelData(X, noisy.to_numpy(), label_names=names, name=names[0], ids=[f"T<{i}>" for i in range(n)])
    found = find_suspicions(noisy, predict_out_of_fold(X, noisy, 0), noise if known else None, known=known)
    shown = show(X) if show else informative_features(X, noisy.to_numpy().astype(float), [f"<i>{j}" for j in range(d)])
    issues = found.issues(names, 24, 0.0)
    command = "ccmn review 'a<b>.csv' --port 1"
    return audit_report(data, found, issues, noise if known else None, shown, 24, 0, Duplicates(3, 2), command)


@pytest.fixture(scope="module")
def hostile():
    return make_report(HOSTILE)


def with_section(report, section):
    """Return a report with another section of the same kind."""
    return replace(report, sections=[section if s.id == section.id else s for s in report.sections])


def test_names_are_escaped(hostile):
    assert set(HOSTILE) <= {text.strip() for text in check_page(report_page(hostile)).text}


def test_page_is_linked_and_makes_no_requests(hostile):
    page = report_page(hostile)
    check_page(page)
    rows = re.findall(r">Review row (\d+)<", page)
    assert set(re.findall(r"https?:[^\"<]*", page)) == {f"http://127.0.0.1:8765/go/{row}" for row in rows}
    assert len(rows) == 24
    assert "url(" not in page
    assert "<code>ccmn review &#39;a&lt;b&gt;.csv&#39; --port 1</code>" in page
    assert f"row {rows[0]} (T&lt;{rows[0]}&gt;)" in page
    anchors = re.findall(r'<a href="#(\w+)"', page)
    assert anchors == re.findall(r'<h2 id="(\w+)"', page) == ["issues", "rates", "metrics", "average_precision", "data"]
    assert page.index('<div class="tiles">') < page.index("<h2")
    for part in re.findall(r"<section>.*?</section>", page, flags=re.DOTALL):
        assert ("<svg" in part) <= ("<summary>numbers" in part)


def test_one_card_per_row_with_all_its_labels(hostile):
    cards = next(section for section in hostile.sections if section.id == "issues").cards
    assert len({card.row for card in cards}) == len(cards) == 24
    assert all(re.search(r"perhaps (false|missing): \d+ %$", text) for card in cards for _, text, _ in card.issues)
    ranked = next(section for section in make_report(["a", "b"], known=False).sections if section.id == "issues").cards
    assert [card.heading.split(",")[0] for card in ranked] == [f"rank {i}" for i in range(1, 25)]
    assert not any("%" in text for card in ranked for _, text, _ in card.issues)


def test_the_most_important_warning_is_on_the_first_screen(hostile):
    rates = replace(
        NoiseRates.known(ClassConditionalNoise([0.1, 0.3], [0.2, 0.0]), np.eye(2)),
        flags=[("wide_interval", "poorly identified", 1), ("few_rows", "few rows", None)],
    )
    section = rates_section(rates, ["sea", "sky"], ClassConditionalNoise([0.15, 0.25], [0.2, 0.1]))
    assert section.table.rows[1][:4] == ("1", "0.300", "0.30 to 0.30", "0.250")
    page = report_page(replace(with_section(hostile, section), warnings=section.warnings))
    assert page.index("<b>Note.</b> 1: poorly identified") < page.index("<h2")
    assert '<a href="#rates">1 more</a>' in page
    assert "<summary>2 warnings about these rates" in page
    assert rates_section(TransitionNoise([[0.8, 0.2], [0.1, 0.9]]), ["a", "b"]) is None


def test_pages_with_pictures_and_texts():
    names = [f"label number {j} of many" for j in range(50)]
    page = report_page(make_report(names, lambda X: pictures(X, (16, 24)), d=384))
    reader = check_page(page)
    assert reader.counts["img"] == 24
    assert len(page.encode()) < 1_000_000
    assert set(names) <= set(reader.text)
    page = report_page(make_report(["a", "b"], lambda X: snippets(["<script>x</script> & more"] * len(X))))
    assert "<script>x</script> & more" in check_page(page).text


def test_metrics_are_drawn_within_their_range(hostile):
    """Marked values are clipped, unknown ones keep their line, and the axis of a metric to be maximized ends at 1."""
    names = ("average_precision", "macro_auc", "hamming_loss")
    values = [MetricValue(1.25, 0.1, "consistent", (0.0, 1.0)), MetricValue(float("nan")), MetricValue(0.3, 0.05)]
    page = report_page(with_section(hostile, metrics_section([MetricRow("model", dict(zip(names, values)))], "")))
    section = page.partition('<h2 id="metrics">')[2].partition("</section>")[0]
    assert {"1.250* ± 0.100, consistent", "0.300 ± 0.050", "none"} <= set(check_page(page).text)
    assert "outside [0, 1]" in section
    assert "nan" not in section
    assert re.findall(r'class="tick">([\d.]+)<', section) == ["0", "1", "0", "1", "0", "0.5"]
    x1, x2 = (float(x) for x in re.findall(r'<line x1="([\d.]+)" y1="\d+" x2="([\d.]+)"[^>]*reach', section)[1])
    ends = [float(x) for x in re.findall(r'class="tick"|x="([\d.]+)" y="48" class="tick"', section)[-2:] if x]
    assert (x2 - x1) / (ends[1] - ends[0]) * 0.5 == pytest.approx(2 * 1.645 * 0.05, abs=0.002)  # a 90 % interval


ANY = st.text(alphabet="<>&\"'/=a ", min_size=1, max_size=12)


@settings(max_examples=8, deadline=None)
@given(names=st.lists(ANY, min_size=2, max_size=2, unique_by=str.strip))
def test_arbitrary_names(names):
    check_page(report_page(make_report([f"{name}." for name in names])))
