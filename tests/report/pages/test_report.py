from __future__ import annotations

import re
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccmn.audit import audit_labels
from ccmn.data import MultiLabelData
from ccmn.noise import ClassConditionalNoise
from ccmn.report.facts.curves import curve_facts
from ccmn.report.facts.instances import pictures, snippets, telling_features
from ccmn.report.facts.metrics import Figure, MetricFacts, MetricLine
from ccmn.report.facts.of_audit import audit_report
from ccmn.report.facts.report import Report
from ccmn.report.pages.report import report_page
from report.pages.checks import check_page

HOSTILE = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "</style></svg></details>",
    "&lt;b&gt; & co",
    "javascript:alert(1)",
    "' onmouseover='alert(1)",
]


def make_report(q: int, names: list[str], show=None, n: int = 200, d: int = 12) -> Report:
    """An audit of random data, with learning curves of names as hostile as those of the labels."""
    rng = np.random.default_rng(0)
    X = rng.random((n, d)).astype(np.float32)
    Y = (X @ rng.normal(size=(d, q)) + rng.normal(size=q) > 0).astype(np.uint8)
    Y[0] = 1  # no label without a positive
    noise = ClassConditionalNoise(0.1, 0.2, n_labels=q, label_names=names)
    noisy = pd.DataFrame(noise.corrupt(Y, random_state=0), columns=names)
    data = MultiLabelData(X, noisy.to_numpy(), label_names=names, name=names[0])
    found = audit_labels(X, noisy, noise, 0.0)
    shown = show(X) if show else telling_features(X, noisy.to_numpy().astype(float), [f"<i>{j}" for j in range(d)])
    history = pd.DataFrame({"epoch": [1, 2], "loss": [2.0, 1.0]})
    report = audit_report(data, noisy, found, shown, 24)
    rates = replace(report.rates, doubts=(f"{names[0]}: hardly known",))
    return replace(report, rates=rates, curves=curve_facts({names[0]: history}, names[0]))


@pytest.fixture(scope="module")
def hostile() -> Report:
    return make_report(len(HOSTILE), HOSTILE)


def test_everything_from_the_data_is_escaped(hostile):
    reader = check_page(report_page(hostile))
    texts = {text.strip() for text in reader.text}
    for name in HOSTILE:
        assert name in texts


def test_nothing_is_fetched():
    page = report_page(make_report(3, ["sea", "sky", "sun"]))
    check_page(page)
    assert "http:" not in page
    assert "https:" not in page
    assert "<script" not in page
    assert "url(" not in page


def test_every_figure_has_its_numbers_in_its_section(hostile):
    page = report_page(hostile)
    for part in re.findall(r"<section>.*?</section>", page, flags=re.DOTALL):
        if "<svg" in part or "card" in part:
            assert "<summary>numbers" in part


def test_every_section_is_there_and_linked(hostile):
    page = report_page(hostile)
    anchors = re.findall(r'<a href="#(\w+)"', page)
    assert anchors == re.findall(r'<h2 id="(\w+)"', page)
    assert len(anchors) == 7


def test_what_there_is_not_is_left_out(hostile):
    optional = {f.name: None for f in fields(Report) if f.name not in ("title", "lead", "data")}
    page = report_page(replace(hostile, **optional))
    check_page(page)
    assert re.findall(r'<h2 id="(\w+)"', page) == ["data"]


def test_fifty_labels_stay_small():
    names = [f"label number {j} of many" for j in range(50)]
    page = report_page(make_report(50, names, lambda X: pictures(X, (16, 24)), d=384))
    reader = check_page(page)
    assert reader.counts["img"] == 24
    assert len(page.encode()) < 1_000_000
    assert set(names) <= set(reader.text)


def test_texts_are_escaped():
    page = report_page(make_report(2, ["a", "b"], lambda X: snippets(["<script>x</script> & more"] * len(X))))
    assert "<script>x</script> & more" in check_page(page).text


def test_figures_that_there_are_not(hostile):
    figures = {"hamming_loss": Figure(0.5, float("nan"), "unbiased"), "macro_auc": Figure(float("nan"))}
    page = report_page(replace(hostile, metrics=MetricFacts((MetricLine("one row", figures, 0),), "")))
    check_page(page)
    assert not re.search(r'="[^"]*nan[^"]*"', page)


ANY = st.text(alphabet="<>&\"'/=a ", min_size=1, max_size=12)


@settings(max_examples=50)
@given(names=st.lists(ANY, min_size=6, max_size=6, unique=True))
def test_any_names(hostile, names):
    """The names put into facts that are there already; one page each."""
    data = replace(hostile.data, labels=_renamed(hostile.data.labels, names))
    rates = replace(hostile.rates, labels=_renamed(hostile.rates.labels, names))
    curves = tuple((name, curve) for (_, curve), name in zip(hostile.precision_recall.labels, names))
    precision_recall = replace(hostile.precision_recall, labels=curves)
    suspects = replace(hostile.suspects, suspects=tuple(replace(s, label=names[0]) for s in hostile.suspects.suspects))
    together = replace(hostile.cooccurrence, names=tuple(names))
    found = Report(
        names[0], tuple(names), data, rates, hostile.metrics, together, precision_recall, suspects, hostile.curves
    )
    check_page(report_page(found))


def _renamed(labels, names):
    return tuple(replace(label, name=name) for label, name in zip(labels, names))
